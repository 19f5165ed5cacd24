"""check_env: report what is wrong with an environment, and whether it is deterministic given its seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import EnvironmentFault, InputError
from clearance.core.statement import Statement
from clearance.simulator.gymnasium_envs.env_client import SideProcess
from clearance.simulator.gymnasium_envs.env_lanes import describe_error
from clearance.simulator.gymnasium_envs.gymnasium_problem import Gym, gymnasium, is_object
from clearance.simulator.gymnasium_envs.lane_independence import draw_actions
from clearance.simulator.gymnasium_envs.tabular_problem import TabularProblem
from clearance.simulator.simulator import Steps

SHORT = 64  # steps in every lane of the short random walk before a run


@dataclass(frozen=True)
class Checked:
    """The result of `check_env`.

    name           the name of the environment
    wrong          errors that must be fixed, one line each
    notes          further findings that are no errors, one line each
    deterministic  whether two runs with the same seeds and actions agree in every bit. Only then is a resumed run
                   bit-identical. None if the environment could not be run
    """

    name: str
    wrong: tuple[str, ...]
    notes: tuple[str, ...] = ()
    deterministic: bool | None = None

    @property
    def ok(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        lines = [f"wrong: {line}" for line in self.wrong] + [f"note: {line}" for line in self.notes]
        verdict = "nothing wrong was found" if self.ok else "not ready to be used"
        return "\n".join([f"{self.name}: {verdict}", *lines])


def check_env(env: Any, *, steps: int = 500, seed: int = 0, **asked: Any) -> Checked:
    """Run an environment twice with random actions, and return a report on what is wrong with it.

    env    an environment as `cl.gymnasium` accepts it, or a problem
    steps  steps of each parallel environment; an id makes two parallel environments unless `num_envs` is given
    asked  the keyword arguments of `cl.gymnasium` (`constraints`, `limits`, …), if `env` is not a problem
    """
    env = env.gym if isinstance(env, TabularProblem) else env
    name = env if isinstance(env, str) else type(env).__name__
    if isinstance(env, Gym):
        return _check(env, steps, seed)
    if hasattr(env, "observe") and hasattr(env, "statement"):
        return _check_in_jax(env, seed)
    single = is_object(env)
    try:
        settings: dict[str, Any] = ({"num_envs": 2} if isinstance(env, str | SideProcess) else {}) | asked
        problem = gymnasium(env, **settings)
    except InputError as e:
        return Checked(name, (str(e),))
    found = _check(problem, steps, seed)
    if single:
        return found
    try:
        problem.close()
    except Exception as e:
        return replace(found, wrong=(*found.wrong, f"close raised {describe_error(e)}"))
    return found


def repeats(simulator: Any, steps: int = SHORT) -> tuple[bool | None, str]:
    """Run a simulator twice with the same seeds; return whether both runs agree in every bit, and where they differ.

    If a run fails, return None and the error message. JAX environments are pure functions; the answer for them is
    always True, without a run.
    """
    if not hasattr(simulator, "walk"):
        return True, ""
    first, again = random_walk(simulator, steps, 0), random_walk(simulator, steps, 0)
    if isinstance(first, str) or isinstance(again, str):
        return None, next(x for x in (first, again) if isinstance(x, str))
    where = _difference(first, again)
    return where is None, where or ""


def _check(problem: Gym, T: int, seed: int) -> Checked:
    name, first = problem.statement.name, random_walk(problem, T, seed)
    if isinstance(first, str):
        return Checked(name, (first,), tuple(_of_statement(problem)))
    again = random_walk(problem, T, seed)
    notes = [*_of_statement(problem), *_of_signals(problem, first)]
    if isinstance(again, str):
        return Checked(name, (f"a second walk from the same seeds failed: {again}",), tuple(notes), False)
    where = _difference(first, again)
    notes.append("deterministic given its seed" if where is None else f"not deterministic given its seed: {where}")
    notes += _of_randomness(problem, first, T, seed)
    return Checked(name, tuple(_of_space(problem, first)), tuple(notes), where is None)


def _of_randomness(problem: Gym, first: Steps, T: int, seed: int) -> list[str]:
    """Return notes on the randomness of an environment, as a list of sentences; it is empty if nothing was found.

    There are two possible notes: episodes do not depend on the seed, and lanes (parallel environments) may depend on
    each other.

    first  the recorded steps of a run with this seed. It is compared with a run of T steps with other seeds
    """
    other, said = random_walk(problem, T, seed, first_seed=seed + 1000), []
    if not isinstance(other, str) and _difference(first, other) is None:
        said.append("episodes do not depend on the seed: no randomness, or it is seeded again in every reset")
    if problem.shared_randomness:
        why = problem.shared_randomness
        said.append(f"lanes may depend on each other, so a certificate uses one lane, or the mean over lanes: {why}")
    return said


def _check_in_jax(env: Any, seed: int) -> Checked:
    """Run one batch of steps of an untrained policy in a JAX environment; return a report on its values.

    JAX environments are pure functions, so the report always says that they are deterministic.
    """
    from clearance.simulator.policies.network_policy import Design
    from clearance.simulator.samplers.actor_critic import Practical

    policy = Design().fitted(env.obs_shape, env.action, seed)
    sampler, s = Practical(env, policy), env.statement
    notes = [s.meaning, *_of_limits(s)]
    try:
        X = sampler.walked(np.uint64(seed), sampler.begin(), policy.init(), 8 * sampler.steps_per_lane)[1]
    except EnvironmentFault as e:
        return Checked(s.name, (str(e),), tuple(notes), True)
    J = X.mean(0) * np.append(1.0, np.full(s.I, env.sign))
    seen = ", ".join(f"{name} {value:.4g}" for name, value in zip(("reward", *s.names), J, strict=True))
    return Checked(s.name, (), (*notes, f"sums over an episode of a policy that knows nothing: {seen}"), True)


def random_walk(problem: Gym, T: int, seed: int, first_seed: int | None = None) -> Steps | str:
    """Run all lanes (parallel environments) for T steps with random actions; return the steps, or an error as text.

    Lane i has the seed `first_seed` + i (default: `seed` + i). The actions follow from `seed`.
    """
    rng = np.random.default_rng([seed, 1])
    drawn = [draw_actions(rng, problem.action, problem.n) for _ in range(T)]
    seeds = [(seed if first_seed is None else first_seed) + i for i in range(problem.n)]
    try:
        return problem.walk(lambda obs, t: drawn[t], seeds, T)
    except EnvironmentFault as e:
        return str(e)


def _difference(a: Steps, b: Steps) -> str | None:
    """Return where two runs first differ, in words; None if they agree."""
    if a.valid.shape != b.valid.shape:
        return "walks of different length"
    names = ("obs", "after", "h", "terminated", "truncated", "valid")
    rows = {k: _rows(getattr(a, k)) != _rows(getattr(b, k)) for k in names}
    differs = np.stack([x.any(-1) for x in rows.values()])  # [what, T, n]
    if not differs.any():
        return None
    t = int(np.argmax(differs.any(axis=(0, 2))))
    what = next(k for k, x in zip(names, differs, strict=True) if x[t].any())
    lane = int(np.argmax(differs[names.index(what), t]))
    words = {"after": "the observation", "obs": "the observation", "h": "the reward or a cost"}
    return f"{words.get(what, what)} differs at step {t} in lane {lane} between two walks from the same seed"


def _rows(x: Array) -> Array:
    return x.reshape(*x.shape[:2], -1)


def _of_statement(problem: Gym) -> list[str]:
    return [problem.statement.meaning, *_of_limits(problem.statement)]


def _of_limits(s: Statement) -> list[str]:
    said = []
    if s.I == 0:
        said.append("there is no constraint")
    if s.I and s.bounds is None:
        said.append("no bounds are declared: samples cannot certify; give bounds=(low, high) of the costs")
    return said


def _of_signals(problem: Gym, steps: Steps) -> list[str]:
    s, h = problem.statement, steps.h[steps.valid]
    said = [f"reward seen in [{h[:, 0].min():.4g}, {h[:, 0].max():.4g}]"]
    for i, name in enumerate(s.names):
        values = problem.sign * h[:, 1 + i]
        said.append(f"{name} seen in [{values.min():.4g}, {values.max():.4g}], mean {values.mean():.4g} per step")
        if values.min() == values.max():
            said.append(f"{name} never changed in {len(values)} steps: is it the signal you mean?")
    ends = int(steps.terminated.sum()), int(steps.truncated.sum())
    said.append(f"{ends[0]} episodes terminated and {ends[1]} were cut off in {int(steps.valid.sum())} steps")
    return said


def _of_space(problem: Gym, steps: Steps) -> list[str]:
    """Return a list with one error, about the first observation that is outside the declared observation space.

    The list is empty if all observations are inside.
    """
    box = _declared_bounds(problem)
    if box is None:
        return []
    outside = ((steps.after < box[0]) | (steps.after > box[1])) & steps.valid.reshape(
        *steps.valid.shape, *[1] * len(problem.obs_shape)
    )
    if not outside.any():
        return []
    t, lane, *entry = (int(k) for k in np.argwhere(outside)[0])
    value, at = steps.after[(t, lane, *entry)], ", ".join(map(str, entry))
    return [f"lane {lane}, step {t}: observation[{at}] = {value:.6g} lies outside its space: fix observation_space"]


def _declared_bounds(problem: Gym) -> tuple[Array, Array] | None:
    lanes: Any = problem.lanes
    env = lanes.envs[0] if hasattr(lanes, "envs") else getattr(lanes, "env", None)
    space: Any = getattr(env, "single_observation_space", getattr(env, "observation_space", None))
    if type(space).__name__ != "Box":
        return None
    slip = 1e-6 * np.maximum(1.0, np.abs(np.where(np.isfinite(space.high), space.high, 0.0)))
    return space.low - slip, space.high + slip
