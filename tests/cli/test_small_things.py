"""Errors as JSON, whole numbers with an exponent, exit statuses in the help, plans that no machine can follow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clearance.cli import main
from clearance.core.errors import InputError
from clearance.runs.field_values import parse_limits, parse_whole, whole_between
from clearance.runs.problem_text import InfoCosts


@pytest.mark.parametrize(
    "words",
    [
        "optimum nowhere",
        "optimum",
        "nonsense",
        "solve two-state --K 1.5",
        "check missing.npz",
        "frontier two-state --constraint noise",
        "certify two-state missing.npz",
        "plan two-state --epsilon 0",
        "report missing",
        "optimum two-state --out nowhere/policy.npz",
    ],
)
def test_errors_are_json_objects(capsys: pytest.CaptureFixture[str], words: str) -> None:
    plain = main(words.split())
    said = capsys.readouterr()
    assert plain == 2 and said.out == "" and len(said.err.splitlines()) == 1
    assert main([*words.split(), "--json"]) == plain
    again = capsys.readouterr()
    found = json.loads(again.out)
    assert found["status"] == "error" and found["exit_status"] == 2 and again.err == said.err
    assert f"clearance: {found['message']}\n" == said.err


def test_an_interrupt_is_a_json_object(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("clearance.cli.optimum_command.optimum", interrupt)
    assert main(["optimum", "two-state", "--json"]) == 130
    assert json.loads(capsys.readouterr().out) == {
        "status": "interrupted",
        "message": "interrupted",
        "exit_status": 130,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e3", 1000), ("2.5e6", 2_500_000), ("1E2", 100), ("-3e0", -3), ("9e18", 9 * 10**18)],
)
def test_whole_numbers_with_an_exponent(text: str, value: int) -> None:
    assert parse_whole(text) == value


@pytest.mark.parametrize("text", ["1.5e0", "1e-3", "1e", "e3", "1e400", "1e999999999", "1.0", "nane", "9.3e18"])
def test_other_numbers_are_refused_at_once(text: str) -> None:
    with pytest.raises(InputError, match=r"must be (a whole number|below 2\*\*63)"):
        parse_whole(text)


def test_flags_take_exponents(capsys: pytest.CaptureFixture[str]) -> None:
    assert whole_between(1, 1000)("1e3") == 1000
    assert main(["solve", "two-state", "--K", "1e2", "--seed", "0", "--json"]) in (0, 4)
    assert json.loads(capsys.readouterr().out)["status"] == "done"


@pytest.mark.parametrize("command", ["", "solve", "optimum"])
def test_help_names_the_exit_statuses(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    assert "3 infeasible; 4 not certified" in " ".join(capsys.readouterr().out.split())


def test_a_plan_that_no_machine_can_follow_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "bai2023", "--policy", "bai2023", "--mu_F", "0.01", "--json", "--epsilon"]
    assert main([*words, "0.1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] > 1e30 and found["message"].startswith(
        "Theorem 1 asks the impossible of this problem: 4.1e+37"
    )
    assert main(["plan", "two-state", "--epsilon", "0.1", "--json"]) == 0
    assert "impossible" not in json.loads(capsys.readouterr().out)["message"], "μ_F = 0: it says nothing at all"


def test_a_plan_that_can_be_followed_does_not() -> None:
    from clearance.exact.theory_plan import _impossible

    assert _impossible(1e12) == () and len(_impossible(1e17)) == 1


def test_a_limit_whose_name_has_a_space_is_shown_with_quotes() -> None:
    with pytest.raises(InputError, match='write --limit "lost sales=2" for an upper limit'):
        parse_limits("lost sales<=2")


def test_a_cost_that_is_not_in_an_empty_info_is_said() -> None:
    with pytest.raises(InputError, match=r"info has no 'off' \(it has nothing\)"):
        InfoCosts(("off=info.off",))(None, 0, None, {})


def test_a_table_for_a_simulator_is_called_that(tmp_path: Path) -> None:
    (tmp_path / "best.csv").write_text("state,action,probability\n0,0,1\n")
    from clearance.simulator.policies.rule_mixture import load_mixture  # needs JAX

    with pytest.raises(InputError, match=r"best\.csv: \.csv policies are for finite models"):
        load_mixture(tmp_path / "best.csv")
