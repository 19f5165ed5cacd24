"""`tools/check_certificate.py` agrees with what the library proves, and refuses what was tampered with."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import check_certificate
import numpy as np
import optimum_honesty as honesty
import pytest
from models import random_cmdp, with_limits
from scipy import sparse

import clearance as cl
from clearance.core.atomic_files import save_json, save_npz
from clearance.exact import proof as proofs
from clearance.runs.schema import parse_certificate
from tests.support.criterion_truths import random_model

CHECKER = Path(check_certificate.__file__)
HOLDS, FALSE, NOTHING = 0, 1, 2


def write(folder: Path, cmdp: cl.CMDP, policy: Any) -> dict[str, Any]:
    """The three files of a certificate, as a run folder has them; what the certificate says."""
    mixture = policy if isinstance(policy, cl.Mixture) else cl.Mixture.single(policy)
    cmdp.save(folder / "problem.npz")
    mixture.save(folder / "policy.npz")
    said = cl.certify(cmdp, mixture).asdict()
    save_json(folder / "certificate.json", said)
    return said


def check(folder: Path) -> int:
    return check_certificate.main([str(folder)])


# ------------------------------------------------------------------------------------------------------------- agrees


@pytest.mark.parametrize("seed", range(12))
def test_it_agrees_with_certificates_of_random_models(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    I, gamma = seed % 3, [0.5, 0.9, 0.999, 1 - 1e-7][seed % 4]
    cmdp = random_cmdp(seed, S=6, I=I, gamma=gamma, concentration=0.1)
    cmdp = with_limits(cmdp, 0.05 / (1 - gamma)) if I else cmdp
    pi = [cl.optimum(cmdp).policy, *rng.dirichlet(np.ones(3), size=(2, 6))]
    for policy, verdict in ((pi[0], "CERTIFIED"), (cl.Mixture([0.2, 0.3, 0.5], pi), None)):
        said = write(tmp_path, cmdp, policy)
        assert said["verdict"] == (verdict or said["verdict"]) and check(tmp_path) == HOLDS


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", honesty.DEGENERATE, ids=lambda kind: kind.__name__)
def test_it_agrees_on_the_border(kind, seed: int, tmp_path: Path) -> None:
    """Where rational values decided, the proof holds them as fractions."""
    cmdp = kind(np.random.default_rng([5, seed])).cmdp
    said = write(tmp_path, cmdp, cl.optimum(cmdp).policy)
    assert check(tmp_path) == HOLDS and said["verdict"] != "UNDECIDED"


def test_it_reads_sparse_models_with_missing_actions(tmp_path: Path) -> None:
    base, rng = random_cmdp(1, S=5), np.random.default_rng(1)
    available = (rng.random((5, 3)) < 0.6) | (np.arange(3) == 1)
    P = np.where(available[:, :, None], base.P, 0.0)
    kind: dict[str, Any] = {"rho": base.rho, "gamma": 0.8, "available": available}
    for rows in (P, sparse.csr_array(P.reshape(15, 5))):
        cmdp = cl.CMDP(rows, base.r, base.g, base.b, **kind)
        write(tmp_path, cmdp, cl.optimum(cmdp).policy)
        assert check(tmp_path) == HOLDS


def test_it_reads_models_as_users_write_them(tmp_path: Path) -> None:
    """Fortran order, whole numbers, one constraint without its axis, one limit for all, no start, a policy [S, A]."""
    P = np.asfortranarray(np.array([[[0, 1], [1, 0]], [[1, 0], [0, 1]]]))
    model = {"P": P, "r": np.array([[1, 0], [0, 2]]), "g": np.array([[0.0, 1.0], [1.0, 0.5]]), "b": np.array(0.25)}
    save_npz(tmp_path / "problem.npz", {**model, "gamma": np.array(0.75)})
    pi = np.array([[0.5, 0.5], [0.25, 0.75]])
    save_npz(tmp_path / "policy.npz", {"pi": pi})
    save_json(tmp_path / "certificate.json", cl.certify(cl.CMDP.load(tmp_path / "problem.npz"), pi).asdict())
    assert check(tmp_path) == HOLDS


@pytest.mark.parametrize("seed", range(4))
def test_infeasible_verdicts_carry_their_multipliers(seed: int, tmp_path: Path) -> None:
    cmdp = with_limits(random_cmdp(seed, I=2), -0.01)
    said = write(tmp_path, cmdp, np.full((6, 3), 1 / 3))
    assert said["verdict"] == "VIOLATED" and check(tmp_path) == HOLDS
    for lam in ([0.0, 0.0], [-x for x in said["proof"]["infeasible"]["lam"]], [1.0, 1.0]):
        wrong = {**said["proof"], "infeasible": {**said["proof"]["infeasible"], "lam": lam}}
        save_json(tmp_path / "certificate.json", {**said, "proof": wrong})
        assert check(tmp_path) == FALSE
    feasible = cmdp.replace(b=cmdp.b - 0.02)  # the same proof for limits that can be met
    feasible.save(tmp_path / "problem.npz")
    save_json(tmp_path / "certificate.json", {**said, "b": feasible.b.tolist()})
    assert check(tmp_path) == FALSE


# ------------------------------------------------------------------------------------------------------ other criteria

CRITERIA: dict[str, dict[str, Any]] = {
    "average": {"criterion": "average"},
    "total": {"criterion": "total", "ends": True},
    "horizon": {"horizon": 4},
    "discounted horizon": {"horizon": 5, "gamma": 0.9},
}


def binding(seed: int, kind: str) -> cl.CMDP:
    """A small random model with a limit in the middle of what can be had; many of them have several classes."""
    cmdp = random_model(seed, **CRITERIA[kind])
    free, most = cl.optimum(cmdp).J[1], cl.optimum(cmdp.replace(h=cmdp.h[::-1])).J_r
    return cmdp.replace(b=[(free + most) / 2])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", CRITERIA)
def test_it_agrees_under_each_criterion(kind: str, seed: int, tmp_path: Path) -> None:
    cmdp, rng = binding(seed, kind), np.random.default_rng(seed)
    best = cl.optimum(cmdp)
    free = rng.dirichlet(np.ones(cmdp.A), size=cmdp.policy_shape[:-1])
    policies = [best.policy, free, cl.Mixture([0.4, 0.6], np.stack([free, free[..., ::-1, :]]))]
    for policy in policies:
        write(tmp_path, cmdp, policy)
        assert check(tmp_path) == HOLDS
    most = cl.optimum(cmdp.replace(h=cmdp.h[::-1], b=[-1e3])).J_r
    impossible = cmdp.replace(b=[most + 0.01])
    assert write(tmp_path, impossible, free)["verdict"] == "VIOLATED" and check(tmp_path) == HOLDS


@pytest.mark.parametrize("kind", ["discounted", *CRITERIA])
def test_it_agrees_on_costs_that_are_never_paid(kind: str, tmp_path: Path) -> None:
    """From the start one may go a safe way, which ends, or one that pays and earns more."""
    P, r, cost = np.zeros((3, 2, 3)), np.array([[1.0, 3], [1, 4], [0, 0]]), np.array([[0.0, 1], [0, 0.5], [0, 0]])
    P[0, :, 1], P[1, 0, [1, 2]], P[1, 1, 2], P[2, :, 2] = 1, 0.5, 1, 1
    criterion = {k: v for k, v in CRITERIA.get(kind, {"gamma": 0.9}).items() if k != "ends"}
    cmdp = cl.CMDP(P, r, cost=[cost, 0.3 * r], limit=[0.0, 1e3], rho=[1.0, 0, 0], **criterion)
    said = write(tmp_path, cmdp, cl.optimum(cmdp).policy)
    assert said["verdict"] == "CERTIFIED" and check(tmp_path) == HOLDS
    lie = {"verdict": "CERTIFIED", "J_g": [0.0, -1.0], "J_lower": [-9.0, 0.0, -1e3], "J_upper": [1e3, 0.0, 0.0]}
    save_json(tmp_path / "certificate.json", {**said, **lie, "slack": [0.0, 999.0]})
    cl.Mixture.single(np.broadcast_to(np.eye(2)[[1, 1, 0]], cmdp.policy_shape)).save(tmp_path / "policy.npz")
    assert check(tmp_path) == (HOLDS if kind == "average" else FALSE)  # a long-run mean counts no costs on the way


def test_a_bound_on_totals_covers_what_is_earned_where_a_run_may_rest(tmp_path: Path) -> None:
    """At 0 a run may rest for ever without signals, or earn 1 and end: a bound of 0 is false."""
    P = np.zeros((2, 2, 2))
    P[0, 0, 0], P[0, 1, 1], P[1, :, 1] = 1, 1, 1
    cmdp = cl.CMDP(P, [[0, 1], [0, 0]], cost=[[0, 1], [0, 0]], limit=2.0, rho=[1, 0], criterion="total")
    said = write(tmp_path, cmdp, np.eye(2)[[0, 0]])
    assert said["bound"] >= 1 and check(tmp_path) == HOLDS
    proof = {**said["proof"], "V_lam": proofs.pack(np.zeros(2))}
    save_json(tmp_path / "certificate.json", {**said, "lam": [0.0], "bound": 0.0, "gap": 0.0, "proof": proof})
    assert check(tmp_path) == FALSE


def test_a_proof_about_totals_must_show_that_the_policy_ends(tmp_path: Path) -> None:
    """A run that earns 1, loses 1 and so on for ever has no total; L and U without w do not show one."""
    P = np.zeros((3, 2, 3))
    P[[0, 1, 0, 1], [0, 0, 1, 1], [1, 0, 2, 2]], P[2, :, 2] = 1, 1
    ending = cl.CMDP(P[:, 1:], np.zeros((3, 1)), cost=np.zeros((3, 1)), limit=5.0, rho=[1, 0, 0], criterion="total")
    said = write(tmp_path, ending, np.ones((3, 1)))
    r, g = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]), np.array([[[0.0, 0.0], [0.0, -1.0], [0.0, 0.0]]])
    save_npz(tmp_path / "problem.npz", {**ending.arrays(), "P": P, "r": r, "g": g})
    cl.Mixture.single(np.eye(2)[[0, 0, 0]]).save(tmp_path / "policy.npz")
    lie = {"J_r": 1.0, "J_g": [0.0], "slack": [5.0], "J_lower": [1.0, 0.0], "J_upper": [1.0, 0.0], "bound": None}
    V = np.zeros((1, 2, 3, 3))
    V[0, 0, :2, 0] = 1.0
    for shown, found in ((V[:, :, :2], NOTHING), (V, FALSE)):
        save_json(tmp_path / "certificate.json", {**said, **lie, "proof": {"V": proofs.pack(shown)}})
        assert check(tmp_path) == found


@pytest.mark.parametrize("name", ["lazar", "maintenance", "altman-queue"])
def test_it_agrees_on_averages_of_the_zoo(name: str, tmp_path: Path) -> None:
    cmdp = cl.zoo.MODELS[name]()
    assert write(tmp_path, cmdp, cl.optimum(cmdp).policy)["verdict"] == "CERTIFIED" and check(tmp_path) == HOLDS


# ------------------------------------------------------------------------------------------------------------ refuses


def shift(name: str, amount: float) -> Callable[[dict[str, Any]], None]:
    def change(said: dict[str, Any]) -> None:
        x = said[name]
        said[name] = [*x[:-1], x[-1] + amount] if isinstance(x, list) else x + amount

    return change


def set_to(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda said: said.update({name: value})


def other_values(name: str) -> Callable[[dict[str, Any]], None]:
    def change(said: dict[str, Any]) -> None:
        V = np.array(check_certificate.unpack(said["proof"][name]), np.float64)
        said["proof"][name] = proofs.pack(V + np.linspace(0.0, 0.1, V.size).reshape(V.shape))

    return change


TAMPERED = {
    "limit": shift("b", -0.5),
    "limit and slack": lambda said: (shift("b", -0.5)(said), shift("slack", 0.5)(said)),
    "lower bound": shift("J_lower", 1e-6),
    "upper bound": shift("J_upper", -1e-6),
    "value": shift("J_g", 1e-3),
    "reward": shift("J_r", 0.1),
    "slack": shift("slack", 0.1),
    "verdict": set_to("verdict", "VIOLATED"),
    "multipliers": shift("lam", 0.1),
    "negative multipliers": set_to("lam", [-1.0]),
    "bound": shift("bound", -0.01),
    "gap": shift("gap", -0.01),
    "V": other_values("V"),
    "V of the bound": other_values("V_lam"),
}


@pytest.mark.parametrize("kind", ["discounted", *CRITERIA])
@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_certificate_is_refused(name: str, kind: str, tmp_path: Path) -> None:
    cmdp = with_limits(random_cmdp(4), 0.1) if kind == "discounted" else binding(1, kind)
    said = write(tmp_path, cmdp, cl.optimum(cmdp).policy)
    assert check(tmp_path) == HOLDS
    TAMPERED[name](said)
    save_json(tmp_path / "certificate.json", said)
    assert check(tmp_path) == FALSE


def test_another_policy_or_model_is_refused(tmp_path: Path) -> None:
    cmdp = with_limits(random_cmdp(4), 0.1)
    best = cl.optimum(cmdp).policy
    write(tmp_path, cmdp, best)
    cl.Mixture.single(0.99 * best + 0.01 / 3).save(tmp_path / "policy.npz")
    assert check(tmp_path) == FALSE
    cl.Mixture.single(best).save(tmp_path / "policy.npz")
    for other in (cmdp.replace(h=cmdp.h * 1.01), cmdp.tightened(0.01)):
        other.save(tmp_path / "problem.npz")
        assert check(tmp_path) == FALSE


def test_a_false_certified_is_refused(tmp_path: Path) -> None:
    """A policy that breaks its limit by 1e-9, and a certificate that says otherwise in every field."""
    cmdp = with_limits(random_cmdp(4), 0.1)
    pi = cl.optimum(cmdp).policy
    said = write(tmp_path, cmdp, pi)
    b = [said["J_upper"][1] + 1e-9]
    cmdp.replace(b=b).save(tmp_path / "problem.npz")
    lie = {
        "b": b,
        "J_g": b,
        "slack": [0.0],
        "J_lower": [said["J_lower"][0], b[0]],
        "J_upper": [said["J_upper"][0], b[0]],
    }
    save_json(tmp_path / "certificate.json", {**said, **lie})
    assert check(tmp_path) == FALSE


@pytest.mark.parametrize(
    "change",
    [
        {"proof": None},
        {"evidence": "samples"},
        {"proof": {"V": {"shape": [1, 2, 6], "float64": "AAAA"}}},
        {"proof": {"V": 7}},
        {"J_lower": None},
    ],
    ids=str,
)
def test_what_carries_no_proof_is_not_checked(change: dict[str, Any], tmp_path: Path, capsys) -> None:
    said = write(tmp_path, random_cmdp(0), np.full((6, 3), 1 / 3))
    save_json(tmp_path / "certificate.json", {**said, **change})
    assert check(tmp_path) == NOTHING and "nothing to check" in capsys.readouterr().out


def test_files_of_version_0_1_carry_none(capsys) -> None:
    folders = [path.parent for path in Path(__file__).parents[1].glob("data/version_0_1/**/certificate.json")]
    assert folders
    assert {check(folder) for folder in folders} == {NOTHING}


def test_rows_that_clearance_would_divide_are_not_checked(tmp_path: Path) -> None:
    """Probabilities that sum to 1 + 1e-10 are other numbers here and there: save the model again."""
    cmdp = random_cmdp(0)
    write(tmp_path, cmdp, np.full((6, 3), 1 / 3))
    save_npz(tmp_path / "problem.npz", {**cmdp.arrays(), "P": cmdp.P * (1 + 1e-10)})
    assert check(tmp_path) == NOTHING


# -------------------------------------------------------------------------------------------- by itself, in run folders


def test_it_is_short_and_needs_the_standard_library_alone(tmp_path: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (CHECKER, CHECKER.with_name("check_criteria.py"))]
    assert [len(text.splitlines()) <= most for text, most in zip(texts, (200, 200), strict=True)] == [True, True]
    imported = {
        name
        for node in (node for text in texts for node in ast.walk(ast.parse(text)))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert imported - {"check_certificate"} <= sys.stdlib_module_names
    sol = cl.solve(cl.zoo.two_state(), budget=1e4, out=tmp_path / "run")
    run = subprocess.run([sys.executable, "-I", "-S", CHECKER, tmp_path / "run"], capture_output=True, text=True)
    assert run.returncode == HOLDS and f"holds  verdict {sol.certificate.verdict}" in run.stdout
    assert subprocess.run([sys.executable, "-I", "-S", CHECKER], capture_output=True).returncode == NOTHING


def test_the_proof_of_a_run_folder_is_read_back_and_its_form_is_checked(tmp_path: Path) -> None:
    sol = cl.solve(cl.zoo.two_state(), budget=1e4, out=tmp_path / "run")
    found = cl.run.load(tmp_path / "run").certificate
    assert found is not None and found.proof == sol.certificate.proof and found.proof is not None
    data = json.loads((tmp_path / "run/certificate.json").read_text())
    V, other = found.proof["V"], {"shape": [1, 2, 2]}
    for wrong in (7, {}, {"V": {**other, "float64": "AAAA"}}, {"V": V, "code": "x"}, {"V": V, "infeasible": {}},
                  {"V": {**other, "fractions": ["1/0"] * 4}}, {"V": V, "V_lam": V}):  # fmt: skip
        with pytest.raises(cl.InputError, match="proof must be"):
            parse_certificate(tmp_path / "certificate.json", {**data, "proof": wrong})


def test_a_proof_that_would_fill_the_disk_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "LARGEST", 10)
    assert cl.certify(random_cmdp(0), np.full((6, 3), 1 / 3)).proof is None
