"""Check whether the lanes (parallel environments) of a problem are independent.

Each lane must be a function of its own seed and actions alone. Only then are episodes of different lanes independent
samples. The check runs episodes with random actions, and makes two comparisons:

* A lane keeps its seed and actions, and all other lanes get new ones. The lane must repeat its steps bit by bit.
* All lanes get the same seed and actions. They must agree.

The check fails if an environment ignores its seed, if lanes share a random generator or a simulator, or if a whole
vector environment takes a single seed. It also fails, without running, for a vector environment that is not made of
separate environments: its lanes may share something that shows only in costs too rare for a short check.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.core.errors import EnvironmentFault
from clearance.core.spaces import Box, Space
from clearance.simulator.simulator import LaneCheck, Steps

STEPS, LONGEST = 256, 128  # about the steps of all lanes together in each kind of walk; most steps of a lane in a walk
KINDS = 4  # kinds of walks
ROWS, WALKS = 8, 128  # least steps of each lane in each kind of walk; most repetitions of the comparison
DIFFERENT = "lanes with the same seed differ"
COMPARED = "obs", "h", "terminated", "truncated", "after"


def check_lanes(problem: Any) -> LaneCheck:
    """Run the lanes (parallel environments) of a problem and compare them; return a `LaneCheck`.

    The result holds the reason why lanes may depend on each other ("" if none was found), and the number of environment
    steps that the check has taken.
    """
    if not getattr(problem.lanes, "separate", True):
        return LaneCheck("the vector environment is not known to run separate environments", 0)
    T, steps, needed = int(np.clip(STEPS // problem.n, 8, LONGEST)), [0], max(STEPS, ROWS * problem.n)
    for k in range(WALKS):
        try:
            why = _compare_walks(problem, np.random.default_rng([k, 17]), T, steps)
        except EnvironmentFault as e:
            why = f"it could not be checked ({e})"
        if why or sum(steps) >= KINDS * needed:
            return LaneCheck(why, sum(steps))
    return LaneCheck("", sum(steps))


def _compare_walks(problem: Any, rng: np.random.Generator, T: int, steps: list[int]) -> str:
    """Run all lanes (parallel environments) up to four times for T steps, and compare the runs.

    Return the reason why lanes may be dependent, or "" if all comparisons agree. The number of environment steps of
    each run is appended to the list `steps`.
    """
    n, even = problem.n, np.arange(problem.n) % 2 == 0
    own, other = (_Script(rng, problem, T) for _ in range(2))
    first = own.walk(problem, steps)
    if getattr(problem.lanes, "one_seed", False):
        return "the environment takes one seed for all lanes"
    for kept in (even, ~even):
        again = own.mixed(other, kept).walk(problem, steps)
        if any(not _same(first, i, again, i) for i in np.flatnonzero(kept).tolist()):
            return "an episode is not a function of its own seed and actions"
    alike = own.mixed(own.of_lane(0), np.zeros(n, bool)).walk(problem, steps)
    return "" if all(_same(alike, 0, alike, i) for i in range(1, n)) else DIFFERENT


class _Script:
    """The seeds [n] and the actions of T steps [T, n, …] that one run gives to its n lanes (parallel environments)."""

    def __init__(self, rng: np.random.Generator | None, problem: Any, T: int) -> None:
        if rng is not None:
            self.seeds: Any = rng.integers(2**31, size=problem.n)
            self.actions: Any = np.stack([draw_actions(rng, problem.action, problem.n) for _ in range(T)])

    def mixed(self, other: _Script, kept: NDArray[np.bool_]) -> _Script:
        """Return a script that takes some lanes from this script and the rest from the script `other`.

        A lane's seed and actions come from this script where the mask `kept` [n] is true, and from `other` where it is
        false.
        """
        new = _Script(None, None, 0)
        shape = len(kept), *[1] * (self.actions.ndim - 2)
        new.seeds = np.where(kept, self.seeds, other.seeds)
        new.actions = np.where(kept.reshape(shape), self.actions, other.actions)
        return new

    def of_lane(self, i: int) -> _Script:
        """Return a script in which all lanes (parallel environments) have the seed and actions of lane i."""
        new = _Script(None, None, 0)
        new.seeds = np.full_like(self.seeds, self.seeds[i])
        new.actions = np.broadcast_to(self.actions[:, i : i + 1], self.actions.shape)
        return new

    def walk(self, problem: Any, steps: list[int]) -> Steps:
        found = problem.walk(lambda obs, t: self.actions[t], self.seeds, len(self.actions), once=True)
        steps.append(int(found.valid.sum()))
        return found


def _same(a: Steps, i: int, b: Steps, j: int) -> bool:
    """Return whether lane (parallel environment) i of run `a` and lane j of run `b` have the same steps, bit by bit."""
    rows = a.valid[:, i], b.valid[:, j]
    pairs = ((getattr(a, name)[rows[0], i], getattr(b, name)[rows[1], j]) for name in COMPARED)
    return all(np.array_equal(x, y) for x, y in pairs)


def draw_actions(rng: np.random.Generator, space: Space, n: int) -> Any:
    """Draw n random actions: entries are uniform between their bounds, or normal where the space has no bounds."""
    if not isinstance(space, Box):
        return rng.integers(0, space.nvec, (n, len(space.nvec))).reshape(n, *space.shape)
    low, high = (np.where(space.bounded, x, sign) for x, sign in ((space.low, -1.0), (space.high, 1.0)))
    inside, free = rng.uniform(low, high, (n, len(low))), rng.standard_normal((n, len(low)))
    return np.where(space.bounded, inside, np.clip(free, space.low, space.high))
