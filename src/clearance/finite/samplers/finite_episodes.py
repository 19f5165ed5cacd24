"""Bounded unbiased estimates of J from whole episodes, for certificates and selection.

    X = V̂(s_0) + Σ_{t<T} (γ/q)^t (h_t + γ V̂(s_{t+1}) − V̂(s_t)),      P(T > t) = q^t,      q = γ^power

E X = J for any table V̂. V̂ is zero, or holds a critic's values as control variate; if they are exact, only the noise
of the transitions remains. X lies in a known interval, unlike the plain geometric sum of Algorithm 2. A larger
power makes episodes shorter and the interval longer; for V̂ = V the variance per step is smallest near power 1.

Bounds of the signals h are declared. A value outside them raises an error that names the episode and the step, since no
certificate would hold then.

Random bits, weights and sums have finite precision, so E X = J holds up to `bias`, which certificates account for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.episode_source import Batch
from clearance.certificates.rule_watch import WatchedRule
from clearance.certificates.verdict_words import join_some
from clearance.core.arrays import Array
from clearance.core.compiled import episodes
from clearance.core.compiled.alias_tables import alias_cells, draw_error, geometric_tables, pack
from clearance.core.errors import InputError
from clearance.core.random_streams import fold
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture
from clearance.finite.samplers.algorithm2 import alias_tables, transition_error
from clearance.finite.samplers.path_ranges import Paths, forward_paths, path_range
from clearance.finite.samplers.transition_counts import TransitionCounts

NOT_COUNTED = TransitionCounts(np.zeros(0, np.uint32), np.zeros(0))
LONGEST = 2.0**40  # the largest 1/(1 − γ); with larger values episodes would practically never end


@dataclass(frozen=True, eq=False)
class MixtureEpisodes:
    """Episodes of a mixture on a finite model that is used only as a simulator. They give the estimate X of J.

    The docstring of the module defines X.

    base      the control variate V̂ [S, 1+I], or one for each component [M, S, 1+I]; None for zero
    declared  bounds (low, high) of the signals, each [1+I]; by default the model's own extremes
    power     the exponent in (0, 1) of q = γ^power, the probability that an episode continues
    counts    the counters of transitions; None if they are not counted
    """

    cmdp: CMDP
    mixture: Mixture
    base: Array | None = None
    declared: tuple[Array, Array] | None = None
    power: float = 0.5
    counts: TransitionCounts | None = None

    def __post_init__(self) -> None:
        if 1 - self.cmdp.gamma < 1 / LONGEST:
            raise InputError(f"gamma = {self.cmdp.gamma!r} is too close to 1 to sample episodes: use evidence='exact'")

    @property
    def q(self) -> float:
        return math.sqrt(self.cmdp.gamma) if self.power == 0.5 else self.cmdp.gamma**self.power

    @cached_property
    def signal_bounds(self) -> tuple[Array, Array]:
        """The bounds (low, high) of the signals h, each [1+I]."""
        if self.declared is not None:
            return self.declared
        h = np.where(self.cmdp.available, self.cmdp.h, 0.0)
        return h.min(axis=(1, 2)), h.max(axis=(1, 2))

    @property
    def bounds(self) -> tuple[Array, Array]:
        """The bounds (low, high) of the estimate X, each [1+I]."""
        return self._range

    @cached_property
    def _range(self) -> tuple[Array, Array]:
        """The bounds of X, computed once.

        They follow from this form of X, which gives a much shorter range than bounds for each term of the sum:

            X = h_0 + Σ_{0<t<T} (γ/q)^t (h_t − (1−q) V̂(s_t)) + q (γ/q)^T V̂(s_T)

        Here h_t are the signals, V̂ is the control variate, T the length of the episode, and q the probability that it
        continues. The bounds allow for the rounding of X, but a bound of exactly 0 stays 0 if V̂ = 0.
        """
        ratio, V = self.cmdp.gamma / self.q, self.table
        (low, high), (down, up) = self.signal_bounds, self._step_bounds
        least, most = np.minimum(V.min((0, 1)), 0.0), np.maximum(V.max((0, 1)), 0.0)
        later = np.minimum(ratio * self.full * np.minimum(down, 0.0), self.cmdp.gamma * least)
        above = np.maximum(ratio * self.full * np.maximum(up, 0.0), self.cmdp.gamma * most)
        lower, upper = np.minimum(low, 0.0) + later, np.maximum(high, 0.0) + above
        plain, slip = ~self.table.any((0, 1)), self.rounding
        paths = forward_paths(self.cmdp) if self.declared is None else None
        if paths is not None:
            least, most = self._path_range(paths)
            lower, upper, slip = np.maximum(lower, least), np.minimum(upper, most), 2 * slip
        return (
            np.where(plain & (lower == 0), 0.0, lower - slip),
            np.where(plain & (upper == 0), 0.0, upper + slip),
        )

    def _path_range(self, paths: Paths) -> tuple[Array, Array]:
        """Return the smallest and the largest estimate X, each [1+I], over all paths and all components."""
        h, ratio = np.where(self.cmdp.available, self.cmdp.h, 0.0), self.cmdp.gamma / self.q
        tables = np.broadcast_to(self.table, (self.mixture.M, *self.table.shape[1:]))
        each = [
            path_range(paths, pi > 0, h, V, self.q, ratio, self.full)
            for pi, V in zip(self.mixture.pi, tables, strict=True)
        ]
        return np.min([low for low, _ in each], axis=0), np.max([high for _, high in each], axis=0)

    @property
    def _step_bounds(self) -> tuple[Array, Array]:
        """The bounds (low, high), each [1+I], of h(s, a) − (1−q) V̂(s), where V̂ is the control variate.

        q is the probability that an episode continues. If bounds of h were declared, the result holds for all h within
        them. Otherwise it holds for all pairs (s, a) that some component of the mixture can take.
        """
        rest = (1 - self.q) * self.table
        if self.declared is not None:
            low, high = self.declared
            return low - rest.max((0, 1)), high - rest.min((0, 1))
        taken, h = self.mixture.pi > 0, np.moveaxis(self.cmdp.h, 0, -1)
        down, up = np.full(h.shape[-1], np.inf), np.full(h.shape[-1], -np.inf)
        for own, own_rest in zip(taken, np.broadcast_to(rest, (len(taken), *rest.shape[1:])), strict=True):
            y = (h - own_rest[:, None])[own]
            down, up = np.minimum(down, y.min(0)), np.maximum(up, y.max(0))
        return down, up

    @property
    def full(self) -> float:
        """The sum Σ_t (γ/q)^t over all t ≥ 0, rounded up; q is the probability that an episode continues."""
        rest = 1 - self.cmdp.gamma / self.q
        return (1 + 2.0**-50 / rest) / rest

    @cached_property
    def term(self) -> Array:
        """The largest possible size |h_t + γ V̂(s_{t+1}) − V̂(s_t)| [1+I] of one term of the estimate X."""
        return np.max(np.abs(self.signal_bounds), axis=0) + 2 * np.abs(self.table).max((0, 1))

    @property
    def rounding(self) -> Array:
        """A bound [1+I] on the rounding error of the estimate X of one episode.

        Every step of the episode adds a rounding error. The number of steps is bounded, since the length of an episode
        is drawn from 53 random bits.
        """
        longest = 2 + 54 * math.log(2) / -math.log(self.q)
        return 2.0**-52 * (longest + 8) * (np.abs(self.table).max((0, 1)) + self.full * self.term)

    @property
    def bias(self) -> Array:
        """A bound [1+I] on |E X − J|: finite precision makes the estimate X slightly biased.

        The bound is the sum of three errors. First, states and actions are drawn with slightly wrong probabilities,
        which changes the mean of all later signals. Second, the lengths of episodes and the weights (γ/q)^t are
        rounded. Third, the sum X is rounded.
        """
        cmdp, mixture, rest = self.cmdp, self.mixture, 1 - self.cmdp.gamma
        first = draw_error(cmdp.rho.sum(), cmdp.S) + draw_error(mixture.weights.sum(), mixture.M)
        each = transition_error(cmdp) + draw_error(mixture.pi.sum(-1), cmdp.A)
        low, high = self.signal_bounds
        horizons = 2.0**-52 / rest**2 + 2.0**-45 / rest + 2.0**-46 * self.full
        return (high - low) * (first / rest + each / rest**2) + self.term * horizons + self.rounding

    @cached_property
    def table(self) -> Array:
        """The control variate V̂ as an array [M, S, 1+I], or [1, S, 1+I] if all components share it."""
        S, H = self.cmdp.S, 1 + self.cmdp.I
        return np.zeros((1, S, H)) if self.base is None else np.ascontiguousarray(self.base, float).reshape(-1, S, H)

    @cached_property
    def inside(self) -> NDArray[np.bool_]:
        """The mask [S·A] of pairs (s, a) at which every signal lies within its declared bounds."""
        low, high = self.signal_bounds
        h = self.cmdp.h.reshape(len(low), -1)
        return np.all((h >= low[:, None]) & (h <= high[:, None]), axis=0)

    @cached_property
    def _compiled(self) -> tuple[Any, Any, Any]:
        model = alias_tables(self.cmdp)._replace(
            **dict(zip(("tail", "guide", "inv_log_gamma"), geometric_tables(self.q), strict=True))
        )
        pols = np.stack([pack(pi) for pi in self.mixture.pi])
        M = self.mixture.M
        choice = alias_cells(np.array([0, M]), np.arange(M, dtype=np.int32), self.mixture.weights, 0)
        return model, pols, choice

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        """Draw episodes begin .. begin + n − 1 of the stream `key`.

        Return X [n, 1+I], the component of each episode [n], and the number of environment steps.
        """
        model, pols, choice = self._compiled
        X, component = np.empty((n, 1 + self.cmdp.I)), np.empty(n, np.int64)
        counts = self.counts or NOT_COUNTED
        steps, episode, t = episodes.returns(
            key,
            begin,
            model,
            self.cmdp.gamma,
            self.cmdp.gamma / self.q,
            pols,
            choice,
            self.table,
            self.inside,
            X,
            component,
            counts.hits,
            counts.starts,
        )
        if episode >= 0:
            raise out_of_bounds_error(int(episode), int(t))
        return X, component, int(steps)

    @property
    def episode_steps(self) -> float:
        """The expected number of steps of an episode: 1/(1 − q), where q is the probability that it continues."""
        return 1 / (1 - self.q)


def shorten_range(V: Array, lowest: Array, gamma: float, power: float, share: Array | float) -> Array:
    """Return the control variate V [S, 1+I], lowered in some states to raise the lower bound of the estimate X.

    X stays unbiased, as it is for any control variate. Episodes continue with probability q = γ^power.

    lowest  the smallest signals [S, 1+I] that the policy can get in each state
    share   how much of the possible rise of the bound to realise, from 0 (none) to 1 (all) [1+I]

    V is lowered in states where lowest − (1−q) V is small, since these states determine the lower bound of X. If runs
    visit them often, the variance of X grows; a smaller `share` limits this growth.
    """
    q = gamma**power
    many = (gamma / q) / (1 - gamma / q)
    y = lowest - (1 - q) * V
    down, both = y.min(0), gamma * lowest.min(0) / (many * (1 - q) + gamma)
    goal = down + share * np.maximum(both - down, 0.0)
    return np.where((down < both) & (y < goal), (lowest - goal) / (1 - q), V)


@dataclass(frozen=True, eq=False)
class RuleEpisodes:
    """Episodes of a rule `act`, a function from states to actions that may have a memory or draw random numbers.

    The rule is called once per step. If it has a method `reset`, that is called at the start of every episode.
    `declared` are bounds (low, high) of the signals, each [1+I].

    untimed  the model without the time, if the states of `cmdp` are (t, s) = t·S + s and a last one for the end. The
             rule gets s; at the end it is not called, because a rule may count its calls
    """

    cmdp: CMDP
    act: Callable[[int], int]
    declared: tuple[Array, Array] | None = None
    untimed: CMDP | None = None

    @cached_property
    def _like(self) -> MixtureEpisodes:
        uniform = self.cmdp.available / self.cmdp.available.sum(1, keepdims=True)
        return MixtureEpisodes(self.cmdp, Mixture.single(uniform), None, self.declared)

    @cached_property
    def _watched(self) -> WatchedRule:
        return WatchedRule(self.act)

    @property
    def bounds(self) -> tuple[Array, Array]:
        return self._like.bounds

    @property
    def bias(self) -> Array:
        return self._like.bias

    @property
    def episode_steps(self) -> float:
        return self._like.episode_steps

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        X, steps = np.zeros((n, 1 + self.cmdp.I)), 0
        for i in range(n):
            rng = np.random.default_rng(int(fold(key, begin + i)))
            steps += self._episode(rng, begin + i, X[i])
        return X, np.zeros(n, np.int64), steps

    def _episode(self, rng: np.random.Generator, episode: int, x: Array) -> int:
        cmdp, q, (low, high) = self.cmdp, self._like.q, self._like.signal_bounds
        self._watched.begin()
        T, s, weight = int(rng.geometric(1 - q)), int(rng.choice(cmdp.S, p=cmdp.rho)), 1.0
        for t in range(T):
            a = self._action(s)
            h = cmdp.h[:, s, a]
            if np.any(h < low) or np.any(h > high):
                raise out_of_bounds_error(episode, t)
            x += weight * h
            weight *= cmdp.gamma / q
            s = self._next(rng, s, a)
        return T

    def _action(self, s: int) -> int:
        if self.untimed is not None and s == self.cmdp.S - 1:
            return int(np.argmax(self.cmdp.available[s]))
        a = self._watched.choose(s if self.untimed is None else s % self.untimed.S)
        given = np.asarray(a)
        whole = given.size == 1 and given.dtype.kind in "iufb" and float(given.item()).is_integer()
        action = int(given.item()) if whole else -1
        if not (0 <= action < self.cmdp.A and self.cmdp.available[s, action]):
            raise self._no_action(s, a)
        return action

    def _no_action(self, s: int, given: Any) -> InputError:
        """Return the error for a rule that returned `given`, which is no action of the state s of `cmdp`."""
        model = self.cmdp if self.untimed is None else self.untimed
        t, state = divmod(s, model.S)
        step = "" if self.untimed is None else f"step {t}, "
        name = f" ({model.states[state]})" if model.states else ""
        hint = ""
        if not np.issubdtype(np.asarray(given).dtype, np.number):
            names = model.actions or [""] * model.A
            known = [f"{a} {names[a]}".strip() for a in np.flatnonzero(self.cmdp.available[s]).tolist()]
            hint = f"; a rule returns the number of an action: {join_some(known)}"
        return InputError(f"policy gave action {given!r} at {step}state {state}{name}, which has no such action{hint}")

    def _next(self, rng: np.random.Generator, s: int, a: int) -> int:
        row = self.cmdp.rows[[s * self.cmdp.A + a]]
        if self.cmdp.is_sparse:
            return int(rng.choice(row.indices, p=row.data / row.data.sum()))
        return int(rng.choice(self.cmdp.S, p=row[0] / row[0].sum()))


def out_of_bounds_error(episode: int, t: int) -> InputError:
    return InputError(
        f"a signal left its declared bounds at step {t} of episode {episode}: widen the bounds, or fix the simulator"
    )
