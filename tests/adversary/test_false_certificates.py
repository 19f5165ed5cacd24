"""A slice of the search for false certificates, and a check that it finds a kind that lies."""

from __future__ import annotations

import pytest
from adversary import DELTA, Kinds, infeasible_trial, judge, trial

HONEST = Kinds("object", "deterministic", "per episode", "certain", "1, costs")
LYING = HONEST._replace(environment="vector, lanes alike")


@pytest.mark.parametrize(("sign", "false"), [(1, "CERTIFIED"), (-1, "VIOLATED")])
def test_a_slice(sign: int, false: str) -> None:
    """Of 16 policies, more than three false verdicts have a probability below 2e-5 where each has at most δ = .01."""
    found = [trial(seed, sign) for seed in range(16)]
    assert sum(verdict == false for _, verdict in found) <= 3 and all(verdict for _, verdict in found)


def test_feasible_models_are_not_called_infeasible() -> None:
    found = [infeasible_trial(seed)[1] for seed in range(8)]
    assert found.count("INFEASIBLE") <= 2


def test_a_kind_that_lies_is_found_among_honest_ones() -> None:
    """2 % of the pool are false: the pooled rate is unsuspicious to the eye, the lying kind is named."""
    found = [(HONEST, "UNDECIDED")] * 4000 + [(LYING, "CERTIFIED")] * 80 + [(LYING, "UNDECIDED")] * 320
    rows, lying = judge(found, "CERTIFIED")
    assert "environment: vector, lanes alike" in lying and "environment: object" not in lying
    row = next(r for r in rows if r.kind == LYING.environment)
    assert (row.trials, row.decided, row.false) == (400, 80, 80) and DELTA == 0.01


def test_as_many_false_verdicts_as_delta_allows_are_no_lie() -> None:
    found = [(HONEST, "CERTIFIED")] * 10 + [(HONEST, "UNDECIDED")] * 990
    assert judge(found, "CERTIFIED")[1] == []
