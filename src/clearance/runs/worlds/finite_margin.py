"""The Slater margin φ = max_π min_i (J_gi(π) − b_i) of a finite model.

With exact evidence φ is exact (`exact.feasibility`). It is the margin of the policy class if the class can be described
by a linear program, else the margin of all policies.

With samples it is a lower confidence bound. First the method `Feasibility`, a game between policy and limits, learns to
raise the smallest slack. Then the safest policy is planned on the counted transitions. If the class cannot be described
by a linear program, the best mixture of the game is taken instead. This policy is measured on fresh episodes. All is
repeated with more environment steps until the bound is positive or the budget is spent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax as simplex

from clearance.certificates.best_mixture import safest_weights, spread_evenly
from clearance.certificates.betting import Bets
from clearance.certificates.episode_source import Episodes
from clearance.certificates.sequential_test import Evidence, gather
from clearance.core.array_files import read_arrays
from clearance.core.arrays import Array
from clearance.core.atomic_files import save_npz
from clearance.core.compiled import episodes
from clearance.core.compiled.alias_tables import draw_error
from clearance.core.errors import InfeasibleError, infeasible_message
from clearance.core.inside_folder import AnyPath
from clearance.core.random_streams import fold
from clearance.exact.estimated_model import PolicyEstimate
from clearance.exact.feasibility import decide_feasibility, holds_after_rounding
from clearance.exact.infeasibility import diagnose
from clearance.exact.planning import plan_exploration, plan_safest
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture, most_numbers
from clearance.finite.samplers.algorithm2 import alias_tables, transition_error
from clearance.finite.samplers.td_critic import Critic, state_values
from clearance.finite.softmax_policy import TiedFeaturesError, class_model, class_policy
from clearance.finite.two_layer_policy import Policy
from clearance.learning.loop import Run, iterate
from clearance.learning.methods.feasibility_game import Feasibility
from clearance.runs.worlds.explored_model import ExploredSums, FiniteExplored, can_plan
from clearance.runs.worlds.planned_search import walk_both

SCHEMA = "clearance/margin/1"
ARRAYS = ("slater", "verdict", "sd", "bound", "mu", "steps", "tested", "weights", "pi", "hits", "starts")
LIKELY_TRIES = 2  # after so many tries to prove the margin, the estimate by the model is enough to continue
LEAST = 1e-3  # a bound on the slack below this share of the mean slack is not used
PLANS = 3  # plans of the safest policy in each try, with walks between them
FIRST_SHARE, LAST_SHARE = 0.02, 0.16  # shares of the budget for the first and the last try to find a margin


@dataclass(frozen=True, eq=False)
class FiniteMargin:
    """The result of measuring the Slater margin φ of a finite model.

    slater    exact evidence: the slack that `policy` attains; samples: a lower confidence bound of φ; inf without
              constraints
    policy    a strictly feasible policy; None if it is not in the policy class
    verdict   FEASIBLE: slater > 0;  INFEASIBLE: proven, or with confidence;  UNDECIDED: neither;  LIKELY: not certain,
              but slater > 0 by two standard errors of the estimated model, so that `solve` continues
    sd        standard deviation of one episode's estimate of J_g [I], with samples
    bound     upper bound of φ, if one was computed
    mu        the weights [I] of the limits in `bound`; limits with positive weight are in conflict
    steps     all environment steps;  tested: environment steps of the test of `policy`
    hits, starts  the transitions counted while measuring (`transition_counts`)
    """

    slater: float
    policy: Mixture | None
    verdict: Literal["FEASIBLE", "LIKELY", "INFEASIBLE", "UNDECIDED"]
    sd: Array | None = None
    bound: float = np.inf
    mu: Array | None = None
    steps: int = 0
    tested: int = 0
    hits: NDArray[np.uint32] | None = None
    starts: Array | None = None

    def save(self, path: AnyPath) -> None:
        """Write all fields as arrays to an .npz file; the policy is written as weights [M] and pi [M, S, A]."""
        found = {name: value for name, value in vars(self).items() if value is not None and name != "policy"}
        if self.policy is not None:
            found |= {"weights": self.policy.weights, "pi": self.policy.pi}
        save_npz(path, {"schema": np.array(SCHEMA), **found})

    @classmethod
    def load(cls, path: AnyPath, cmdp: CMDP) -> FiniteMargin:
        z = read_arrays(path, ARRAYS, partial(_most_numbers, cmdp))
        policy = Mixture(z["weights"], z["pi"]) if "pi" in z else None
        numbers = {"slater": float(z["slater"]), "bound": float(z["bound"])}
        counts = {"steps": int(z["steps"]), "tested": int(z["tested"])}
        counts |= {name: z[name] for name in ("hits", "starts") if name in z}
        return cls(policy=policy, verdict=str(z["verdict"]), sd=z.get("sd"), mu=z.get("mu"), **numbers, **counts)  # type: ignore[arg-type]


def _most_numbers(cmdp: CMDP, shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """Return, for each array in the file of a margin, the largest allowed number of entries; larger files are refused.

    `shapes` are the shapes of the arrays in the file.
    """
    sizes = {"sd": cmdp.I, "mu": cmdp.I, "hits": 4 * cmdp.S * cmdp.A * cmdp.S, "starts": cmdp.S}
    return dict.fromkeys(ARRAYS, 1) | sizes | most_numbers(cmdp, shapes)


@lru_cache(maxsize=4)
def exact_margin(cmdp: CMDP, policy: Policy) -> FiniteMargin:
    """Return the Slater margin φ: of the policy class if a linear program can describe the class, else of all policies.

    Raise `InfeasibleError` only if multipliers prove that no such policy meets the limits. A margin within rounding
    error of 0 is no proof, and raises nothing here.
    """
    try:
        model = class_model(cmdp, policy)
    except TiedFeaturesError:
        model, found, safest = cmdp, decide_feasibility(cmdp), None
    else:
        found = decide_feasibility(model)
        safest = Mixture.single(class_policy(policy, found.policy))
    proven = found.proof is not None and (model is cmdp or holds_after_rounding(model, found.proof))
    if proven:
        among = "policy" if model is cmdp else "policy of this class"
        raise InfeasibleError(infeasible_message(found.slater, model.I, among), found.slater, model, diagnose=diagnose)
    return FiniteMargin(found.slater, safest, "FEASIBLE" if found.verdict == "feasible" else "UNDECIDED")


def sampled_margin(explored: FiniteExplored, key: np.uint64, budget: float, delta: float) -> FiniteMargin:
    """Estimate the Slater margin φ from samples; the verdict is FEASIBLE, LIKELY, INFEASIBLE or UNDECIDED.

    `explored` has the model, the policy class, and counters of transitions, which are used if plans can be computed.
    `budget` is the budget of all of `solve`. The first try takes 2 % of it, and each further try twice as much, up to
    16 %. If all tries fail, 30 % is spent on testing whether no policy at all meets the limits. There is no such test
    for sums until absorption.
    """
    cmdp, policy = explored.cmdp, explored.policy
    if cmdp.I == 0:
        return FiniteMargin(np.inf, None, "FEASIBLE", np.zeros(0))
    critic, share, spent, tries = Critic(cmdp, policy, counting=True), FIRST_SHARE, 0, 0
    plans = can_plan(cmdp, policy)
    counts, safest, likely = explored.counts if plans else None, None, None
    while True:
        tries += 1
        run, candidate, base = _safest(critic, fold(key, 3 * tries), (0.2 if plans else 0.7) * share * budget)
        spent += int(run.trace.steps.sum())
        if plans:
            explored.counts.add(run.state.sampler_memory.hits, run.state.sampler_memory.starts)
            safest, steps = _plan_safest(explored, fold(key, 1000 + tries), 0.3 * share * budget)
            candidate, base, spent = Mixture.single(safest.pi), safest.V, spent + steps
            likely = safest.J[1:] - cmdp.b, safest.spread(explored.powers[0])[1:]
        source = explored.episodes(candidate, base, 0.5)
        level, tested = 0.5 * delta / (tries * (tries + 1)), (0.5 if plans else 0.3) * share * budget
        evidence = gather(source, cmdp.b, level, fold(key, 3 * tries + 1), tested, likely=likely)
        spent += evidence.steps
        slack = evidence.lower[1:] - cmdp.b
        if evidence.verdict == "CERTIFIED":
            stream, tested = fold(key, 3 * tries + 2), evidence.steps
            evidence = _closer(source, cmdp.b, evidence, 0.5 * delta, stream, 0.01 * budget)
            spent += evidence.steps
            found = max(float(slack.min()), float(np.min(evidence.lower[1:] - cmdp.b)))
            if found > LEAST * float(np.min(evidence.mean[1:] - cmdp.b)):
                seen = {} if counts is None else counts._asdict()
                return FiniteMargin(found, candidate, "FEASIBLE", evidence.sd[1:], steps=spent, tested=tested, **seen)
        room = -1.0 if safest is None else float(np.min((safest.J - 2 * safest.doubt)[1:] - cmdp.b))
        if room > 0 and tries >= LIKELY_TRIES and spent <= LAST_SHARE * budget:  # the rest of `solve` needs more
            seen = {} if counts is None else counts._asdict()
            return FiniteMargin(room, candidate, "LIKELY", evidence.sd[1:], steps=spent, tested=evidence.steps, **seen)
        if share >= LAST_SHARE:
            break
        share *= 2
    if isinstance(explored, ExploredSums):
        return FiniteMargin(float(np.min(slack)), candidate, "UNDECIDED", evidence.sd[1:], steps=spent)
    mu = simplex(run.trace.lam[len(run.trace) // 2 :], axis=1).mean(0)
    mu = np.where(mu > 0.01, mu, 0.0) / mu[mu > 0.01].sum()  # so that the bound is about the named limits alone
    bound, steps = least_violation(critic, run, mu, fold(key, 0), 0.3 * budget, delta)
    verdict = "INFEASIBLE" if bound < 0 else "UNDECIDED"
    return FiniteMargin(float(np.min(slack)), candidate, verdict, evidence.sd[1:], bound, mu, spent + steps)


def _plan_safest(explored: FiniteExplored, key: np.uint64, budget: float) -> tuple[PolicyEstimate, int]:
    """Return the safest policy on the model estimated from all counts, and the environment steps taken.

    To improve the counts between two plans, episodes are drawn by the current plan and by an exploring policy.
    """
    steps = 0
    for k in range(PLANS - 1):
        model = explored.model()
        plan = plan_safest(model.cmdp, explored.policy)
        curious = plan_exploration(model, model.evaluate(plan.pi).V, np.append(0.0, plan.lam), explored.high)
        steps += walk_both(explored, fold(key, k), plan.pi, curious, budget / (PLANS - 1))
    model = explored.model()
    return model.evaluate(plan_safest(model.cmdp, explored.policy).pi), steps


def _safest(critic: Critic, key: np.uint64, budget: float):
    """Run the feasibility game, which maximises the smallest slack, for `budget` steps.

    Return its run, the safest mixture of its iterates, and the critic's values V [S, 1+I].
    """
    game = Feasibility(N=max(4, int(budget * (1 - critic.cmdp.gamma) / Feasibility().K)))
    run = iterate(critic, game, key, np.inf, budget=budget)
    if run.status == "interrupted":  # a margin from an unfinished game would change the run
        raise KeyboardInterrupt
    index = spread_evenly(len(run.trace), 50, first=0.3)
    w = safest_weights(run.trace.J_hat[index], critic.cmdp.b)  # iterates of a game may cycle: mix them
    used = np.flatnonzero(w)
    mixture = Mixture(w[used], critic.policy.pi(run.trace.theta[index[used]]))
    return run, mixture, state_values(critic.policy.pi(run.state.theta), run.state.sampler_memory.Q)


def _closer(source: Episodes, b: Array, before: Evidence, delta: float, key: np.uint64, budget: float):
    """Measure the slack of a policy a second time, by a test against tighter limits; return the test's `Evidence`.

    The limits are tightened by 90 % of the smallest mean slack in `before`, the first test. That test stopped once
    every limit was shown to be met, so its bounds on the slack may be barely positive.
    """
    best = before.mean[1:] - b
    return gather(source, b + 0.9 * np.minimum(best, best.min()), delta, key, budget)


def least_violation(
    critic: Critic, run: Run, mu: Array, key: np.uint64, budget: float, delta: float
) -> tuple[float, int]:
    """Return an upper confidence bound of max_π Σ_i μ_i (J_gi − b_i) over all policies, and the steps taken.

    μ [I] are weights of the limits that sum to 1, so this is also an upper bound of the Slater margin φ. For any V:

        max_π μ·J_g ≤ ρ·V + max_{s,a} E[μ·g(s, a) + γV(s') − V(s)] / (1−γ)

    V is taken from the critic. Upper confidence bounds from samples replace two terms: the mean E at each pair (s, a),
    at level δ/(2·number of pairs), and ρ·V, the mean of V over start states, at level δ/2.
    """
    cmdp = critic.cmdp
    S, A, gamma = cmdp.S, cmdp.A, cmdp.gamma
    Q = (run.state.sampler_memory.Q[:, 1:] @ mu).reshape(S, A)
    V = np.where(cmdp.available, Q, -np.inf).max(1)
    n = int(0.9 * budget / (S * A))
    if n < 50:
        return np.inf, 0
    weights = np.append(0.0, mu)
    X = np.zeros((S * A, n))
    steps = episodes.successors(key, alias_tables(cmdp), weights, gamma, V, X)
    pairs = np.flatnonzero(cmdp.available.ravel())
    low, high = V.min(), V.max()
    worst, error = -np.inf, transition_error(cmdp)
    slip = 2.0**-48 * float(np.abs(V).max() + np.abs(cmdp.h).max())  # what rounding may add to a sample
    for pair in pairs:
        here = float(weights @ cmdp.h[:, pair // A, pair % A]) - V[pair // A]
        level = delta / (2 * len(pairs))
        worst = max(worst, _upper(X[pair], here + gamma * low, here + gamma * high, level, error, slip))
    m = int(0.05 * budget)
    starts = V[np.random.default_rng(int(fold(key, 1))).choice(S, size=m, p=cmdp.rho)]
    start = _upper(starts, low, high, delta / 2, draw_error(cmdp.rho.sum(), S), slip)
    later, limit = worst / (1 - gamma), float(mu @ cmdp.b)
    rounding = 1e-12 * (abs(start) + abs(later) + abs(limit))
    return start + later - limit + rounding, steps + m


def _upper(x: Array, low: float, high: float, delta: float, error: float, slip: float) -> float:
    """Return an upper confidence bound at level δ for the mean of a distribution with values in [low, high].

    x      the sample
    error  total variation distance between the sampled distribution and the intended one
    slip   largest rounding error of one value
    """
    bets = Bets(-float(x.mean()), -high - slip, -low + slip, bias=error * (high - low) + slip)
    bets.update(-x)
    return -bets.lower_bound(delta)
