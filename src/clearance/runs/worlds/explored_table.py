"""Count the transitions of an environment with finitely many observations, and draw its episodes for certificates."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.certificates.episode_source import Batch
from clearance.core.arrays import Array
from clearance.core.random_streams import fold
from clearance.exact.estimated_model import EstimatedModel, estimate_model
from clearance.exact.optimistic_values import OptimisticValues
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import occupancy
from clearance.finite.mixture import Mixture
from clearance.finite.samplers.finite_episodes import MixtureEpisodes, out_of_bounds_error
from clearance.finite.softmax_policy import SoftmaxPolicy
from clearance.runs.worlds.planned_estimators import POWERS
from clearance.simulator.gymnasium_envs.tabular_problem import TabularProblem

SURE = 1e9  # count of the assumed transitions to the end: nearly certain
LONGER = 4.0  # walks are this many times longer than 1/(1 − γ), to find states that are far away


class TableMemory(NamedTuple):
    """All counts of an `ExploredTable` as arrays, for the checkpoints of a run.

    transitions  rows (pair, next state, count) [n, 3], in the order in which they were first observed
    """

    transitions: NDArray[np.int64]
    total: Array
    squares: Array
    starts: Array


@dataclass(eq=False)
class ExploredTable:
    """Counts of the observed transitions and signals of an environment with finitely many states.

    transitions     {(pair, next state): count}, where pair = s·A + a
    total, squares  the sums Σ h and Σ h² of the signals at every pair [S·A, 1+I]
    starts          counts of the first states [S]
    """

    problem: TabularProblem
    policy: SoftmaxPolicy
    transitions: dict[tuple[int, int], int] = field(default_factory=dict)
    total: Array = field(init=False)
    squares: Array = field(init=False)
    starts: Array = field(init=False)

    def __post_init__(self) -> None:
        S, A, H = self.problem.S, self.problem.A, 1 + self.problem.statement.I
        self.total, self.squares, self.starts = np.zeros((S * A, H)), np.zeros((S * A, H)), np.zeros(S)

    @property
    def available(self) -> NDArray[np.bool_]:
        return np.ones((self.problem.S, self.problem.A), bool)

    @property
    def high(self) -> Array:
        return self.problem.bounds[1]

    @property
    def powers(self) -> tuple[float, ...]:
        return POWERS

    @property
    def most(self) -> Array:
        """The largest discounted sums of an episode [1+I] that the declared bounds allow."""
        forever = np.maximum(self.high, 0.0) / (1 - self.problem.statement.gamma)
        return forever if self.problem.totals is None else np.minimum(forever, self.problem.totals[1])

    def lowest(self, pi: Array) -> None:
        """Return None: signals may be random, so the smallest signals of the policy π are not known."""
        return None

    @property
    def memory(self) -> TableMemory:
        rows = [(pair, after, n) for (pair, after), n in self.transitions.items()]
        known = np.array(rows, np.int64).reshape(-1, 3)
        return TableMemory(known, self.total.copy(), self.squares.copy(), self.starts.copy())

    def recall(self, memory: TableMemory) -> None:
        """Replace all counts by those of a checkpoint."""
        self.transitions = {(pair, after): n for pair, after, n in memory.transitions.tolist()}
        self.total, self.squares, self.starts = memory.total.copy(), memory.squares.copy(), memory.starts.copy()

    def count(self, pair: int, after: int, h: Array) -> None:
        self.transitions[pair, after] = self.transitions.get((pair, after), 0) + 1
        self.total[pair] += h
        self.squares[pair] += h * h

    def like(self, h: Array) -> CMDP:
        """Return a model with the states and actions of the problem and the signals h [S·A, 1+I].

        Its transitions are placeholders: every state leads to itself.
        """
        S, A, s = self.problem.S, self.problem.A, self.problem.statement
        stay = sparse.csr_array((np.ones(S * A), (np.arange(S * A), np.arange(S * A) // A)), shape=(S * A, S))
        signals = h.T.reshape(1 + s.I, S, A)
        return CMDP(stay, signals[0], signals[1:], s.b, gamma=s.gamma, names=s.names, order="state")

    def model(self) -> EstimatedModel:
        """Return the model estimated from the counts.

        After the end of an episode, all signals are 0. States that were never visited lead directly to the end, so that
        they do not widen the range of any estimate.
        """
        S, A, end = self.problem.S, self.problem.A, self.problem.S - 1
        pairs = np.array(list(self.transitions), int).reshape(-1, 2)
        n = np.array(list(self.transitions.values()), float)
        met = self.starts > 0
        met[pairs[:, 1]] = True
        met[end] = False
        over = (np.flatnonzero(~met)[:, None] * A + np.arange(A)).ravel()
        rows, columns = np.append(pairs[:, 0], over), np.append(pairs[:, 1], np.full(len(over), end))
        counts = sparse.csr_array((np.append(n, np.full(len(over), SURE)), (rows, columns)), shape=(S * A, S))
        seen = np.maximum(np.asarray(counts.sum(axis=1)), 1.0).reshape(-1, 1)
        mean = self.total / seen
        scatter = np.sqrt(np.maximum(self.squares / seen - mean**2, 0.0))
        found = estimate_model(counts, self.starts, self.like(mean), self._lowest_signals)
        return EstimatedModel(found.cmdp, found.n, found.starts, scatter)

    @property
    def _lowest_signals(self) -> Array:
        """The signals [1+I] per step that the estimated model assumes for state-action pairs that were never tried."""
        low, totals = self.problem.bounds[0], self.problem.totals
        return low if totals is None else np.maximum(low, (1 - self.problem.statement.gamma) * totals[0])

    def walk(self, key: np.uint64, pi: Array, steps: float) -> int:
        """Draw episodes by the policy π [S, A] for about `steps` steps; return the steps taken.

        The transitions of these episodes are counted. An episode is cut off after each step with probability (1 −
        γ)/LONGER.
        """
        taken, episode, rest = 0, 0, (1 - self.problem.statement.gamma) / LONGER
        while taken < steps:
            rng = np.random.default_rng(int(fold(key, episode)))
            T = int(rng.geometric(rest))
            taken += sum(1 for _ in self.follow(rng, int(fold(key, episode)) >> 1, pi, T))
            episode += 1
        return taken

    def walk_hopeful(self, key: np.uint64, hopes: OptimisticValues, steps: float) -> int:
        """Draw episodes in which each action has the largest optimistic value; return the environment steps taken.

        Each step is counted and updates `hopes`, the optimistic values. After an episode, `hopes` is updated once more
        at its state-action pairs, from the last pair to the first: rewards at the end of the episode then change the
        values at its start. Episodes are cut off as in `walk`.
        """
        taken, episode, rest, end = 0, 0, (1 - self.problem.statement.gamma) / LONGER, self.problem.S - 1
        while taken < steps:
            seed = int(fold(key, episode))
            s, path = self.problem.reset(seed >> 1), []
            self.starts[s] += 1
            for _ in range(int(np.random.default_rng(seed).geometric(rest))):
                a = hopes.action(s)
                after, h = self.problem.step(a)
                self.count(s * self.problem.A + a, after, h)
                hopes.observe(s, a, h, after)
                path.append((s, a))
                if after == end:
                    break
                s = after
            for pair in reversed(path):
                hopes.refresh(*pair)
            taken, episode = taken + len(path), episode + 1
        return taken

    def follow(self, rng: np.random.Generator, seed: int, pi: Array, T: int) -> Any:
        """Run one episode of the policy π [S, A], of at most T steps.

        Count each step, and yield (state, signals [1+I], next state).
        """
        problem, A, end, cdf = self.problem, self.problem.A, self.problem.S - 1, np.cumsum(pi, axis=1)
        s = problem.reset(seed)
        self.starts[s] += 1
        for u in rng.random(T).tolist():
            a = min(int(np.searchsorted(cdf[s], u * cdf[s, -1], side="right")), A - 1)
            after, h = problem.step(a)
            self.count(s * A + a, after, h)
            yield s, h, after
            if after == end:
                return
            s = after

    def episodes(self, mixture: Mixture, base: Array | None, power: float) -> TableEpisodes:
        return TableEpisodes(self, mixture, base, power)


@dataclass(frozen=True, eq=False)
class TableEpisodes:
    """A source of bounded unbiased estimates of J, drawn by stepping an environment.

    The estimator is that of `finite_episodes`. `base` [S, 1+I], or [M, S, 1+I] with one table for each component, is
    its control variate. Episodes continue with probability γ^power at each step.
    """

    explored: ExploredTable
    mixture: Mixture
    base: Array | None
    power: float

    @cached_property
    def _like(self) -> MixtureEpisodes:
        """The same estimator as this one, but on a placeholder model with the same states and actions.

        Only its bounds are used.
        """
        like = self.explored.like(np.zeros_like(self.explored.total))
        return MixtureEpisodes(like, self.mixture, self.base, self.explored.problem.bounds, self.power)

    @property
    def bounds(self) -> tuple[Array, Array]:
        """The bounds (low, high) of every estimate of J [1+I]."""
        return self._range

    @cached_property
    def _range(self) -> tuple[Array, Array]:
        """The bounds (low, high) of an episode's estimate X of J [1+I], as in `finite_episodes`.

        If the user declared bounds of the summed signals h, they are used too: for weights w_t that decrease from
        w_0 = 1, the weighted sum Σ_t w_t h_t lies within the declared bounds. The rest of X consists of values of the
        control variate, weighted as in `finite_episodes`.
        """
        (low, high), totals, like = self._like.bounds, self.explored.problem.totals, self._like
        if totals is None:
            return low, high
        gamma, V = like.cmdp.gamma, like.table
        least, most = np.minimum(V.min((0, 1)), 0.0), np.maximum(V.max((0, 1)), 0.0)
        many = (1 - like.q) * gamma / like.q * like.full
        lower = totals[0] + np.minimum(gamma * least, -many * most) - like.rounding
        upper = totals[1] + np.maximum(gamma * most, -many * least) + like.rounding
        return np.maximum(low, lower), np.minimum(high, upper)

    @property
    def bias(self) -> Array:
        return self._like.bias

    @property
    def episode_steps(self) -> float:
        return self._mean_steps

    @cached_property
    def _mean_steps(self) -> float:
        """The mean number of steps of an episode on the estimated model: Σ_t q^t P(not ended at time t).

        Here q is the probability that an episode continues at each step. A tenth is added for the error of the model;
        the result is at most 1/(1 − q).
        """
        like, model = self._like, self.explored.model().cmdp.replace(gamma=self._like.q)
        alive = [occupancy(model, pi)[:-1].sum() * like.episode_steps for pi in self.mixture.pi]
        return float(min(1.1 * (self.mixture.weights @ alive) + 1.0, like.episode_steps))

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        """Draw the episodes with the indices `begin` to `begin` + n − 1 of the random stream `key`.

        Return their estimates of J [n, 1+I], the mixture component of each, and the environment steps taken. Raise an
        error if a signal or a sum is out of its declared bounds.
        """
        like, (low, high) = self._like, self.explored.problem.bounds
        X, component, steps = np.zeros((n, len(low))), np.zeros(n, np.int64), 0
        gamma, tables, weights = like.cmdp.gamma, like.table.copy(), self.mixture.weights
        tables[:, -1] = 0.0
        least, most = self.explored.problem.totals or (np.full(len(low), -np.inf), np.full(len(low), np.inf))
        for i in range(n):
            stream = fold(key, begin + i)
            rng = np.random.default_rng(int(stream))
            T, m = int(rng.geometric(1 - like.q)), int(rng.choice(len(weights), p=weights / weights.sum()))
            component[i], weight, total, V = m, 1.0, np.zeros(len(low)), tables[m % len(tables)]
            for t, (s, h, after) in enumerate(self.explored.follow(rng, int(stream) >> 1, self.mixture.pi[m], T)):
                total += h
                slip = 2.0**-50 * (t + 1)
                above, below = np.any(total * (1 - slip) > most), np.any(total * (1 - slip) < least)
                if np.any(h < low) or np.any(h > high) or above or below:
                    raise out_of_bounds_error(begin + i, t)
                if t == 0:
                    X[i] = V[s]
                X[i] += weight * (h + gamma * V[after] - V[s])
                weight *= gamma / like.q
                steps += 1
        return X, component, steps
