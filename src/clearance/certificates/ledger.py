"""The ledger of all statistical tests made in one folder: the share of δ that each test spends, and its last state.

A further test at level δ with other samples adds another error probability δ. So the tests of one ledger get shares of
δ that sum to δ. Test n gets the share 4/((4n − 3)(4n + 1)), which leaves 1/(4n + 1) of δ for the later tests. The first
share is 0.8, because most folders see only one test. At δ = 0.01, a test with this share needs 5 % more episodes than
one with all of δ. The shares fall like 1/n²; the tenth test needs 2.3 times as many episodes.

The same test (same policy, statement and δ) is not repeated but continued: its capital is stored, and by Ville's
inequality (`betting`) it may be checked at any time without cost. A policy that cannot be identified, such as a Python
function, gets a new share each time.

The search of `solve` takes one share for all of its tests and splits it among them (`candidate_search`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from clearance.certificates.betting import Bets
from clearance.certificates.episode_source import Episodes
from clearance.certificates.sequential_test import (
    SMALLEST_LOOK,
    Component,
    Evidence,
    Standing,
    Tally,
    affordable_episodes,
    gather,
)
from clearance.core.arrays import Array
from clearance.core.atomic_files import digest
from clearance.core.errors import InputError, SmallBudgetError
from clearance.core.random_streams import fold

KINDS = ("certify", "search")
STORED = [f.name for f in fields(Bets) if not f.init]  # the data that bets carry from sample to sample, and their prior
FIXED = ("m", "low", "high")


def share_of(number: int) -> float:
    """Return the share of δ that test `number` gets; the first test has the number 1, and all shares sum to 1.

    >>> [round(share_of(n), 4) for n in (1, 2, 3)]
    [0.8, 0.0889, 0.0342]
    """
    return 4 / ((4 * number - 3) * (4 * number + 1))


@dataclass(eq=False)
class Trial:
    """One test in the ledger: its subject, its level, its random stream `key`, and the state in which it stopped.

    The subject is a digest of policy and problem (`subject_of`); it is "" if they cannot be identified. The stream is
    fixed before the first episode is drawn, so if a test is killed, the repeated test draws the same episodes.
    """

    subject: str
    level: float
    key: int
    state: dict[str, Any] | None = None


@dataclass(eq=False)
class Share:
    """A share of δ that is spent by one test of `certify`, or by all tests of one search.

    kind    "certify" or "search"
    delta   the error probability δ that the user accepts for all tests together
    level   the part of δ that this share may spend
    trials  the tests that spend it
    """

    kind: str
    delta: float
    level: float
    trials: list[Trial] = field(default_factory=list)


@dataclass(eq=False)
class Ledger:
    """All shares of δ that were given to tests and searches, in order.

    The function `keep` stores the ledger; it is called before episodes are drawn or results are shown. `latest` is the
    number of the share that was used last; the first share has the number 1.
    """

    shares: list[Share] = field(default_factory=list)
    keep: Callable[[], None] = lambda: None
    latest: int = 0  # the number of the share that was used last

    @property
    def spent(self) -> float:
        return sum(share.level for share in self.shares)

    def open_share(self, kind: str, delta: float) -> Share:
        share = Share(kind, delta, share_of(len(self.shares) + 1) * delta)
        self.shares.append(share)
        return share

    def find(self, subject: str, delta: float) -> tuple[int, Trial] | None:
        """Return (number, test) for the test of this subject at this δ; None if there is none.

        The number is that of the test's share in the ledger; the first share has the number 1.
        """
        for number, share in enumerate(self.shares, 1):
            for trial in share.trials:
                if subject and trial.subject == subject and share.delta == delta:
                    return number, trial
        return None

    def open_trial(self, subject: str, delta: float, key: np.uint64) -> tuple[int, Trial]:
        """Return (number, test) for this subject at this δ; add a new test if there is none.

        The number is that of the test's share in the ledger; the first share has the number 1. A new test gets its own
        random stream, derived from `key`. It must not reuse the episodes of an earlier test, because the policy may
        have been chosen after the result of that test was known.
        """
        found = self.find(subject, delta)
        if found is None:
            share = self.open_share("certify", delta)
            share.trials.append(Trial(subject, share.level, int(fold(key, len(self.shares)))))
            self.keep()
            found = len(self.shares), share.trials[0]
        self.latest = found[0]
        return found

    def open_search(self, delta: float, *, repeats: bool) -> Share:
        """Return the share of δ for the search of a run.

        If the search repeats the draws of an earlier search (`repeats`), this is the share of that search. Otherwise it
        is a new share.
        """
        for share in self.shares if repeats else ():
            if share.kind == "search" and share.delta == delta:
                return share
        share = self.open_share("search", delta)
        self.keep()
        return share

    def close_search(self, share: Share, tests: list[tuple[str, Evidence]]) -> None:
        """Store in `share` the states in which the tests of a search stopped, so that they can be continued.

        `tests` lists pairs (subject, evidence). If states are already stored, nothing changes.
        """
        if share.trials:
            return
        share.trials = [Trial(subject, seen.delta, int(seen.key), describe_state(seen)) for subject, seen in tests]
        self.keep()


class Tested(NamedTuple):
    """The result of `run_test`.

    seen   the evidence of the test
    spent  the sum of the levels of all tests so far that share δ
    note   a sentence with the number of the test in the ledger and its level; "" without a ledger
    """

    seen: Evidence
    spent: float
    note: str


def run_test(
    source: Episodes, b: Array, delta: float, key: np.uint64, budget: float, identity: str | None, ledger: Any = None
) -> Tested:
    """Test one policy at level δ or, with a ledger, at the level that the ledger gives to this test.

    source    the episodes of the policy; b are the limits [I]
    key       the random stream of a new test
    identity  a text that identifies problem and policy: an earlier test with the same text is continued. With None,
              every call is a new test
    ledger    an object whose method `load` returns the `Ledger`

    With a ledger, `budget` counts from the first episode of the test, so it includes the steps of earlier calls. Checks
    come after fixed numbers of episodes, so an interrupted test gives bit-identical evidence.
    """
    _check_budget(source, budget, SMALLEST_LOOK if ledger is not None else 1)
    if ledger is None:
        return Tested(gather(source, b, delta, key, budget), delta, "")
    book: Ledger = ledger.load()
    number, trial = book.open_trial(subject_of(identity, source, b), delta, key)
    start = None if trial.state is None else restore_state(trial.state, trial.key, source, b)

    def keep(seen: Evidence) -> None:
        trial.state = describe_state(seen)
        book.keep()

    seen = gather(source, b, trial.level, np.uint64(trial.key), budget, start=start, keep=keep)
    return Tested(seen, book.spent, f"test {number} of this folder, at level {trial.level:.3g} of δ = {delta:g}")


def _check_budget(source: Episodes, budget: float, episodes: int) -> None:
    """Raise SmallBudgetError if the budget is too small for the given number of episodes."""
    each = source.episode_steps
    if affordable_episodes(budget, each) < episodes:
        least = int(np.ceil(((np.sqrt(episodes) + 2) ** 2 - 4) * each)) + 1
        many = "one episode" if episodes == 1 else f"{episodes} episodes"
        raise SmallBudgetError(f"budget {budget:.6g} is too small for {many}: give {least} or more")


def subject_of(identity: str | None, source: Episodes, b: Array) -> str:
    """Return a digest that identifies a test: problem and policy (`identity`), limits b, and range of an estimate.

    Return "" if there is no identity.
    """
    if identity is None:
        return ""
    low, high = source.bounds
    return digest(["test", identity], {"b": np.asarray(b, float), "low": low, "high": high})


# ------------------------------------------------------------------------------------------------- plain data


def describe_state(seen: Evidence) -> dict[str, Any]:
    """Return the state in which the test `seen` stopped, as plain data that `restore_state` reads.

    The data are the numbers of episodes and environment steps, the bets, and the sums of the samples of each component.
    """
    tally = seen.tally
    parts = [[m, c.episodes, c.total.tolist(), c.squares.tolist()] for m, c in sorted(tally.parts.items())]
    bets = {"up": [_describe_bets(x) for x in tally.up], "down": [_describe_bets(x) for x in tally.down]}
    return {"episodes": seen.episodes, "steps": seen.steps, **bets, "parts": parts}


def _describe_bets(bets: Bets) -> dict[str, Any]:
    return {name: np.asarray(getattr(bets, name), float).tolist() for name in (*FIXED, *STORED)}


def restore_state(data: dict[str, Any], key: int, source: Episodes, b: Array) -> Standing:
    """Return the state of a test from data that `describe_state` returned.

    Raise InputError if the data do not fit the source and the limits b. `key` is the test's random stream.
    """
    tally = Tally.of(source, b, None)
    try:
        for side, all_bets in (("up", tally.up), ("down", tally.down)):
            for bets, stored in zip(all_bets, data[side], strict=True):
                _restore_bets(bets, stored, data["episodes"])
        for m, episodes, *sums in data["parts"]:
            total, squares = (_numbers(x, (len(tally.up),)) for x in sums)
            tally.parts[int(m)] = Component(int(episodes), total, squares)
        if sum(c.episodes for c in tally.parts.values()) != data["episodes"]:
            raise ValueError("the episodes of the components")
        return Standing(np.uint64(key), int(data["episodes"]), int(data["steps"]), tally)
    except (KeyError, TypeError, ValueError, OverflowError) as e:
        raise InputError(f"the ledger holds a test that cannot be continued ({e}): test in another folder") from None


def _restore_bets(bets: Bets, stored: dict[str, Any], episodes: int) -> None:
    for name in (*FIXED, *STORED):
        own = np.asarray(getattr(bets, name), float)
        value = _numbers(stored[name], own.shape)
        if name in FIXED and value != own:
            raise ValueError(f"{name} is {value}, not {own}")
        setattr(bets, name, value if own.shape else float(value))
    if bets.sums[0] != episodes or np.logaddexp.reduce(bets.log_prior) > 1e-9:
        raise ValueError("sums or prior of the bets")


def _numbers(x: Any, shape: tuple[int, ...]) -> Array:
    value = np.array(x, float)
    if value.shape != shape or not np.all(np.isfinite(value)):
        raise ValueError(f"expected finite numbers {shape}")
    return value
