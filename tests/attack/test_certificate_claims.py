"""Certificates from strangers, with hashes that fit: what contradicts itself or the files beside it is refused."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import seal, simulator_run, small_run, solved
from runs import cli

import clearance as cl
from clearance.certificates.contradictions import find_contradiction
from clearance.certificates.ledger import share_of
from clearance.core.atomic_files import digest, save_json
from clearance.runs import certificate_check

BROKEN = np.eye(2)[[0, 0]]  # two_state: earns most and breaks its limit
Said = dict[str, Any]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("honest")
    two = cl.zoo.two_state()
    cl.solve(two, cl.CNPGPD(K=100, N=5), evidence="samples", budget=1e5, delta=0.1, out=home / "samples")
    return {
        "exact": solved(two, home / "exact", K=60, N=5),
        "mixture": small_run(home / "mixture"),
        "samples": home / "samples",
        "simulator": simulator_run(home / "simulator"),
    }


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(folder: Path) -> Said:
    return json.loads((folder / "certificate.json").read_text())


def words_of(page: Path) -> str:
    """The text of a report."""
    return html.unescape(re.sub(r"<[^>]*>", " ", page.read_text("utf-8")))


def forged(source: Path, change: Callable[[Said], Said], policy: cl.Mixture | None = None) -> Path:
    """A copy with other claims or another policy, and with hashes and second copies of J_lower that fit."""
    folder = Path("run")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    said = read(folder)
    first, *rest = change(said)["J_lower"]
    (folder / "certificate.json").write_text(json.dumps(change(said | {"J_r_lower": first, "J_g_lower": rest})))
    if policy is not None:
        policy.save(folder / "policy.npz")
    seal(folder)
    return folder


def refused(named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`report`, `certify --check` and `solve --resume` end in one line that names the field, and write no page."""
    for command in ("report run --no-price", "certify --check run", "solve --resume run"):
        status, out, err = cli(command, capsys)
        assert (status, out) == (2, "") and err.count("\n") == 1, (command, out, err)
        assert f"run/certificate.json: {named}" in err, (command, err)
    assert not Path("run/report.html").exists()


def test_a_forged_point_of_a_grid_is_not_shown_certified(capsys: Any) -> None:
    assert cli("sweep two-state --grid seed=0,1 --K 20 --N 5 --out g --threads 1", capsys)[0] == 0
    cl.Mixture.single(BROKEN).save("g/001/policy.npz")
    seal(Path("g/001"))
    status, out, err = cli("sweep --resume g --threads 1", capsys)
    assert (status, out) == (2, "") and "g/001/certificate.json: verdict is CERTIFIED, but" in err
    assert [row["point"] for row in json.loads(Path("g/table.json").read_text())["rows"]] == [0]


# --------------------------------------------------------------------------------------------- the policy is another


def test_a_policy_that_breaks_a_limit_is_not_shown_certified(honest: Any, capsys: Any) -> None:
    assert cl.certify(cl.zoo.two_state(), BROKEN).verdict == "VIOLATED"
    for kind in ("exact", "samples"):
        forged(honest[kind], lambda said: said | {"components": 1}, cl.Mixture.single(BROKEN))
        refused("verdict is CERTIFIED", capsys)


def test_a_policy_that_is_certified_is_not_shown_violated(honest: Any, capsys: Any) -> None:
    bad = cl.certify(cl.zoo.two_state(), BROKEN).asdict()
    forged(honest["exact"], lambda said: said | bad)
    refused("verdict is VIOLATED", capsys)


def test_values_of_another_policy_are_refused(honest: Any, capsys: Any) -> None:
    """It meets the limit too, but earns nothing: only the model tells."""
    two = cl.zoo.two_state()
    safe = cl.Mixture.single(np.eye(2)[[1, 1]])
    assert cl.certify(two, safe).verdict == "CERTIFIED"
    forged(honest["exact"], lambda said: said, safe)
    refused("J_r is 0.666667, but by the model and the policy it is", capsys)


def test_a_mixture_of_other_components_is_refused(honest: Any, capsys: Any) -> None:
    policy = cl.run.load(honest["mixture"]).policy
    assert isinstance(policy, cl.Mixture)
    twice = cl.Mixture(np.concatenate([policy.weights, policy.weights]) / 2, np.concatenate([policy.pi, policy.pi]))
    forged(honest["mixture"], lambda said: said, twice)
    refused(f"components is {policy.M}, but policy.npz has {2 * policy.M}", capsys)


# -------------------------------------------------------------------------------------------- numbers that disagree


def moved(x: list[float], i: int, by: float) -> list[float]:
    return [v + by * (j == i) for j, v in enumerate(x)]


CLAIMS: dict[str, tuple[str, Callable[[Said], Said]]] = {
    "a million of reward": ("J_upper of the reward", lambda s: {"J_r": 1e6, "gap": -999999.0}),
    "with bounds": ("gap is", lambda s: _rich(s) | {"gap": s["gap"]}),
    "negative gap": ("bound", lambda s: _rich(s) | {"gap": s["bound"] - 1e6}),
    "all of it": ("J_r is 1e+06, but by the model", lambda s: _rich(s) | {"bound": 1e6, "gap": 0.0}),
    "slack": ("slack of limit 0 is 5", lambda s: {"slack": moved(s["slack"], 0, 5)}),
    "J_g": ("slack of limit 0", lambda s: {"J_g": moved(s["J_g"], 0, 5)}),
    "lower": ("J_lower of limit 0", lambda s: {"J_lower": moved(s["J_lower"], 1, 1)}),
    "lower of the reward": ("J_lower of the reward", lambda s: {"J_lower": moved(s["J_lower"], 0, 1)}),
    "upper": ("J_upper of limit 0", lambda s: {"J_upper": moved(s["J_upper"], 1, -1)}),
    "not certified by these bounds": ("verdict is CERTIFIED", lambda s: {"J_lower": moved(s["J_lower"], 1, -1)}),
    "not violated by these bounds": ("verdict is VIOLATED", lambda s: {"verdict": "VIOLATED"}),
    "other limits": ("b is [0.5", lambda s: _eased(s)),
    "other names": ("names", lambda s: {"names": ["harmless"]}),
    "a cost": ("costs are not those", lambda s: {"costs": [True]}),
    "gap": ("gap is 0", lambda s: {"gap": 0.0}),
    "gap without bound": ("gap is", lambda s: {"bound": None}),
    "optimal": ("bound is", lambda s: {"bound": s["J_r"], "gap": 0.0, "lam": [0.0], "complementarity": [0.0]}),
    "no proof": ("bound is given without lam", lambda s: {"lam": None, "complementarity": None}),
    "a huge price": ("bound is", lambda s: {"lam": [1e290], "complementarity": [1e290 * s["slack"][0]]}),
    "a negative price": ("lam has a negative", lambda s: {"lam": [-1.0], "complementarity": [-s["slack"][0]]}),
    "complementarity": ("complementarity of limit 0", lambda s: {"complementarity": [3.0]}),
    "component": ("worst_component_slack is 1", lambda s: {"worst_component_slack": 1.0}),
    "level": ("level is 0.1", lambda s: {"level": 0.1}),
    "delta": ("delta is 0.5, but exact evidence", lambda s: {"delta": 0.5}),
    "second copy": ("J_g_lower must be as in J_lower", lambda s: {"J_g_lower": moved(s["J_g_lower"], 0, 9)}),
    "second copy of the reward": ("J_r_lower must be as in J_lower", lambda s: {"J_r_lower": 1e6}),
}  # fmt: skip


def _eased(s: Said) -> Said:
    free = {"complementarity": None, "worst_component_slack": None}
    return {"b": [0.5], "slack": [s["J_g"][0] - 0.5], **free}


def _rich(s: Said) -> Said:
    ends = {"J_lower": [1e6, *s["J_lower"][1:]], "J_upper": [1e6, *s["J_upper"][1:]]}
    return {"J_r": 1e6, **ends}


@pytest.mark.parametrize("name", CLAIMS)
def test_numbers_that_contradict_each_other_are_refused(name: str, honest: Any, capsys: Any) -> None:
    named, change = CLAIMS[name]
    forged(honest["exact"], lambda said: said | change(said))
    refused(named, capsys)


SAMPLED: dict[str, tuple[str, Callable[[Said], Said]]] = {
    "level above delta": ("level is 0.2", lambda s: {"level": 0.2}),
    "level of no test": ("level is", lambda s: {"level": s["level"] / 2}),
    "spent below level": ("spent is", lambda s: {"spent": s["level"] / 2}),
    "spent more than the ledger": ("spent is 0.1", lambda s: {"spent": 0.1}),
    "delta": ("level is", lambda s: {"delta": 1e-9}),
    "no delta": ("delta is None", lambda s: {"delta": None}),
    "a bound": ("bound is 1, but samples prove none", lambda s: {"bound": 1.0, "gap": 1.0 - s["J_r"]}),
    "interval": ("interval of the reward", lambda s: {"interval": [[9.0, 0.0], [9.0, 9.0]]}),
    "estimate": ("J_upper of the reward", lambda s: {"J_r": s["J_upper"][0] + 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLED)
def test_claims_from_samples_fit_their_ledger(name: str, honest: Any, capsys: Any) -> None:
    named, change = SAMPLED[name]
    forged(honest["samples"], lambda said: said | change(said))
    refused(named, capsys)


def test_a_ledger_with_other_shares_is_refused(honest: Any, capsys: Any) -> None:
    folder = forged(honest["samples"], lambda said: said)
    data = json.loads((folder / "ledger.json").read_text())
    data.pop("sha256")
    assert data["shares"][0]["level"] == share_of(1) * 0.1
    data["shares"][0]["level"] = 0.1
    save_json(folder / "ledger.json", data | {"sha256": digest(data)})
    seal(folder)
    status, out, err = cli("certify --check run", capsys)
    assert (status, out) == (2, "") and "ledger.json: share 1 is not what it should be" in err


# ------------------------------------------------------------------------------------------------- what is honest


def test_honest_certificates_pass_and_say_so(honest: Any, capsys: Any) -> None:
    for kind, words in (("exact", "computed again"), ("mixture", "computed again"), ("samples", "by the model, J_r =")):
        found = cl.check_certificate(honest[kind])
        assert found.checked and words in found.message
        assert words in words_of(cl.report(honest[kind], Path("r.html"), price=False))
        status, out, _ = cli(f"certify --check {honest[kind]} --json", capsys)
        assert status == 0 and json.loads(out)["checked"] is True


def test_a_simulator_is_shown_as_not_checked(honest: Any, capsys: Any) -> None:
    words = "ot checked: the model is not here"
    assert words in words_of(cl.report(honest["simulator"], Path("r.html")))
    status, out, _ = cli(f"certify --check {honest['simulator']} --json", capsys)
    assert status == 4 and words in json.loads(out)["message"] and json.loads(out)["checked"] is False


def test_a_simulator_with_other_limits_is_refused(honest: Any, capsys: Any) -> None:
    easy = {"b": [-30.0, -3.0], "slack": [9.5, 0.875]}
    forged(honest["simulator"], lambda said: said | easy)
    status, _, err = cli("certify --check run", capsys)
    assert status == 2 and "certificate.json: b is [-30.0, -3.0], but the problem has [-25.0, -3.0]" in err


def test_beyond_a_size_it_is_not_checked(honest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_check, "MOST_TRANSITIONS", 1)
    found = cl.check_certificate(honest["exact"])
    assert not found.checked and "are more than 1" in found.message
    assert "Not checked: 8 transitions" in words_of(cl.report(honest["exact"], Path("r.html"), price=False))


def test_words_are_those_of_the_model(honest: Any) -> None:
    lies = {"scope": "Holds for: every plant.", "message": "safe, whatever you do", "greedy_verdict": None}
    found = cl.check_certificate(forged(honest["mixture"], lambda said: said | lies)).certificate
    assert found == cl.check_certificate(honest["mixture"]).certificate


def test_bounds_that_are_true_and_worthless_are_not_shown(honest: Any) -> None:
    wide = {"J_upper": [1e6, 1e6, 1e6], "worst_component_slack": None}
    found = cl.check_certificate(forged(honest["mixture"], lambda said: said | wide)).certificate
    assert found == cl.check_certificate(honest["mixture"]).certificate


@pytest.mark.parametrize("seed", range(8))
def test_no_honest_certificate_contradicts_itself(seed: int) -> None:
    """Random models and policies, rich and poor in slack; also on the border, where values are rational."""
    rng = np.random.default_rng(seed)
    cmdp = cl.zoo.garnet(6, 3, 2, seed=seed)
    mixture = cl.Mixture(np.array([0.5, 0.5]), rng.dirichlet(np.ones(3), (2, 6)))
    on_border = cmdp.replace(b=cl.certify(cmdp, mixture, compare=False).J_g)
    for model in (cmdp, on_border):
        assert find_contradiction(cl.certify(model, mixture)) is None
        assert find_contradiction(cl.certify(model, mixture, evidence="samples", budget=2e4, seed=seed)) is None


def test_a_policy_that_breaks_a_limit_has_no_gap(tmp_path: Path) -> None:
    """It may earn more than any policy that meets the limits: bound − J_r would be negative."""
    folder = tmp_path / "run"
    two = cl.zoo.two_state()
    cl.solve(two, cl.NPGPD(K=2, N=2), out=folder, single="require")
    bad = cl.certify(two, BROKEN)
    assert bad.bound is not None and bad.bound < bad.J_r
    cl.Mixture.single(BROKEN).save(folder / "policy.npz")
    save_json(folder / "certificate.json", {"schema": "clearance/certificate/1", **bad.asdict()})
    seal(folder)
    text = words_of(cl.report(folder, price=False))
    assert "VIOLATED" in text and "gap to the optimum" not in text and "of the optimum" not in text
