"""Files that version 0.1 wrote (tests/data/version_0_1): what is finished stays readable, what is not is refused."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learners import pole
from runs import cli

import clearance as cl
from clearance.core.atomic_files import sha256, without_non_finite
from clearance.core.statement import Statement

DATA = Path(__file__).parents[1] / "data" / "version_0_1"
FINITE = ("run_exact", "run_samples", "run_features", "run_network", "saved_solution", "sweep/000", "sweep/001")
FINISHED = (*FINITE, "run_gymnasium")
UNFINISHED = ("unfinished_finite", "unfinished_gymnasium")
RENAMED = {"worst_slack": "worst_component_slack", "mode": "greedy_verdict"}


@pytest.fixture(autouse=True)
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files, in which the test runs."""
    shutil.copytree(DATA, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def hashes(folder: str | Path) -> dict[str, str]:
    return {str(path): sha256(path) for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def as_written(folder: str) -> dict[str, Any]:
    """The certificate as version 0.1 wrote it."""
    return json.loads((DATA / folder / "certificate.json").read_text())


# ---------------------------------------------------------------------------------------------- models and policies


def test_the_data_is_of_version_0_1_and_small() -> None:
    versions = {json.loads(path.read_text())["version"] for path in DATA.rglob("manifest.json")}
    assert versions == {"0.1.0"} and not cl.__version__.startswith("0.1.")
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 300_000


def test_models_are_read() -> None:
    dense, sparse, two = cl.CMDP.load("dense.npz"), cl.CMDP.load("sparse.npz"), cl.zoo.two_state()
    for name in ("P", "r", "g", "b", "rho", "gamma"):
        np.testing.assert_array_equal(getattr(dense, name), getattr(two, name))
    assert (sparse.S, sparse.A, sparse.gamma, sparse.names) == (12, 3, 0.9, ("rest",))
    assert sparse.available is not None and not sparse.available[1::2, 2].any() and sparse.available.sum() == 30
    assert cl.optimum(sparse).status == "optimal" and cl.optimum(dense).J_r == pytest.approx(2 / 3)


def test_policies_are_read_and_certified(capsys: pytest.CaptureFixture[str]) -> None:
    model, mixture, single = cl.CMDP.load("dense.npz"), cl.Mixture.load("mixture.npz"), cl.Mixture.load("single.npz")
    assert mixture.M == 2 and mixture.weights.tolist() == [0.75, 0.25] and single.M == 1
    np.testing.assert_array_equal(single.pi[0], mixture.pi[0])
    for name, policy in (("mixture", mixture), ("single", single)):
        cert = cl.certify(model, policy)
        status, out, _ = cli(f"certify dense.npz {name}.npz --json", capsys)
        said = json.loads(out)
        assert said["verdict"] == cert.verdict and (status == 0) == (cert.verdict == "CERTIFIED")
        assert said["J_r"] == cert.J_r


# ------------------------------------------------------------------------------------------------ finished runs


@pytest.mark.parametrize("folder", FINISHED)
def test_finished_runs_are_read(folder: str) -> None:
    before, run, data = hashes(folder), cl.run.load(folder), as_written(folder)
    assert run.status == "done" and run.damaged == () and run.k == len(run.trace) == run.manifest["K"]
    assert run.settings["seed"] in (0, 1, 3, 5) and run.method is not None and run.method["method"]["K"] == run.k
    assert np.isfinite(run.trace.J_hat).all() and len(data["b"]) == run.problem.I
    cert = run.certificate
    assert cert is not None and cert.verdict == data["verdict"]
    for name in ("J_r", "J_g", "slack", "J_lower", "J_upper", "gap", "message", *RENAMED):
        assert without_non_finite(getattr(cert, RENAMED.get(name, name))) == data[name], name
    assert not any(hasattr(cert, name) for name in RENAMED)
    assert hashes(folder) == before


@pytest.mark.parametrize("folder", FINITE)
def test_finished_runs_on_models_are_certified_again(folder: str) -> None:
    run = cl.run.load(folder)
    assert isinstance(run.policy, cl.Mixture) and run.certificate is not None
    cert = cl.certify(run.problem, run.policy)
    exact = run.certificate.evidence == "exact"
    # What an enclosure left open on the limit itself is decided now, by rational arithmetic.
    decided = run.certificate.verdict == "UNDECIDED" and cert.verdict != "UNDECIDED"
    assert cert.evidence == "exact" and (decided or cert.verdict == run.certificate.verdict)
    old, low, high = run.certificate, np.array(cert.J_lower), np.array(cert.J_upper)
    if exact:  # two enclosures of the same values, rounded by two processors: they overlap, and the values agree
        assert (low <= old.J_upper).all() and (high >= old.J_lower).all()
        np.testing.assert_allclose([cert.J_r, *cert.J_g], [old.J_r, *old.J_g], rtol=0, atol=1e-12)
        assert cert.worst_component_slack == pytest.approx(old.worst_component_slack, abs=1e-12)
        assert decided or cert.greedy_verdict == old.greedy_verdict
    else:  # the true values lie within the bounds that the samples gave
        assert (low >= np.array(old.J_lower) - 1e-12).all() and (high <= np.array(old.J_upper) + 1e-12).all()


def test_a_run_with_evidence_from_samples_is_certified_from_samples_again() -> None:
    run = cl.run.load("run_samples")
    cert = cl.certify(run.problem, run.policy, evidence="samples", delta=0.1, budget=2e5)
    assert cert.evidence == "samples" and cert.verdict == "CERTIFIED"


def test_a_finished_run_on_a_simulator_is_certified_again() -> None:
    run, policy = cl.run.load("run_gymnasium"), cl.NetworkMixture.load("run_gymnasium/policy.npz")
    assert isinstance(run.policy, cl.NetworkMixture) and run.on_simulator
    np.testing.assert_array_equal(run.policy.theta, policy.theta)
    with pole() as env:
        assert isinstance(run.problem, Statement) and run.problem.meaning == env.statement.meaning
        cert = cl.certify(env, policy, delta=0.1, budget=2e5)
    assert cert.verdict == "CERTIFIED" and run.certificate is not None
    assert cert.J_upper[1] >= run.certificate.J_lower[1] and run.certificate.J_upper[1] >= cert.J_lower[1]


@pytest.mark.parametrize("folder", FINISHED)
def test_finished_runs_are_reported_and_exported(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = cl.report(folder, "page.html").read_text("utf-8")
    assert as_written(folder)["verdict"] in page and "0.1.0" in page
    status, _, err = cli(f"export {folder} --to trace.csv", capsys)
    assert (status, err) == (0, "")
    with open("trace.csv", newline="") as f:
        assert len(list(csv.DictReader(f))) == cl.run.load(folder).k


def test_several_runs_are_reported_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = cli("report run_features saved_solution --out pair.html", capsys)
    assert (status, err) == (0, "") and "run_features" in Path("pair.html").read_text("utf-8")


def test_a_finished_sweep_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    runs = {name: found for name, found in hashes("sweep").items() if Path(name).parent.name in ("000", "001")}
    table = json.loads(Path("sweep/table.json").read_text())
    found = cl.sweep(out="sweep")
    before = [{"smallest_slack" if k == "worst_slack" else k: v for k, v in row.items()} for row in table["rows"]]
    assert [row["seed"] for row in found.rows] == ["0", "1"] and found.rows == before
    status, out, _ = cli("sweep --resume sweep --json", capsys)
    assert status == 0 and json.loads(out)["certified"] == 2
    assert {name: now for name, now in hashes("sweep").items() if name in runs} == runs


# ------------------------------------------------------------------------------------------------ resuming


@pytest.mark.parametrize("folder", UNFINISHED)
def test_unfinished_runs_are_refused(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = hashes(folder)
    says = "was begun with clearance 0.1 and cannot be continued by clearance 0.2: solve again in another folder; "
    says += "what was learned so far stays readable"
    problem = pole() if folder == "unfinished_gymnasium" else cl.CMDP.load("dense.npz")
    for given in (None, problem):
        with pytest.raises(cl.InputError) as e:
            cl.resume(folder, given)
        assert str(e.value) == f"{folder}: {says}"
    for argv in (f"solve --resume {folder}", f"solve two-state --resume {folder}"):
        status, out, err = cli(argv, capsys)
        assert (status, out) == (2, "") and says in err and len(err.splitlines()) == 1
    assert hashes(folder) == before


@pytest.mark.parametrize("folder", UNFINISHED)
def test_what_an_unfinished_run_has_learned_is_read(folder: str) -> None:
    run = cl.run.load(folder)
    assert run.status == "interrupted" and run.damaged == () and run.k == len(run.trace) > 0
    assert run.policy is not None
    if folder == "unfinished_finite":
        assert cl.certify(run.problem, run.policy).verdict == as_written(folder)["verdict"]
    assert cl.report(folder, "page.html").exists()


@pytest.mark.parametrize("folder", ["run_exact", "run_samples", "run_gymnasium", "saved_solution"])
def test_finished_runs_keep_their_results(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Made again by another version, they might come out otherwise: the certificate that was given stays."""
    before = hashes(folder)
    says = f"{folder}: was begun with clearance 0.1 and is finished; clearance 0.2 reads it, but does not resume it"
    with pytest.raises(cl.InputError) as e:
        cl.resume(folder)
    assert str(e.value) == says
    status, _, err = cli(f"solve --resume {folder}", capsys)
    assert status == 2 and says in err and hashes(folder) == before
