"""A budget of time: as many steps as short runs say, on a clock that is given."""

import pytest

import clearance as cl
from clearance.core.errors import InputError, SmallBudgetError
from clearance.runs.field_values import parse_budget, seconds_of
from clearance.runs.time_budget import CAREFUL, steps_within


class Machine:
    """A clock, and runs that move it: so many steps a second after so many seconds of compiling."""

    def __init__(self, rate: float, compiling: float = 0.0, least: float = 0.0) -> None:
        self.now, self.rate, self.compiling, self.least = 100.0, rate, compiling, least

    def clock(self) -> float:
        return self.now

    def run(self, steps: float) -> None:
        if steps < self.least:
            raise SmallBudgetError("budget is too small")
        self.now, self.compiling = self.now + self.compiling + steps / self.rate, 0.0


@pytest.mark.parametrize("rate", [1e3, 3e4, 1e6])
@pytest.mark.parametrize("compiling", [0.0, 8.0])
def test_the_run_fits_into_the_time_and_uses_most_of_it(rate, compiling):
    machine = Machine(rate, compiling)
    steps = steps_within(600.0, machine.run, machine.clock)
    machine.run(steps)
    assert 0.6 * 600 < machine.now - 100 <= 600


def test_a_budget_that_is_too_small_to_certify_is_raised():
    machine = Machine(1e5, least=3e5)
    steps = steps_within(60.0, machine.run, machine.clock)
    assert steps == pytest.approx(CAREFUL * (60 - 3.2) * 1e5, rel=1e-6)


def test_a_time_in_which_nothing_can_be_done_is_refused():
    machine = Machine(1e2)
    with pytest.raises(InputError, match="too short"):
        steps_within(60.0, machine.run, machine.clock)


def test_a_budget_that_never_suffices_is_refused():
    machine = Machine(1e5, least=float("inf"))
    with pytest.raises(InputError, match="too short"):
        steps_within(60.0, machine.run, machine.clock)


def test_times_and_steps_are_read():
    assert seconds_of("90s") == 90 and seconds_of("10min") == 600 and seconds_of("2h") == 7200
    assert seconds_of("") is None and seconds_of("10") is None and seconds_of("-3s") is None
    assert seconds_of("nans") is None and seconds_of("infs") is None and seconds_of("10parsec") is None
    assert parse_budget("1e6") == 1e6
    with pytest.raises(InputError, match="10min"):
        parse_budget("ten minutes")


def test_solve_turns_a_time_into_steps(monkeypatch, tmp_path):
    """What is stored and counted are steps; short runs are made before."""
    tried = []

    def within(seconds, attempt):
        tried.append(seconds)
        attempt(2e4)
        return 3e4

    monkeypatch.setattr("clearance.runs.solve.steps_within", within)
    model = cl.zoo.two_state()
    timed = cl.solve(model, cl.CNPGPD(K=20, N=50), budget="10min", out=tmp_path / "run")
    plain = cl.solve(model, cl.CNPGPD(K=20, N=50), budget=3e4)
    assert tried == [600.0]
    assert timed.certificate.J_lower == plain.certificate.J_lower and timed.env_steps == plain.env_steps
    assert '"budget": 30000.0' in (tmp_path / "run" / "settings.json").read_text()


@pytest.mark.parametrize("budget", ["soon", "0s", "-5min"])
def test_other_texts_are_refused(budget):
    with pytest.raises(InputError, match="budget must be"):
        cl.solve(cl.zoo.two_state(), budget=budget)
