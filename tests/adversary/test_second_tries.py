"""Second tries: repeated tests in one folder have an error of at most δ in all, and no test is made twice."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import seal
from learners import KINDS, learn, pole
from runs import Bomb, bits, cli
from scipy.stats import binom

import clearance as cl
from clearance.certificates import ledger as ledgers
from clearance.certificates.candidate_search import LEVELS, CandidateSearch
from clearance.certificates.episode_source import Batch
from clearance.certificates.ledger import Ledger, run_test, share_of
from clearance.certificates.sequential_test import gather, slack_per_sd
from clearance.core.arrays import Array
from clearance.core.atomic_files import digest
from clearance.core.errors import InputError
from clearance.core.folder_lock import BusyError
from clearance.core.random_streams import fold, key_of
from clearance.finite.samplers.finite_episodes import MixtureEpisodes
from clearance.runs.ledger_file import LedgerFolder
from clearance.runs.worlds.dispatch import world_of
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Design, Normaliser

DELTA, TRIES, BUDGET = 0.2, 30, 1500.0


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ------------------------------------------------------------------------------------------------- stubborn users


@dataclass(frozen=True)
class Coin:
    """Episodes of one step that cost 1 with probability p, else 0."""

    p: float
    bounds: tuple[Array, Array] = (np.array([0.0, -1.0]), np.array([1.0, 0.0]))
    bias: Array = field(default_factory=lambda: np.zeros(2))
    episode_steps: float = 1.0

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        cost = np.random.default_rng(int(fold(key, begin))).random(n) < self.p
        return np.stack([np.zeros(n), np.where(cost, -1.0, 0.0)], 1), np.zeros(n, np.int64), n


class Memory(Ledger):
    """A ledger that is not stored."""

    def load(self) -> Ledger:
        return self


def shop_for_seeds(user: int) -> bool:
    """Without a ledger: other seeds at the whole of δ until one passes."""
    keys = (fold(key_of(user), t) for t in range(TRIES))
    return any(gather(OVER, LIMIT, DELTA, key, BUDGET).verdict == "CERTIFIED" for key in keys)


def try_again(user: int, policies: int) -> bool:
    """In a ledger: other seeds and more budget, with so many policies in turn."""
    book, budget = Memory(), [0.0] * policies
    for t in range(TRIES):
        budget[t % policies] += BUDGET
        how = budget[t % policies], f"policy {t % policies}" if policies < TRIES else None
        if run_test(OVER, LIMIT, DELTA, fold(key_of(user), t), *how, book).seen.verdict == "CERTIFIED":
            return True
    assert book.spent <= DELTA and len(book.shares) == policies
    return False


OVER, LIMIT = Coin(0.5 + 1e-6), np.array([-0.5])  # the cost is 0.500001, the limit 0.5


@pytest.mark.parametrize("users", [10, pytest.param(400, marks=pytest.mark.slow)])
def test_stubborn_users(users: int) -> None:
    """False certificates among users who try 30 times: at most δ of them with the ledger, and more without it.

    One test of 1,500 episodes is wrong far less often than δ = 0.2; 30 of them are not: 37 % of 2,000 users got a false
    certificate without a ledger, 3 % with one. With 400 users, one that let through 37 % would be found out with
    probability 0.998, and one that keeps to δ is accused with probability 1e-6.
    """
    without = sum(map(shop_for_seeds, range(users)))
    assert without > DELTA * users
    for policies in (1, 3, TRIES):  # one policy, a few in turn, and a rule that is another one each time
        false = sum(try_again(user, policies) for user in range(users))
        print(f"{users} users, {policies} policies: {false} false with the ledger, {without} without")
        assert false <= binom.ppf(1 - 1e-6, users, DELTA)


def test_shares_sum_to_delta_and_leave_room() -> None:
    shares = np.array([share_of(n) for n in range(1, 100_001)])
    assert shares[0] == 0.8 and np.all(np.diff(shares) < 0) and shares.sum() <= 1
    assert 1 - shares.sum() == pytest.approx(1 / 400_001, rel=1e-6)
    assert sum(LEVELS) <= 1 + 1e-12 and LEVELS == (0.6, 0.2, 0.1, 0.1)
    more = [(slack_per_sd(1, share_of(n) * 0.01) / slack_per_sd(1, 0.01)) ** 2 for n in (1, 2)]
    assert more == pytest.approx([1.05, 1.5], abs=0.05)  # episodes, against one test at the whole of δ = 0.01


def test_without_a_folder_the_whole_of_delta_is_spent() -> None:
    """Each time: nothing is counted."""
    problem, policy, how = case("finite")
    for seed in (0, 1):
        found = cl.certify(problem, policy, budget=3e3, seed=seed, **how)
        assert found.level == found.spent == how["delta"]


# ------------------------------------------------------------------------------------------------- one long test


def network(problem: Any) -> NetworkMixture:
    policy = Design(hidden=(8,)).fitted(problem.obs_shape, problem.action, 3)
    return NetworkMixture.single(policy, policy.init(), Normaliser.identity(policy.inputs))


@cache
def case(kind: str) -> tuple[Any, Any, dict[str, Any]]:
    """A problem, a policy that does not pass soon, and two budgets."""
    if kind == "finite":
        cmdp = cl.zoo.two_state()
        policy = np.full((cmdp.S, cmdp.A), 1 / cmdp.A)
        at = cl.certify(cmdp, policy, compare=False).J_g[0]
        return cmdp.replace(b=[at - 1e-3]), policy, {"evidence": "samples", "delta": 0.1}
    problem = KINDS[kind]()
    return problem, network(problem), {"delta": 0.1}


def ledger_of(folder: str | Path) -> list[dict[str, Any]]:
    return json.loads(Path(folder, "ledger.json").read_text())["shares"]


@pytest.mark.parametrize("kind", ["finite", "Gymnasium", "JAX"])
def test_a_continued_test_is_one_long_test(kind: str) -> None:
    """Bit for bit: the evidence, the certificate, and what is stored; whatever the budgets between and later seeds."""
    problem, policy, how = case(kind)
    each = 20 if kind == "Gymnasium" else 40
    first, last = 60 * each, 200 * each
    whole = cl.certify(problem, policy, budget=last, seed=4, out="whole", **how)
    part = cl.certify(problem, policy, budget=first, seed=4, out="parts", **how)
    assert part.verdict == "UNDECIDED" or kind != "finite"
    for budget in (first, 1.37 * first, last):
        again = cl.certify(problem, policy, budget=budget, seed=9, out="parts", **how)
    assert again == whole and ledger_of("parts") == ledger_of("whole")
    assert len(ledger_of("parts")) == 1 and whole.level == whole.spent == share_of(1) * 0.1
    assert "test 1 of this folder, at level 0.08 of δ = 0.1" in whole.message
    assert kind != "finite" or again.episodes > part.episodes


def test_a_lower_budget_gives_the_stored_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, policy, how = case("finite")
    found = cl.certify(problem, policy, budget=2e4, out="tests", **how)
    monkeypatch.setattr(MixtureEpisodes, "draw", Bomb(MixtureEpisodes.draw, 1, AssertionError))
    assert cl.certify(problem, policy, budget=3e3, seed=7, out="tests", **how) == found


def test_what_opens_a_share() -> None:
    """Another policy, another limit, another δ, other bounds, and every rule; the first test then continues."""
    problem, policy, how = case("finite")

    def test(policy: Any = policy, problem: Any = problem, **more: Any) -> tuple[int, float]:
        cert = cl.certify(problem, policy, **{"budget": 3e3, "out": "tests"} | how | more)
        assert cert.spent == sum(share["level"] for share in ledger_of("tests")) < 0.1
        return len(ledger_of("tests")), cert.level or 0.0

    other = policy + np.array([1e-9, -1e-9])
    assert test() == (1, share_of(1) * 0.1)
    assert test(other) == (2, share_of(2) * 0.1)
    assert test(problem=problem.replace(b=problem.b - 1e-9)) == (3, share_of(3) * 0.1)
    assert test(delta=0.05) == (4, share_of(4) * 0.05)
    assert test(bounds=([-9, -9], [9, 9])) == (5, share_of(5) * 0.1)
    assert test(lambda s: 0)[0] == 6 and test(lambda s: 0)[0] == 7
    assert test(budget=2e4) == (7, share_of(1) * 0.1)
    assert json.loads(Path("tests/certificates/000001.json").read_text())["episodes"] > 500
    assert cl.run.load("tests").damaged == ()


def test_the_streams_of_two_shares_differ() -> None:
    """A policy that was chosen after a look at one test must not be tested on the same random numbers."""
    problem, policy, how = case("finite")
    for given in (policy, policy + np.array([1e-12, -1e-12])):
        cl.certify(problem, given, budget=3e3, out="tests", **how)
    keys = [share["trials"][0]["key"] for share in ledger_of("tests")]
    assert len(set(keys)) == 2


# ------------------------------------------------------------------------------------------------- kills


def dying(function: Any, n: int) -> Any:
    """A method that is interrupted at its n-th call."""
    calls = iter(range(1, n))

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    return call


def test_a_kill_gives_no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every draw and every write: the share is open before the first draw, and the same test is continued."""
    problem, policy, how = case("finite")
    how: dict[str, Any] = how | {"budget": 8e3}
    whole = cl.certify(problem, policy, out="whole", **how)
    draws, writes = ((MixtureEpisodes, "draw"), (os, "replace"))
    for n, (where, name) in [*((n, draws) for n in (1, 2, 5)), *((n, writes) for n in (1, 2, 3, 4, 5, 8))]:
        with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
            m.setattr(where, name, dying(getattr(where, name), n))
            cl.certify(problem, policy, out=f"{name}{n}", **how)
        if name == "draw":
            assert len(ledger_of(f"{name}{n}")) == 1
        assert cl.certify(problem, policy, seed=3, out=f"{name}{n}", **how).spent == whole.spent
        if name == "draw":
            assert ledger_of(f"{name}{n}") == ledger_of("whole")


def test_an_interrupted_search_gets_a_new_share_where_its_samples_do_not_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as m, pytest.warns(UserWarning, match="not deterministic"):
        m.setattr(CandidateSearch, "run", Bomb(CandidateSearch.run, 1, KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            learn(pole(moody=True), "run")
    assert [share["level"] for share in ledger_of("run")] == [share_of(1) * 0.1]
    with pytest.warns(UserWarning, match="not deterministic"):
        found = cl.resume("run", pole(moody=True))
    assert {a.delta for a in found.attempts} <= {x * (share_of(2) * 0.1) for x in LEVELS}
    assert found.certificate.spent == pytest.approx((share_of(1) + share_of(2)) * 0.1)


# ------------------------------------------------------------------------------------------------- finished runs


def test_a_finished_run_is_not_tested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where each test would come out otherwise; its exit status is that of the stored verdict."""
    with pytest.warns(UserWarning, match="not deterministic"):
        solved = learn(pole(limit=1e-6, moody=True), "run")  # no policy can pass
    before = bits("run")
    monkeypatch.setattr(CandidateSearch, "run", Bomb(CandidateSearch.run, 1, AssertionError))
    again = cl.resume("run", pole(limit=1e-6, moody=True))
    assert again.recalled and again.certificate == solved.certificate and bits("run") == before
    assert (again.env_steps, again.state.k) == (solved.env_steps, solved.state.k)
    np.testing.assert_array_equal(again.policy.theta, solved.policy.theta)


@pytest.mark.parametrize(("budget", "status"), [("1e5", 0), ("1.2e4", 4)])
def test_the_command_line_says_that_a_run_is_finished(
    budget: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = f"solve two-state --evidence samples --delta 0.1 --budget {budget} --out run --json"
    first = cli(flags, capsys)
    again = cli("solve --resume run --json", capsys)
    assert again[0] == first[0] and json.loads(again[1])["verdict"] == json.loads(first[1])["verdict"]
    assert "run is finished: this is its stored result, nothing was tested again" in again[2]


def test_the_test_of_a_run_can_be_continued() -> None:
    """certify --out RUN continues the capital that the search gave its policy, at the same level."""
    problem = pole()
    solved = learn(problem, "run")
    trials = ledger_of("run")[0]["trials"]
    more = cl.certify(problem, solved.policy, delta=0.1, budget=1e5, out="run")
    assert len(ledger_of("run")) == 1 and more.level == solved.certificate.level
    same = [a.subject for a in solved.attempts if a.evidence.episodes == solved.certificate.episodes]
    assert more.level in [trial["level"] for trial in trials if trial["subject"] in same]
    assert more.episodes >= solved.certificate.episodes
    assert cl.run.load("run").certificate == solved.certificate and cl.run.load("run").damaged == ()
    solved.save("saved")
    assert ledger_of("saved")[0]["trials"] == trials


# ------------------------------------------------------------------------------------------------- damage and forgery


def begun() -> Any:
    problem, policy, how = case("finite")
    return lambda budget=3e3, out="tests": cl.certify(problem, policy, budget=budget, out=out, **how)


def forge(path: Path, **changes: Any) -> None:
    """Alter the ledger, with hashes that fit: its own and that in the manifest."""
    data = json.loads(path.read_text()) | changes
    data.pop("sha256")
    path.write_text(json.dumps(data | {"sha256": digest(data)}))
    seal(path.parent)


def alter(path: Path, how: str) -> None:
    shares = json.loads(path.read_text())["shares"]
    if how == "deleted":
        path.unlink()
    elif how == "cut off":
        path.write_text(path.read_text()[:-100])
    elif how == "emptied":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"shares": []}))
    elif how == "older":
        shutil.copy("older.json", path)
    elif how == "raised level":
        shares[0]["level"] = shares[0]["trials"][0]["level"] = 0.1
        forge(path, shares=shares)
    elif how == "other capital":
        shares[0]["trials"][0]["state"]["up"][1]["log_prior"][0] += 9.0
        forge(path, shares=shares)
    else:
        forge(path, shares={"wrong": "type"})


@pytest.mark.parametrize(
    "how", ["deleted", "cut off", "emptied", "older", "raised level", "other capital", "another shape"]
)
def test_a_ledger_that_was_tampered_with_is_refused(how: str) -> None:
    """With a line that says so, and nothing is tested."""
    test, path = begun(), Path("tests/ledger.json")
    test()
    shutil.copy(path, "older.json")
    test(8e3)
    alter(path, how)
    left = path.read_bytes() if path.exists() else None
    with pytest.raises(InputError, match="ledger"):
        test(2e4)
    assert (path.read_bytes() if path.exists() else None) == left


def test_a_run_without_its_ledger_is_not_resumed() -> None:
    cl.solve(cl.zoo.two_state(), evidence="samples", budget=1e4, delta=0.1, out="run")
    Path("run/ledger.json").unlink()
    with pytest.raises(InputError, match=r"ledger\.json: no such file; what was tested here is not known any more"):
        cl.resume("run")


def test_a_state_of_another_statement_is_refused() -> None:
    problem, policy, _ = case("finite")
    world = world_of(problem)
    source = MixtureEpisodes(problem, cl.Mixture.single(policy))
    seen = gather(source, problem.b, 0.1, key_of(0), 2e3)
    state = ledgers.describe_state(seen)
    assert ledgers.restore_state(state, 7, source, problem.b).episodes == seen.episodes
    assert world.identify(cl.Mixture.single(policy)) == world.identify(cl.Mixture.single(policy.copy()))
    for other in (state | {"episodes": 5}, state | {"up": []}, {}, state | {"parts": []}):
        with pytest.raises(InputError, match="cannot be continued"):
            ledgers.restore_state(other, 7, source, problem.b)
    with pytest.raises(InputError, match="cannot be continued"):
        ledgers.restore_state(state, 7, source, problem.b + 1e-9)


def test_a_copy_of_the_folder_continues_the_same_stream() -> None:
    """Copies are not seen, but they draw the same episodes."""
    test = begun()
    test()
    shutil.copytree("tests", "copy")
    assert test(8e3) == test(8e3, out="copy")


def test_two_processes_do_not_share_a_ledger() -> None:
    test = begun()
    test()
    with LedgerFolder("tests") as held:
        held.load()
        with pytest.raises(BusyError):
            test(2e4)


def test_wrong_folders_and_budgets_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, and nothing is written."""
    problem, policy, how = case("finite")
    Path("notes").mkdir()
    Path("notes/mine.txt").write_text("mine")
    Path("file").write_text("mine")
    for out, more, words in [
        ("notes", {}, "neither empty nor a folder with a ledger"),
        ("file", {}, "cannot write"),
        ("new", {"budget": 50}, "budget 50 is too small for 32 episodes"),
        ("new", {"evidence": "exact"}, "out keeps the tests by samples"),
    ]:
        with pytest.raises(InputError, match=words):
            cl.certify(problem, policy, **{"budget": 3e3, "out": out} | how | more)
    assert [p.name for p in Path("notes").iterdir()] == ["mine.txt"] and not Path("new").exists()
    cl.Mixture.single(policy).save("policy.npz")
    problem.save("model.npz")
    words = "certify model.npz policy.npz --evidence samples --budget 3e3 --delta 0.1 --out tests --json"
    status, out, _ = cli(words, capsys)
    assert status == 4 and json.loads(out)["level"] == share_of(1) * 0.1 and json.loads(out)["run"] == "tests"
