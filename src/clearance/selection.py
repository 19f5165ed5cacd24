"""The best mixture of given policies: a small linear program over their (J_r, J_g).

    max Σ_m w_m J_r(m)    subject to   Σ_m w_m J_gi(m) ≥ b_i + margin_i,   w on the simplex

A vertex mixes at most I + 1 policies, and earns at least what the uniform mixture does wherever that meets the same
limits. From samples the values are noisy, and the program would pick the lucky ones: so whatever it picks is measured
again, and the program solved again, until the choice rests on enough samples. Certificates use fresh ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from clearance import kernels
from clearance.mixture import Mixture
from clearance.problem import CMDP, Array
from clearance.sample.returns import Returns
from clearance.statistical import Component, affordable_episodes, needed

PESSIMISM = 1.5  # standard errors by which a candidate's values are lowered in the last word


def best_weights(J: Array, b: Array, margin: Array | float = 0.0) -> Array | None:
    """w [n] of the best mixture of policies with values J [n, 1+I], at most I + 1 positive; None if none will do."""
    slack = _in_units(J[:, 1:] - b - margin)
    answer = linprog(
        -_in_units(J[:, 0]),
        A_ub=-slack.T if len(b) else None,
        b_ub=np.zeros(len(b)) if len(b) else None,
        A_eq=np.ones((1, len(J))),
        b_eq=[1.0],
        method="highs-ds",
    )
    if answer.status != 0:
        return None
    w = np.where(answer.x > 1e-12, answer.x, 0.0)
    return w / w.sum()


def safest_weights(J: Array, b: Array) -> Array:
    """w [n] of the mixture with the largest smallest slack."""
    n, slack = J.shape[0], J[:, 1:] - b
    size = max(float(np.abs(slack).max(initial=0.0)), 1e-300)
    answer = linprog(
        np.append(np.zeros(n), -1.0),
        A_ub=np.column_stack([-slack.T / size, np.ones(len(b))]),
        b_ub=np.zeros(len(b)),
        A_eq=[[1.0] * n + [0.0]],
        b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)],
        method="highs-ds",
    )
    w = np.where(answer.x[:n] > 1e-12, answer.x[:n], 0.0)
    return w / w.sum()


def _in_units(x: Array) -> Array:
    """Columns of size 1, since the solver's tolerances are absolute."""
    size = np.abs(x).max(0)
    return x / np.where(size > 0, size, 1.0)


@dataclass(eq=False)
class Candidates:
    """Policies pi [n, S, A] of a simulated model, with estimates of their J that grow where they are needed."""

    cmdp: CMDP
    pi: Array
    base: Array | None
    key: np.uint64

    def __post_init__(self) -> None:
        n, H = len(self.pi), 1 + self.cmdp.I
        self.n, self.total, self.squares = np.zeros(n), np.zeros((n, H)), np.zeros((n, H))
        self.measured, self.steps = np.zeros(n, np.int64), 0

    @property
    def episode_steps(self) -> float:
        return Returns(self.cmdp, Mixture.single(self.pi[0])).episode_steps

    def measure(self, m: int, n: int) -> None:
        """n more episodes of candidate m."""
        source = Returns(self.cmdp, Mixture.single(self.pi[m]), self.base)
        X, _, steps = source.draw(np.uint64(kernels.fold(self.key, m)), int(self.measured[m]), n)
        self.measured[m] += n
        self.steps += steps
        self.learn(m, Component(n, X.sum(0), (X**2).sum(0)))

    def learn(self, m: int, seen: Component) -> None:
        """Episodes of candidate m from elsewhere: those of an earlier certificate."""
        self.n[m] += seen.episodes
        self.total[m] += seen.total
        self.squares[m] += seen.squares

    @property
    def J(self) -> Array:
        return self.total / self.n[:, None]

    @property
    def variance(self) -> Array:
        """Of one episode's estimate [n, 1+I]."""
        return np.maximum(self.squares / self.n[:, None] - self.J**2, 0.0)

    def expected(self, w: Array) -> tuple[Array, Array]:
        """Slack and standard deviation of one episode's estimate of the mixture w, [I] each."""
        mean = w @ self.J
        spread = w @ (self.variance + (self.J - mean) ** 2)
        return mean[1:] - self.cmdp.b, np.sqrt(spread[1:])

    def choose(self, budget: float, episodes: float, delta: float) -> Array | None:
        """w [n] of the best mixture whose limits keep a margin, for a certificate at δ from so many `episodes`.

        Whatever looks best is measured again, until `budget` steps are spent. The last word has the program over
        pessimistic values, in which a policy that was measured little looks bad. None if no mixture keeps the margin.
        """
        stop = self.steps + budget
        for _ in range(200):
            affordable = affordable_episodes(stop - self.steps, self.episode_steps)
            w = self._best(episodes, delta, 0.0)
            w = best_weights(self.J, self.cmdp.b) if w is None else w
            if affordable < 100 or w is None:
                break
            self._refine(w, affordable)
        return self._best(episodes, delta, PESSIMISM)

    def _best(self, episodes: float, delta: float, pessimism: float) -> Array | None:
        """The program for values so many standard errors below their estimates, and with what the certificate needs."""
        doubt = np.sqrt(self.variance / self.n[:, None])
        margin = needed(np.sqrt(np.median(self.variance[:, 1:], axis=0)), episodes, delta)
        return best_weights(self.J - pessimism * doubt, self.cmdp.b, margin)

    def _refine(self, w: Array, affordable: int) -> None:
        """Half as many episodes again for what is in use, in proportion to its weight."""
        used = np.flatnonzero(w)
        add = np.minimum(max(self.n[used].sum() / 2, 1000.0), affordable) * w[used]
        for m, extra in zip(used, add.astype(np.int64), strict=True):
            if extra > 0:
                self.measure(int(m), int(extra))


def thinned(n: int, most: int, first: float = 0.0) -> NDArray[np.int64]:
    """At most `most` of the indices 0..n−1, evenly spread over the last 1 − first of them, the last one included."""
    begin = min(int(first * n), n - 1)
    return np.unique(np.linspace(begin, n - 1, min(most, n - begin)).round().astype(np.int64))
