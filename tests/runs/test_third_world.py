"""A third world: logged data of a bandit, solved and certified through `cl.solve` without a change in the library.

What a new kind of problem needs is one adapter, `LoggedWorld`: a sampler for the algorithm, candidates and episodes for
the certificate, and plain data for the run folder. The data is a log of (action, reward, cost) rows, collected with a
known behaviour policy; a policy is judged by its importance-weighted rows, which are bounded and unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import clearance as cl
from clearance.certificates.best_mixture import spread_evenly
from clearance.certificates.certificate import Certificate, EvidenceKind
from clearance.certificates.episode_source import Batch
from clearance.certificates.sequential_test import gather
from clearance.certificates.statistical_certificate import certificate_from
from clearance.core.arrays import Array
from clearance.core.atomic_files import digest, save_npz
from clearance.core.errors import InputError
from clearance.core.random_streams import fold, key_of
from clearance.finite.mixture import Mixture
from clearance.finite.softmax_policy import SoftmaxPolicy, softmax
from clearance.learning.draws import Draws
from clearance.learning.sampler import Sampler
from clearance.runs.worlds.dispatch import world_of
from clearance.runs.worlds.world import Choice, PolicyDescription, ProblemDescription, Settled, Task, World

LEARN = 2**40
HALF = 0.5  # of the log is for learning, the rest for the certificate


@dataclass(frozen=True, eq=False)
class LoggedBandit:
    """Rows (action, reward, −cost) drawn by `behaviour` [A]; the mean cost of a policy must not exceed `limit`."""

    actions: Any
    h: Array  # [n, 2], in [0, 1] × [−1, 0]
    behaviour: Array
    limit: float
    gamma: float = 0.0
    names: tuple[str, ...] = ("cost",)
    costs: tuple[bool, ...] = (False,)

    @property
    def b(self) -> Array:
        return np.array([-self.limit])

    @property
    def I(self) -> int:  # noqa: E743
        return 1

    @property
    def signal_ranges(self) -> tuple[float, Array]:
        return 1.0, np.ones(1)


def log_of(seed: int, n: int, reward: Array, cost: Array, limit: float) -> LoggedBandit:
    """A log of a bandit whose truth is known: rewards and costs are coins with these means."""
    rng, A = np.random.default_rng(seed), len(reward)
    actions = rng.integers(A, size=n)
    h = np.column_stack([rng.uniform(size=n) < reward[actions], -1.0 * (rng.uniform(size=n) < cost[actions])])
    return LoggedBandit(actions, h.astype(float), np.full(A, 1 / A), limit)


@dataclass(frozen=True, eq=False)
class LoggedSampler(Sampler):
    """Draws of logged rows, weighted by π(a)/behaviour(a)."""

    stepwise: ClassVar[bool] = False

    log: LoggedBandit
    policy: SoftmaxPolicy

    @property
    def statement(self) -> LoggedBandit:
        return self.log

    def batch(self, key: np.uint64, memory: Any, theta: Array, N: int) -> tuple[Draws, Array, Any, int]:
        rows = np.random.default_rng(int(key)).integers(int(HALF * len(self.log.actions)), size=N)
        pi, a = self.policy.pi(theta)[0], self.log.actions[rows]
        ratio = pi[a] / self.log.behaviour[a]
        J_hat = (ratio[:, None] * self.log.h[rows]).mean(0)
        score = np.eye(len(pi))[a] - pi
        return Draws(ratio / ratio.sum(), score, self.log.h[rows] - J_hat, a), J_hat, memory, N


@dataclass(frozen=True, eq=False)
class LoggedEpisodes:
    """One estimate of J from each logged row of the second half; a row is used once."""

    log: LoggedBandit
    mixture: Mixture
    used: list[int]

    @property
    def pi(self) -> Array:
        return self.mixture.weights @ self.mixture.pi[:, 0]

    @property
    def bounds(self) -> tuple[Array, Array]:
        most = float((1 / self.log.behaviour).max())
        return np.array([0.0, -most]), np.array([most, 0.0])

    @property
    def bias(self) -> Array:
        return np.full(2, 1e-12)

    @property
    def episode_steps(self) -> float:
        return 1.0

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        first = int(HALF * len(self.log.actions)) + self.used[0]
        rows = slice(first, first + n)
        self.used[0] += n
        assert rows.stop <= len(self.log.actions)
        a = self.log.actions[rows]
        return (self.pi[a] / self.log.behaviour[a])[:, None] * self.log.h[rows], np.zeros(n, np.int64), n


@dataclass(frozen=True, eq=False)
class LoggedCandidates:
    """Policies to choose from, which share the rows that are left."""

    log: LoggedBandit
    pi: Array
    used: list[int]

    @property
    def count(self) -> int:
        return len(self.pi)

    def mixture(self, weights: Array) -> Mixture:
        """One table: a bandit has no episodes to draw a component for."""
        return Mixture.single(np.einsum("m,msa->sa", weights / weights.sum(), self.pi))

    def episodes(self, mixture: Mixture) -> LoggedEpisodes:
        return LoggedEpisodes(self.log, mixture, self.used)


@dataclass(frozen=True, eq=False)
class LoggedWorld(World):
    """The adapter."""

    problem: LoggedBandit

    @property
    def statement(self) -> LoggedBandit:
        return self.problem

    def evidence(self, asked: EvidenceKind | None, exact_J: bool | None) -> EvidenceKind:
        if asked == "exact" or exact_J:
            raise InputError("a log has no exact values: leave out evidence and exact_J")
        return "samples"

    def default_method(self) -> Any:
        return cl.CNPGPD(K=400, N=500, eta1=2.0, eta2=0.5, kappa=0.03, lam_max=20.0, direction=cl.Tabular())

    def make_sampler(self, method: Any, policy: Any, sampler: Any, seed: int) -> LoggedSampler:
        return LoggedSampler(self.problem, softmax(1, len(self.problem.behaviour)) if policy is None else policy)

    def settle(self, task: Task, margin: None) -> Settled:
        return Settled(task.sampler, task.method, 20.0, fold(key_of(task.seed), LEARN))

    def search_budget(self, task: Task, spent: int) -> float:
        return (1 - HALF) * len(self.problem.actions)

    def sampled_choice(self, settled: Settled, run: Any, margin: None, budget: float) -> Choice:
        index = run.trace.rows_of(spread_evenly(len(run.trace), 5, first=0.6))
        return Choice(LoggedCandidates(self.problem, settled.sampler.policy.pi(run.trace.theta[index]), [0]))

    def certify_policy(self, policy: Any, *, delta: float, budget: float, seed: int, **_: Any) -> Certificate:
        source = LoggedEpisodes(self.problem, policy, [0])
        seen = gather(source, self.problem.b, delta, fold(key_of(seed), 1), min(budget, self.search_budget(None, 0)))  # type: ignore[arg-type]
        return certificate_from(seen, self.problem.b, delta, components=policy.M, scope=self.scope(policy))

    def scope(self, policy: Mixture) -> str:
        return "the log's own distribution of contexts; one policy"

    def last_policy(self, settled: Settled, state: Any) -> Mixture:
        return Mixture.single(settled.sampler.policy.pi(state.theta))

    def describe(self) -> ProblemDescription:
        arrays = {"actions": self.problem.actions, "h": self.problem.h, "limit": np.float64(self.problem.limit)}
        return ProblemDescription(digest("log", arrays), "problem.npz", lambda path: save_npz(path, arrays))

    def describe_policy(self, policy: SoftmaxPolicy) -> PolicyDescription:
        return PolicyDescription({"kind": "tabular"})

    def describe_sampler(self, sampler: LoggedSampler) -> dict[str, Any]:
        return {"name": "LoggedSampler"}

    def restore_policy(self, folder: Path, data: dict[str, Any]) -> SoftmaxPolicy:
        return softmax(1, len(self.problem.behaviour))

    def restore_sampler(self, data: dict[str, Any], policy: SoftmaxPolicy) -> LoggedSampler:
        return LoggedSampler(self.problem, policy)


@pytest.fixture(autouse=True)
def _registered() -> None:
    world_of.register(LoggedBandit, LoggedWorld)


REWARD, COST = np.array([0.9, 0.5, 0.1]), np.array([0.8, 0.3, 0.05])


def truth(policy: Mixture) -> tuple[float, float]:
    pi = policy.weights @ policy.pi[:, 0]
    return float(pi @ REWARD), float(pi @ COST)


def test_a_third_world_is_solved_and_certified() -> None:
    """Several logs: every certified policy keeps the limit in truth, and most logs are enough for a good one."""
    limit, certified = 0.4, 0
    best = 0.5 + (limit - 0.3) / 0.5 * 0.4  # the optimum mixes the two upper arms
    for seed in range(5):
        sol = cl.solve(log_of(seed, 200_000, REWARD, COST, limit), seed=seed)
        reward, cost = truth(sol.policy)
        if sol.certificate.verdict == "CERTIFIED":
            certified += 1
            assert cost <= limit and reward >= 0.85 * best
        assert sol.certificate.evidence == "samples" and "log" in sol.certificate.scope
    assert certified >= 4


def test_a_limit_below_every_arm_is_not_certified() -> None:
    sol = cl.solve(log_of(1, 40_000, REWARD, COST, 0.01), seed=0)
    assert sol.certificate.verdict != "CERTIFIED"
    assert cl.certify(sol.problem, sol.policy).verdict == "VIOLATED"


def test_its_run_folder_is_resumed_bit_identical(tmp_path: Path) -> None:
    log = log_of(3, 60_000, REWARD, COST, 0.4)
    whole = cl.solve(log, seed=3)
    calls = iter(range(100))

    def interrupt(*_: Any) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cl.solve(log, seed=3, out=tmp_path / "run", checkpoint_every=50, progress=interrupt)
    again = cl.resume(tmp_path / "run", log)
    assert np.array_equal(again.policy.pi, whole.policy.pi) and again.certificate == whole.certificate
    assert np.array_equal(again.trace.theta, whole.trace.theta)
    with pytest.raises(InputError, match="another problem"):
        cl.resume(tmp_path / "run", replace(log, limit=0.5))


def test_what_no_world_knows_is_refused() -> None:
    with pytest.raises(InputError, match="must be a CMDP or a simulator"):
        cl.solve(object())
    with pytest.raises(InputError, match="no exact values"):
        cl.solve(log_of(0, 1000, REWARD, COST, 0.4), evidence="exact")
