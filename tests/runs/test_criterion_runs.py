"""solve and certify under every criterion: learned on a stand-in, chosen and certified on the model itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.cli import main
from clearance.exact.stand_ins import stand_in_of
from clearance.finite.evaluation import evaluate
from tests.exact.test_criteria import KINDS, with_binding_limit
from tests.support.criterion_truths import random_model


def limited_model(kind: str) -> cl.CMDP:
    found = (with_binding_limit(random_model(seed, **KINDS[kind])) for seed in range(9))
    return next(cmdp for cmdp in found if cmdp is not None)


@pytest.mark.parametrize("kind", ["total", "horizon", "discounted horizon"])
def test_the_stand_in_has_the_same_values(kind: str) -> None:
    for seed in range(6):
        cmdp = random_model(seed, **KINDS[kind])
        pi = np.random.default_rng(seed).dirichlet(np.ones(cmdp.A), size=cmdp.policy_shape[:-1])
        stand_in, policy = stand_in_of(cmdp), cl.Mixture.single(pi)
        assert stand_in is not None and stand_in.exact and stand_in.model.kind == "discounted"
        assert stand_in.forward(policy).J(stand_in.model) == pytest.approx(evaluate(cmdp, pi).J, rel=1e-9)
        assert np.array_equal(stand_in.back(stand_in.forward(policy)).pi, policy.pi)


@pytest.mark.parametrize("kind", KINDS)
def test_solve_is_certified_and_near_the_optimum(kind: str, tmp_path: Path) -> None:
    cmdp = limited_model(kind)
    best = cl.optimum(cmdp)
    for seed in range(2):
        solution = cl.solve(cmdp, seed=seed, budget=1e5, out=tmp_path / f"run{seed}")
        assert solution.certificate.verdict == "CERTIFIED"
        assert solution.certificate.J_r >= best.J_r - 0.05 * (1 + abs(best.J_r))
        assert cl.certify(cmdp, solution.policy).verdict == "CERTIFIED"
    assert main(["certify", "--check", str(tmp_path / "run0")]) == 0
    assert main(["report", str(tmp_path / "run0")]) == 0


def test_a_queue_is_learned_to_a_thousandth_of_its_long_run_optimum() -> None:
    queue = cl.zoo.lazar()
    best = cl.optimum(queue).J_r
    for seed in range(2):
        found = cl.solve(queue, seed=seed, budget=3e5).certificate
        assert found.verdict == "CERTIFIED" and found.J_r > 0.98 * best


def test_solve_keeps_what_must_never_be_paid() -> None:
    lake = cl.zoo.frozen_lake(8).replace(limit=0.0)
    found = cl.solve(lake, budget=2e5).certificate
    assert found.verdict == "CERTIFIED" and found.J_upper[1] == 0 and "no run can have holes" in found.message


def test_horizons_from_samples() -> None:
    """With a slack far from the edge; what is certified holds exactly, too."""
    cmdp = limited_model("horizon")
    cmdp = cmdp.replace(b=cmdp.b - 0.5)
    for seed in range(2):
        solution = cl.solve(cmdp, evidence="samples", budget=5e5, seed=seed)
        assert (
            solution.certificate.verdict == "CERTIFIED" and "episode of at most 4 steps" in solution.certificate.scope
        )
        assert cl.certify(cmdp, solution.policy).verdict == "CERTIFIED"
    table = np.zeros(cmdp.S, int)
    exact = cl.certify(cmdp, table).J_g[0]
    for rule in (table, lambda s: 0):  # a table and a rule that do the same
        seen = cl.certify(cmdp.replace(b=[exact - 1.0]), rule, evidence="samples", budget=1e5)
        assert seen.verdict == "CERTIFIED" and abs(seen.J_g[0] - exact) < 0.5


@pytest.mark.parametrize("kind", ["average", "total"])
def test_what_samples_cannot_tell_is_refused(kind: str) -> None:
    cmdp = random_model(0, **KINDS[kind])
    for attempt in (lambda: cl.solve(cmdp, evidence="samples"), lambda: cl.certify(cmdp, lambda s: 0)):
        with pytest.raises(cl.InputError, match="horizon=H for the first H steps"):
            attempt()


def test_what_knows_discounted_sums_only_says_so() -> None:
    cmdp: Any = random_model(0, criterion="average")
    with pytest.raises(cl.InputError, match="compare is for discounted sums"):
        cl.compare(cmdp, seeds=1)


def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["optimum", "lazar", "--horizon", "30", "--limit", "60", "--out", str(tmp_path / "p.npz")]) == 0
    assert "over one episode of at most 30 steps" in " ".join(capsys.readouterr().out.split())
    again = ["certify", "lazar", str(tmp_path / "p.npz"), "--horizon", "30", "--limit", "60"]
    assert main(again) == 0
    assert main(["solve", "two-state", "--horizon", "5", "--K", "50", "--out", str(tmp_path / "run")]) in (0, 4)
    assert main(["optimum", "queue-power", "--criterion", "total"]) == 2
    assert "--criterion average" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["lazar-discounted --criterion average", "lazar --gamma 0.98", "lazar --horizon 30"])
def test_limits_on_sums_do_not_become_limits_on_means(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimum", *words.split()]) == 2
    assert "is stated for a" in capsys.readouterr().err
    assert main(["optimum", *words.split(), "--limit", "5", "--json"]) == 0
    capsys.readouterr()
