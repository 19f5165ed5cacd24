"""The Slater margin φ = max_π min_i (J_gi(π) − b_i), measured; and κ and Λ, which follow from it.

On a finite model φ is exact (`oracle.slater_margin`, within the policy class where that is a linear program). From
samples it is a lower confidence bound: the game of `Feasibility` raises the smallest slack, the best of its policies is
measured on fresh episodes, and that goes on with more steps until the bound is positive or what may be spent is spent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.special import softmax as simplex

from clearance import episodes
from clearance.betting import Bets
from clearance.errors import InfeasibleError, InputError, infeasible_message
from clearance.files import load_npz, save_npz
from clearance.kernels import fold
from clearance.loop import Run, iterate
from clearance.methods import Feasibility
from clearance.methods.method import ranges
from clearance.mixture import Mixture
from clearance.network import Policy
from clearance.oracle import can_be_met, slater_margin
from clearance.policy import TiedFeaturesError, class_model, class_policy
from clearance.problem import CMDP, Array
from clearance.sample.critic import Critic, values_of
from clearance.sample.returns import Returns
from clearance.sample.table import tables_of
from clearance.selection import safest_weights, thinned
from clearance.statistical import Evidence, gather, needed

SCHEMA = "clearance/margin/1"
FIRST_SHARE, LAST_SHARE = 0.02, 0.16  # of the budget: what the first try for a positive margin costs, and the last


@dataclass(frozen=True, eq=False)
class Margin:
    """What is known of φ.

    slater    attained by `policy` for certain (exact), or its lower confidence bound; inf without constraints
    policy    the strictly feasible policy to fall back to; None where it is not in the policy class
    verdict   FEASIBLE: slater > 0;  INFEASIBLE: proven, or with confidence;  UNDECIDED
    sd        of one episode's estimate of J_g [I], from samples
    bound     upper bound of φ where it was looked for
    steps     environment steps in all;  tested  those that the test of `policy` took
    mu        the weights [I] behind that bound: the limits that have a share in it conflict
    """

    slater: float
    policy: Mixture | None
    verdict: Literal["FEASIBLE", "INFEASIBLE", "UNDECIDED"]
    sd: Array | None = None
    bound: float = np.inf
    mu: Array | None = None
    steps: int = 0
    tested: int = 0

    def save(self, path: str | Path) -> None:
        """All that is known, as arrays; the policy as weights [M] and pi [M, S, A]."""
        found = {name: value for name, value in vars(self).items() if value is not None and name != "policy"}
        if self.policy is not None:
            found |= {"weights": self.policy.weights, "pi": self.policy.pi}
        save_npz(path, {"schema": np.array(SCHEMA), **found})

    @classmethod
    def load(cls, path: str | Path) -> Margin:
        z = load_npz(path)
        policy = Mixture(z["weights"], z["pi"]) if "pi" in z else None
        numbers = {"slater": float(z["slater"]), "bound": float(z["bound"])}
        counts = {"steps": int(z["steps"]), "tested": int(z["tested"])}
        return cls(policy=policy, verdict=str(z["verdict"]), sd=z.get("sd"), mu=z.get("mu"), **numbers, **counts)  # type: ignore[arg-type]


@lru_cache(maxsize=4)
def exact_margin(cmdp: CMDP, policy: Policy) -> Margin:
    """φ of the policy class, or of all policies where the class has no linear program. Raises `InfeasibleError`."""
    try:
        model = class_model(cmdp, policy)
        slater, safest = slater_margin(model)
        found = Mixture.single(class_policy(policy, safest))
    except TiedFeaturesError:
        model, found = cmdp, None
        slater, _ = slater_margin(cmdp)
    if not can_be_met(model, slater):
        raise InfeasibleError(infeasible_message(slater), slater, model)
    return Margin(slater, found, "FEASIBLE")


def sampled_margin(cmdp: CMDP, policy: Policy, key: np.uint64, budget: float, delta: float) -> Margin:
    """φ from samples: FEASIBLE with a lower confidence bound, INFEASIBLE with an upper one, or UNDECIDED.

    `budget` is for all of `solve`: a first try takes 2 % of it, and each further one twice as much, up to 16 %. Then
    the other side is tried, with 30 %: that no policy at all meets the limits.
    """
    if cmdp.I == 0:
        return Margin(np.inf, None, "FEASIBLE", np.zeros(0))
    critic, share, spent, tries = Critic(cmdp, policy), FIRST_SHARE, 0, 0
    while True:
        tries += 1
        run, candidate, base = _safest(critic, np.uint64(fold(key, 3 * tries)), 0.7 * share * budget)
        spent += int(run.trace.steps.sum())
        evidence = gather(
            Returns(cmdp, candidate, base),
            cmdp.b,
            0.5 * delta / (tries * (tries + 1)),
            np.uint64(fold(key, 3 * tries + 1)),
            0.3 * share * budget,
        )
        spent += evidence.steps
        slack = evidence.lower[1:] - cmdp.b
        if evidence.verdict == "CERTIFIED":
            stream, tested = np.uint64(fold(key, 3 * tries + 2)), evidence.steps
            evidence = _closer(cmdp, candidate, base, evidence, 0.5 * delta, stream, 0.01 * budget)
            spent += evidence.steps
            found = max(float(slack.min()), float(np.min(evidence.lower[1:] - cmdp.b)))
            if found > 0:
                return Margin(found, candidate, "FEASIBLE", evidence.sd[1:], steps=spent, tested=tested)
        if share >= LAST_SHARE:
            break
        share *= 2
    mu = simplex(run.trace.lam[len(run.trace) // 2 :], axis=1).mean(0)
    mu = np.where(mu > 0.01, mu, 0.0) / mu[mu > 0.01].sum()  # the bound is about the limits that it names
    bound, steps = least_violation(critic, run, mu, np.uint64(fold(key, 0)), 0.3 * budget, delta)
    verdict = "INFEASIBLE" if bound < 0 else "UNDECIDED"
    return Margin(float(np.min(slack)), candidate, verdict, evidence.sd[1:], bound, mu, spent + steps)


def _safest(critic: Critic, key: np.uint64, budget: float):
    """The game for so many steps: its run, the safest mixture of its iterates, and the critic's V."""
    game = Feasibility(N=max(4, int(budget * (1 - critic.cmdp.gamma) / Feasibility().K)))
    run = iterate(critic, game, key, np.inf, budget=budget)
    index = thinned(len(run.trace), 50, first=0.3)
    w = safest_weights(run.trace.J_hat[index], critic.cmdp.b)  # a game may circle: its best is a mixture
    used = np.flatnonzero(w)
    mixture = Mixture(w[used], critic.policy.pi(run.trace.theta[index[used]]))
    return run, mixture, values_of(critic.policy.pi(run.state.theta), run.state.world.Q)


def _closer(cmdp: CMDP, policy: Mixture, base: Array, before: Evidence, delta: float, key: np.uint64, budget: float):
    """The slack measured once more without stopping at the limit, so that φ̂ is more than barely positive."""
    best = before.mean[1:] - cmdp.b
    return gather(Returns(cmdp, policy, base), cmdp.b + 0.9 * np.minimum(best, best.min()), delta, key, budget)


def least_violation(
    critic: Critic, run: Run, mu: Array, key: np.uint64, budget: float, delta: float
) -> tuple[float, int]:
    """An upper confidence bound of max_π Σ_i μ_i (J_gi − b_i), and so of φ, over all policies; and the steps it took.

    For any V:  max_π J ≤ ρ·V + max_{s,a} E[μ·g(s, a) + γV(s') − V(s)] / (1−γ). V is the critic's; the mean at every
    pair is bounded from above with n draws from that pair (the simulator is put there) at level δ/(2·pairs), and ρ·V.
    """
    cmdp = critic.cmdp
    S, A, gamma = cmdp.S, cmdp.A, cmdp.gamma
    Q = (run.state.world.Q[:, 1:] @ mu).reshape(S, A)
    V = np.where(cmdp.available, Q, -np.inf).max(1)
    n = int(0.9 * budget / (S * A))
    if n < 50:
        return np.inf, 0
    weights = np.append(0.0, mu)
    X = np.zeros((S * A, n))
    steps = episodes.successors(key, tables_of(cmdp), weights, gamma, V, X)
    pairs = np.flatnonzero(cmdp.available.ravel())
    low, high = V.min(), V.max()
    worst = -np.inf
    for pair in pairs:
        here = float(weights @ cmdp.h[:, pair // A, pair % A]) - V[pair // A]
        worst = max(worst, _upper(X[pair], here + gamma * low, here + gamma * high, delta / (2 * len(pairs))))
    m = int(0.05 * budget)
    starts = V[np.random.default_rng(int(fold(key, 1))).choice(S, size=m, p=cmdp.rho)]
    return _upper(starts, low, high, delta / 2) + worst / (1 - gamma) - float(mu @ cmdp.b), steps + m


def _upper(x: Array, low: float, high: float, delta: float) -> float:
    slip = 1e-9 * (abs(low) + abs(high) + 1e-300)  # rounding may carry a sample over the edge of a narrow range
    bets = Bets(-float(x.mean()), -high - slip, -low + slip)
    bets.update(-x)
    return -bets.lower_bound(delta)


def kappa_of(cmdp: CMDP, margin: Margin, samples: float, delta: float | None = None) -> tuple[float, ...]:
    """κ [I] chosen from the margin: at most φ/2, and what the noise of so many samples of Ĵ asks for, like c/√samples.

    With δ (evidence from samples) what a certificate from so many episodes will need; else a tenth of the range of J_g
    over √samples: the choice among the iterates knows their exact values, and only needs some of them inside.
    """
    if delta is None or margin.sd is None:
        noise = 0.1 * ranges(cmdp)[1] / (1 - cmdp.gamma) / np.sqrt(samples)
    else:
        noise = needed(margin.sd, samples, delta)
    return tuple(np.minimum(0.5 * max(margin.slater, 0.0), noise).tolist())


def conservative_margin(cmdp: CMDP, kappa: float | Array, slater: float, *, exact: bool) -> float:
    """φ of the conservative problem J_g ≥ b + κ: φ − κ, or, for κ that differ and on a known model, its own."""
    if np.ndim(kappa) and np.shape(kappa) != (cmdp.I,):
        raise InputError(f"kappa has {np.size(kappa)} entries for {cmdp.I} constraints; give one number, or one each")
    room = slater - float(np.max(kappa, initial=0.0))
    if room > 0 or not exact or np.ndim(kappa) == 0:
        return room
    return slater_margin(cmdp.tightened(kappa))[0]
