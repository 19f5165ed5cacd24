"""What is shown cannot be misread: one policy that keeps the limits, and a sentence beside every alarming number."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.certificates.best_mixture import MOST_LOST, best_weights, choose_weights, safest_single
from clearance.certificates.candidate_search import LEVELS, Attempt, CandidateSearch, best_attempt
from clearance.certificates.price_words import prices_in_words
from clearance.certificates.verdict_words import limit_words, limits_as_written, scope_words
from clearance.cli.command_line import main
from clearance.core.arrays import Array
from clearance.core.criterion import Criterion
from clearance.core.random_streams import key_of

SHORT = cl.RegularisedCNPGPD(K=60, N=20)
SLOW = ("harvesting", "harvesting-discounted")  # its optimum takes a while
ZOO = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in cl.zoo.MODELS]
SAMPLE_ACTIONS = "Sample actions from this policy; always taking the most likely action would violate a limit."
NOT_EACH = "The limits hold on average over the components, not for each of them"


# ---------------------------------------------------------------------------------------- one stationary policy


def check_one_policy(cmdp: cl.CMDP, sol: cl.Solution) -> None:
    """One certified policy with the J of the mixture: J_r to 1e-9 relative, J_g to 1e-9 of its scale."""
    cert, mixture = sol.certificate, sol.selection.mixture
    assert (cert.verdict, cert.components, sol.policy.M) == ("CERTIFIED", 1, 1)
    assert min(cert.slack) >= 0 and cert.worst_component_slack == min(cert.slack)
    J, same = sol.policy.J(cmdp), mixture.J(cmdp)
    steps = 1 / (1 - cmdp.gamma) if cmdp.gamma < 1 else 1.0  # an average is one of a step
    size = np.maximum(np.abs(same), np.append(0.0, np.abs(cmdp.g).max(axis=(1, 2)) * steps))
    assert np.all(np.abs(J - same) <= 1e-9 * size)
    assert cl.certify(cmdp, sol.policy).verdict == "CERTIFIED"


@pytest.mark.parametrize("name", ZOO)
def test_every_model_of_the_zoo_gets_one_stationary_certified_policy(name: str) -> None:
    cmdp = cl.zoo.MODELS[name]()
    check_one_policy(cmdp, cl.solve(cmdp, SHORT))


@pytest.mark.slow
@pytest.mark.parametrize("name", cl.zoo.MODELS)
def test_every_model_of_the_zoo_as_it_is_solved_by_default(name: str) -> None:
    cmdp = cl.zoo.MODELS[name]()
    for seed in range(2):
        check_one_policy(cmdp, cl.solve(cmdp, seed=seed))


def worst_slack(cert: cl.Certificate) -> float:
    assert cert.worst_component_slack is not None
    return cert.worst_component_slack


def test_the_mixture_stays_available() -> None:
    cmdp = cl.zoo.two_state()
    sol, mixed = cl.solve(cmdp, SHORT), cl.solve(cmdp, SHORT, single="never")
    kept = sol.alternatives["best_mixture"]
    assert kept.policy.M == mixed.policy.M == 2 and "on average over its components, proven" in kept.guarantee
    np.testing.assert_array_equal(kept.policy.pi, mixed.policy.pi)
    assert "best_mixture" not in mixed.alternatives and worst_slack(mixed.certificate) < 0
    assert sol.certificate.J_r == pytest.approx(mixed.certificate.J_r, rel=1e-9)


def everyone_violates() -> tuple[cl.CMDP, cl.Mixture]:
    """Two utilities, one action for each: every pure policy misses one limit, an even mixture meets both."""
    P, r = np.ones((1, 2, 1)), np.zeros((1, 2))
    cmdp = cl.CMDP(P, r, g=[[[1.0, 0.0]], [[0.0, 1.0]]], b=[0.9, 0.9], gamma=0.5)
    return cmdp, cl.Mixture([0.5, 0.5], [[[1.0, 0.0]], [[0.0, 1.0]]])


def test_one_policy_from_components_that_all_violate() -> None:
    cmdp, mixture = everyone_violates()
    assert all(cl.certify(cmdp, pi).verdict == "VIOLATED" for pi in mixture.pi)
    mixed, one = cl.certify(cmdp, mixture), cl.certify(cmdp, mixture.stationary(cmdp))
    assert (mixed.verdict, one.verdict) == ("CERTIFIED", "CERTIFIED") and NOT_EACH in str(mixed)
    assert mixed.worst_component_slack == pytest.approx(-0.9) and one.worst_component_slack == pytest.approx(0.1)
    sol = cl.solve(cmdp, SHORT)
    assert sol.certificate.verdict == "CERTIFIED" and sol.certificate.components == 1


def masked() -> cl.CMDP:
    """Three states, the last never reached; the second action is missing in state 1, the first in state 2."""
    P = np.zeros((3, 2, 3))
    P[0, :, 1] = P[1, 0, 0] = P[2, 1, 2] = 1.0
    available = np.array([[True, True], [True, False], [False, True]])
    r, g = np.array([[1.0, 0.0], [0.5, 0.0], [0.0, 9.0]]), np.array([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    return cl.CMDP(P, r, g, b=0.6, rho=[1.0, 0.0, 0.0], gamma=0.5, available=available)


def test_states_that_are_never_visited_and_actions_that_do_not_exist() -> None:
    """The one policy takes no action that no component takes, and averages them where nobody goes."""
    cmdp = masked()
    pi = np.array([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]])
    mixture = cl.Mixture([0.25, 0.75], pi)
    one = mixture.stationary(cmdp)
    one.check(cmdp)
    assert one.J(cmdp) == pytest.approx(mixture.J(cmdp), rel=1e-12) and np.all(one.pi.sum(-1) == 1)
    np.testing.assert_array_equal(one.pi[0, 2], [0.0, 1.0])
    sol = cl.solve(cmdp, SHORT)
    check_one_policy(cmdp, sol)
    assert not np.any(sol.policy.pi[0][~cmdp.available])


def test_where_no_component_goes_the_policy_is_their_average() -> None:
    P = np.zeros((2, 2, 2))
    P[:, :, 0] = 1.0
    cmdp = cl.CMDP(P, np.zeros((2, 2)), np.ones((2, 2)), rho=[1.0, 0.0], gamma=0.9)
    pi = np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.5, 0.5], [0.2, 0.8]]])
    assert cl.Mixture([0.75, 0.25], pi).stationary(cmdp).pi[0, 1] == pytest.approx([0.8, 0.2])


@pytest.mark.parametrize("seed", range(4))
def test_the_one_policy_has_the_values_of_any_mixture(seed: int) -> None:
    """Random models and mixtures, some with weights and probabilities close to 0."""
    cmdp = cl.zoo.garnet(S=12, A=3, successors=2, I=2, seed=seed)
    dense = cl.CMDP(cmdp.rows.toarray().reshape(12, 3, 12), cmdp.r, cmdp.g, cmdp.b, gamma=cmdp.gamma)
    rng = np.random.default_rng(seed)
    pi = rng.dirichlet(np.full(3, 0.05), size=(3, cmdp.S))
    mixture = cl.Mixture([1 - 1e-9 - 1e-3, 1e-9, 1e-3], pi / pi.sum(-1, keepdims=True))
    for model in (cmdp, dense):
        assert mixture.stationary(model).J(model) == pytest.approx(mixture.J(model), rel=1e-11)


def features() -> tuple[cl.CMDP, Any]:
    """A class that ties states together, so that no one policy of it has the values of a mixture."""
    cmdp = cl.zoo.bai2023()
    return cmdp, cl.zoo.POLICIES["bai2023"]()


def test_a_class_without_the_average_keeps_the_rule() -> None:
    """Its policy is one of the iterates that is certified and loses at most 1 %, or the mixture."""
    cmdp, policy = features()
    how: dict[str, Any] = {"policy": policy, "seed": 1}
    found = {single: cl.solve(cmdp, cl.RegularisedCNPGPD(K=200, N=50), single=single, **how) for single in
             ("prefer", "require", "never")}  # fmt: skip
    prefer, require, never = (found[s].certificate for s in ("prefer", "require", "never"))
    assert all(c.verdict == "CERTIFIED" for c in (prefer, require, never)) and require.components == 1
    assert ("best_mixture" in found["prefer"].alternatives) == (prefer.components < never.components)
    assert never.J_r >= prefer.J_r >= require.J_r if prefer.components > 1 else prefer.J_r == require.J_r
    margin: Any = found["never"].margin
    gain = never.J_r - float(margin.policy.J(cmdp)[0])
    assert prefer.components == (1 if never.J_r - require.J_r <= MOST_LOST * gain else never.components)


VALUES = np.array([[10.0, 1.0], [4.0, -1.0], [6.95, -0.001], [6.96, 0.5], [0.0, 5.0], [20.0, -2.0]])


def test_the_rule_by_values() -> None:
    """One policy is taken at up to 1 % of what the mixture earns beyond the safest one, and only if it keeps b."""
    b = np.zeros(1)
    w = best_weights(VALUES, b)
    assert w is not None and np.count_nonzero(w) == 2
    best = float(w @ VALUES[:, 0])  # 10·2/3 + 20/3
    for J_r, taken in ((best - 0.009 * best, True), (best - 0.011 * best, False)):
        J = np.vstack([VALUES, [J_r, 0.0]])
        prefer, require = choose_weights(J, b, 0.0, "prefer"), choose_weights(J, b, 0.0, "require")
        assert prefer is not None and require is not None and np.argmax(require) == 6
        assert np.count_nonzero(prefer) == (1 if taken else 2)
        np.testing.assert_array_equal(choose_weights(J, b, 0.0, "never"), best_weights(J, b))
        margin = choose_weights(J, b, 0.25, "require")
        assert margin is not None and np.argmax(margin) == 0, "candidate 6 has no slack for a test"
    broken = VALUES - np.array([0.0, 3.0])
    assert choose_weights(broken[[0, 1]], b, 0.0, "require") is None and np.argmax(safest_single(broken, b)) == 4
    assert choose_weights(np.array([[1.0, -1.0], [0.0, 2.0]]), b, 3.0, "require") is None


NEAR = tuple(np.arange(0.5, 0.563, 0.003))  # neighbours differ by .6 % of what the mixture earns beyond the safest
FAR = (0.6,)


@dataclass(frozen=True)
class Constants:
    """Policies whose episodes are all alike: utility u earns 1 − u. Also the episodes of a mixture of them."""

    u: Array
    policy: Any = None

    @property
    def count(self) -> int:
        return len(self.u)

    def mixture(self, weights: Array) -> Any:
        used = np.flatnonzero(weights)
        return SimpleNamespace(M=len(used), weights=weights[used], u=self.u[used])

    def episodes(self, mixture: Any) -> Constants:
        return Constants(self.u, mixture)

    bounds, bias = (np.zeros(2), np.ones(2)), np.zeros(2)
    episode_steps = 1.0

    def draw(self, key: np.uint64, begin: int, n: int) -> tuple[Array, Any, int]:
        rng = np.random.default_rng([int(key), begin])
        component = rng.choice(self.policy.M, size=n, p=self.policy.weights)
        u = self.policy.u[component]
        return np.column_stack([1 - u, u]), component, n


def search_of(single: Any, between: tuple[float, ...]) -> tuple[CandidateSearch, tuple[Attempt, ...]]:
    candidates = Constants(np.array([0.0, 1.0, *between]))
    search = CandidateSearch(candidates, np.array([0.5]), key_of(0), 1e5, 0.05, single=single)
    return search, search.run()


@pytest.mark.parametrize(("single", "between", "components"), [
    ("prefer", NEAR, {1}), ("prefer", FAR, {2}), ("require", FAR, {1}), ("never", NEAR, {2})])  # fmt: skip
def test_from_samples_one_candidate_is_tested_where_it_loses_little(
    single: Any, between: tuple[float, ...], components: set[int]
) -> None:
    """The shares of δ do not change, and what is required is tested alone, whatever it loses."""
    search, attempts = search_of(single, between)
    assert {a.policy.M for a in attempts} == components
    assert [a.delta for a in attempts] == [0.05 * share for share in LEVELS[: len(attempts)]]
    best = best_attempt(attempts, search.tolerated_loss)
    assert best is not None and (best.policy.M > 1 or best.evidence.verdict == "CERTIFIED")


def test_between_certified_attempts_one_policy_is_taken_if_it_loses_little() -> None:
    one = search_of("require", FAR)[1][0]
    mixed = one._replace(policy=SimpleNamespace(M=2), worth=one.worth + 0.01)
    assert one.evidence.verdict == "CERTIFIED"
    assert best_attempt((mixed, one)) is mixed and best_attempt((mixed, one), 0.005) is mixed
    assert best_attempt((mixed, one), 0.02) is one


def test_the_choice_is_stored_and_given_again(tmp_path: Path) -> None:
    cmdp = cl.zoo.two_state()
    sol = cl.solve(cmdp, SHORT, single="never", out=tmp_path / "run")
    assert json.loads((tmp_path / "run/settings.json").read_text())["single"] == "never"
    assert cl.resume(tmp_path / "run").policy.M == sol.policy.M == 2
    with pytest.raises(cl.InputError, match="single must be one of prefer, require, never, got 'maybe'"):
        cl.solve(cmdp, SHORT, single="maybe")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------- a hair of randomness


def test_the_greedy_verdict_is_left_out_where_the_policy_is_random_by_a_hair_only() -> None:
    """Always risky breaks the limit; a policy that is risky once in 10⁷ steps is shown without a warning."""
    cmdp = cl.zoo.two_state()

    def found(p: float) -> cl.Certificate:
        return cl.certify(cmdp, [[p, 1 - p], [p, 1 - p]])

    assert found(1e-7).greedy_verdict is None and found(0.0).greedy_verdict is None
    assert found(1e-4).greedy_verdict == "CERTIFIED" and "Sample actions" not in str(found(1e-4))
    half = cl.certify(cmdp.replace(b=[0.8]), [[0.55, 0.45], [0.55, 0.45]])
    assert half.greedy_verdict == "VIOLATED" and SAMPLE_ACTIONS in str(half) and SAMPLE_ACTIONS in repr(half)


def test_randomness_where_nobody_goes_does_not_count() -> None:
    P = np.zeros((2, 2, 2))
    P[:, :, 0] = 1.0
    cmdp = cl.CMDP(P, np.zeros((2, 2)), np.ones((2, 2)), rho=[1.0, 0.0], gamma=0.9)
    assert cl.certify(cmdp, [[1.0, 0.0], [0.5, 0.5]]).greedy_verdict is None
    assert cl.certify(cmdp, [[0.5, 0.5], [1.0, 0.0]]).greedy_verdict == "CERTIFIED"


# ---------------------------------------------------------------------------------------- what is shown


def has_alarming_numbers(said: dict[str, Any]) -> list[str]:
    """Return the sentences that must stand in what shows this certificate."""
    needed = [NOT_EACH] if said["components"] > 1 and (said["worst_component_slack"] or 0) < 0 else []
    return needed + ([SAMPLE_ACTIONS] if said["greedy_verdict"] == "VIOLATED" else [])


RUNS = [
    "solve two-state --K 60 --N 20",
    "solve two-state --K 60 --N 20 --single never",
    "solve sutton-barto --K 60 --N 20 --single never",
    "solve inventory --K 300 --N 20",
    "solve two-state --evidence samples --budget 3e5 --single never",
    "optimum bai2023",
    "optimum inventory",
    "optimum altman-queue-discounted",
]


@pytest.mark.parametrize("argv", RUNS)
def test_no_command_shows_an_alarming_number_without_its_sentence(
    argv: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*argv.split(), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    said.setdefault("components", 1)
    needed = has_alarming_numbers(said)
    assert said["verdict"] == "CERTIFIED" and all(sentence in said["message"] for sentence in needed)
    assert min(said["slack"]) >= 0 and "Not covered: single episodes" in said["message"]
    assert main(argv.split()) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(sentence in shown for sentence in needed) and "Not covered: single episodes" in shown
    assert "worst_component_slack" not in shown and "greedy_verdict" not in shown and "path_bound" not in shown
    rest = re.sub(r"J_r(_lower)? -\S+|bound -\S+|\S+: -\S+ [≤≥] -\S+|slack of -\S+|[≤≥] -\S+", "", shown)
    if not any(x < 0 for x in (*said["J_g"], *said["b"])) or any(said["costs"]):
        assert not re.search(r"(?<![\w·])-\d", rest), rest


def test_learned_points_of_a_frontier_are_shown_as_costs(capsys: pytest.CaptureFixture[str]) -> None:
    """CERTIFIED must not stand beside negative numbers for a cost."""
    assert main(["frontier", "inventory", "--points", "2", "--learned", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "CERTIFIED" in out and "lost sales ≤ 1.65" in out and "-" not in out.split("learned at")[1]
    assert main(["frontier", "inventory", "--points", "2", "--learned", "1", "--json"]) == 0
    learned = json.loads(capsys.readouterr().out)["learned"][0]
    assert learned["values"] == [-x for x in learned["J_g"]] and learned["limit"] == -learned["b"] > 0


@pytest.mark.parametrize("single", ["prefer", "never"])
def test_no_report_shows_an_alarming_number_without_its_sentence(single: Any, tmp_path: Path) -> None:
    sol = cl.solve(cl.zoo.inventory(), cl.RegularisedCNPGPD(K=300, N=20), single=single, out=tmp_path / "run")
    page = cl.report(tmp_path / "run").read_text("utf-8")
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    needed = has_alarming_numbers(sol.certificate.asdict())
    assert needed and all(sentence in text for sentence in needed)
    shown = [sentence.removeprefix("Limits: ").rstrip(".") for sentence in sol.certificate.sentences]
    assert all(sentence in text for sentence in shown), "the same sentences"
    assert "never below 0" not in text and "worst slack" not in text.lower()
    assert "lost sales 1.65" in text and "≤ 1.65" in text, "a cost is shown as a cost"


def test_reports_of_version_0_1_say_it_too(tmp_path: Path) -> None:
    """Its certificates have no names and no signs; the sentences come from what they have."""
    old = cl.run.load(Path(__file__).parents[1] / "data/version_0_1/run_exact").certificate
    assert old is not None and worst_slack(old) < 0 and old.names is None
    assert NOT_EACH in str(old) and SAMPLE_ACTIONS in repr(old) and "g0: 1e-08 ≥ 0 (slack 1e-08)" in str(old)


def test_a_certificate_says_what_for_whom_how_sure_and_what_not() -> None:
    cmdp = cl.zoo.inventory()
    proven = cl.certify(cmdp, cl.optimum(cmdp).policy)
    assert "CERTIFIED: every limit is met, proven for the numbers as stored." in str(proven)
    assert "lost sales: 1.65 ≤ 1.65 (slack 3." in str(proven) and "this model as stored" in str(proven)
    assert "expected discounted sum of each cost or utility (gamma = 0.95, infinite horizon)" in str(proven)
    sampled = cl.certify(cl.zoo.two_state(), np.tile([0.3, 0.7], (2, 1)), evidence="samples", budget=2e5)
    assert "a policy that breaks one gets this verdict with probability at most 0.01." in str(sampled)
    assert "utility: estimated 1." in str(sampled) and "differs from this simulator." in str(sampled)
    broken = cl.certify(cmdp, np.eye(cmdp.A)[np.zeros(cmdp.S, int)])
    assert broken.verdict == "VIOLATED" and re.search(r"lost sales: \S+ > 1\.65 \(slack -", str(broken))
    assert "Not covered" not in str(broken)


def test_limits_as_they_were_written() -> None:
    assert limit_words("waiting", -39.98, -40.0, cost=True) == "waiting: 39.98 ≤ 40 (slack 0.02)"
    assert limit_words("waiting", -41.0, -40.0, cost=True) == "waiting: 41 > 40 (slack -1)"
    assert limit_words("speed", 3.0, 2.5, cost=False, estimated=True) == "speed: estimated 3 ≥ 2.5 (slack 0.5)"
    assert limit_words("none", 0.0, -1.0, cost=True) == "none: 0 ≤ 1 (slack 1)", "not −0"
    assert limit_words("far", -np.inf, -2.0, cost=True) == "far: no finite value, limit 2"
    per_episode = scope_words("this", Criterion("total", 1.0, 500), "one network")
    assert "expected sum of each cost or utility over one episode of at most 500 steps." in per_episode


def test_signs_are_remembered(tmp_path: Path) -> None:
    """In a model and its file, in a statement, and through limits that change; old files have none."""
    P, r, one = np.ones((1, 1, 1)), np.zeros((1, 1)), np.ones((1, 1))
    both = cl.CMDP(P, r, g=one, b=0.5, cost=one, limit=9.0, gamma=0.5, names=["good", "bad"])
    both.save(tmp_path / "both.npz")
    again = cl.CMDP.load(tmp_path / "both.npz")
    assert again.costs == both.costs == both.replace(b=[0.0, -8.0]).costs == (False, True)
    assert "good: 2 ≥ 0.5 (slack 1.5); bad: 2 ≤ 9 (slack 7)." in str(cl.certify(again, [[1.0]]))
    arrays: dict[str, Any] = dict(np.load(tmp_path / "both.npz"))
    np.savez(tmp_path / "old.npz", **{k: v for k, v in arrays.items() if k != "costs"})
    assert cl.CMDP.load(tmp_path / "old.npz").costs == (False, False)
    arrays["costs"] = np.array([1.0, 2.0])
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(cl.InputError, match="costs must be true or false for each of 2 constraints"):
        cl.CMDP.load(tmp_path / "bad.npz")


def test_names_cannot_deceive_in_a_terminal() -> None:
    P, r, one = np.ones((1, 1, 1)), np.zeros((1, 1)), np.ones((1, 1))
    cmdp = cl.CMDP(P, r, g=one, b=5.0, gamma=0.5, names=["\x1b[2Jfine\nCERTIFIED: all is well"])
    cert = cl.certify(cmdp, [[1.0]])
    assert "\x1b" not in str(cert) and "\nCERTIFIED" not in str(cert) and str(cert).startswith("VIOLATED: ")
    assert replace(cert, names=None) != cert


def test_the_multipliers_of_a_learner_are_not_called_prices() -> None:
    """Only the multipliers of an optimum say what a limit costs; those of a simulator's learner say nothing of it."""
    said = {"names": ["waiting"], "costs": [True], "b": [-40.0], "J_g": [-30.0], "slack": [10.0], "lam": [2.0]}
    assert limits_as_written(said | {"evidence": "exact"})[0]["price"] == 2.0
    assert "price" not in limits_as_written(said | {"evidence": "samples"})[0]
    assert "price" not in limits_as_written(said | {"evidence": "exact", "bound": None})[0]
    assert prices_in_words(said | {"evidence": "exact"}) and not prices_in_words(said | {"evidence": "samples"})
