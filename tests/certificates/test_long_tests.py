"""How the search plans a long test: with all that is left where a shorter one costs reward, and for bad luck."""

from typing import Any

import numpy as np
import pytest

from clearance.certificates.candidate_search import CandidateSearch


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A search whose candidates have values J [n, 1+I] that are known exactly, with so much spread and reach."""

    def make(J: list[list[float]], b: list[float], sd: list[float], reach: list[float], **how: Any) -> CandidateSearch:
        monkeypatch.setattr(CandidateSearch, "_lengths", np.array(how.get("lengths", [10.0] * len(J))))
        search, values = CandidateSearch.__new__(CandidateSearch), np.array(J)
        search.b, search.reach, search.single = np.array(b), np.array(reach), how.get("single", "never")
        search.fallback, search.attempts = how.get("fallback"), []
        search.n, search.total = np.full(len(J), 1e12), values * 1e12
        search.squares = (values**2 + np.array([0.0, *sd]) ** 2) * 1e12
        return search

    return make


def test_a_long_test_takes_all_that_is_left_where_a_shorter_one_costs_reward(known: Any) -> None:
    """With 60 % of the rest the rich policy has too little slack, and one that earns nothing would be mixed in."""
    search = known([[10.0, -9.0], [0.0, 0.0]], [-10.0], [0.1], [50.0])
    w, part = search._best(0.01, 6e3, (0.6, 1.0), 0.0)
    assert part == 1.0 and w[0] == pytest.approx(1.0)
    assert search._best_for(search.J, 0.6 * 6e3, 0.01, 0.0)[1] > 0.02
    plenty, share = search._best(0.01, 6e4, (0.6, 1.0), 0.0)
    assert share == 0.6 and plenty[0] == pytest.approx(1.0), "the shorter test, where it loses nothing"


def test_a_long_test_is_planned_for_bad_luck(known: Any) -> None:
    """Of two policies that should pass, the one that passes with a worse sample; the bolder one if it is alone, or if
    there is a policy to fall back to.
    """
    bold, careful = [10.0, -9.0], [9.0, -8.2]
    case = [-10.0], [10.0], [10.0]
    alone = known([bold], *case)
    enough = (s for s in 10 ** np.arange(2, 8, 0.02) if alone._best_for(alone.J, s, 0.01, 0.0) is not None)
    steps = next(enough)
    both = known([bold, careful], *case)
    assert both._best(0.01, 1.1 * steps, (1.0,), 0.0)[0][1] > 0.5
    assert known([bold], *case)._best(0.01, 1.1 * steps, (1.0,), 0.0)[0].tolist() == [1.0]
    safe = known([bold, careful], *case, fallback=np.array([0.0, 1.0]))
    assert safe._best(0.01, 1.1 * steps, (1.0,), 0.0)[0][0] > 0.9


def steps_for_the_first(search: Any, planned: float) -> float:
    """The steps of a test from which on the first policy alone should pass it."""
    found = ((s, search._best_for(search.J, s, 0.01, 0.0, planned)) for s in 10 ** np.arange(2, 8, 0.01))
    return float(next(s for s, w in found if w is not None and w[0] > 0.99))


def test_a_test_without_luck_may_need_all_of_its_episodes(known: Any) -> None:
    """Costs that hardly vary: the rich policy passes for sure, but late in the test. It is not given up for that."""
    search = known([[10.0, -2.0], [0.0, 0.0]], [-10.0], [0.01], [1000.0])
    steps = 1.05 * steps_for_the_first(search, 0.95)
    assert search._best_for(search.J, steps, 0.01) is None
    assert search._best(0.01, steps, (0.6, 1.0), 0.0)[0][0] > 0.99


def test_a_test_is_planned_with_the_length_of_its_own_episodes(known: Any) -> None:
    """Episodes of the rich policy end early, so a test has more of them than one of the policy that idles."""
    J, case = [[10.0, -6.0], [10.0, -6.5], [0.0, 0.0]], ([-10.0], [1.0], [1000.0])
    steps = steps_for_the_first(known(J, *case, lengths=[10.0, 10.0, 100.0]), 0.7)
    assert 5 * steps < steps_for_the_first(known(J, *case, lengths=[100.0, 100.0, 100.0]), 0.7)


def test_slack_counts_in_units_of_what_a_test_needs(known: Any) -> None:
    """A limit on a sum of a large range needs a large slack: the safest policy is not the one with equal slacks."""
    J = [[1.0, -9.0, -0.5], [1.0, -6.0, -0.53]]
    search = known(J, [-10.0, -1.0], [5.0, 0.1], [100.0, 1.0], single="require")
    assert search._safest(0.01, 1e4).tolist() == [0.0, 1.0]
