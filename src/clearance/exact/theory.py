"""Theorem 1 of Bai, Bedi and Aggarwal (AAAI 2023) and its lemmas, as functions with explicit constants.

Each function takes `Constants` and returns one number of the proof. Functions of later lemmas call those of earlier
ones. J_g means J_g − b, and |J_h| ≤ h_max/(1−γ) for every signal h.

Symbols: G and M bound the norms of the score ∇log π and of its derivative ∇²log π, μ_F is the smallest eigenvalue of
the Fisher matrix F, φ the Slater margin, r⁺−r⁻ the range of the reward, H = h_max, Λ = lam_max, m = weight = 1 + IΛ,
η₂ = 1/√K, and J_L the Lagrangian. If μ_F = 0, bounds that depend on it are inf, and `why_infinite` says why.

The functions correct the paper in these points (numbers as in arXiv 2206.05850):

 1. Λ, Lemma 10: a Slater point has J_g − κ ≥ φ − κ, not φ. Our Λ is valid for every κ up to `Constants.kappa`.
 2. η₁, App. C: J_L is mL_J-smooth, not L_J-smooth. With the printed η₁ = μ_F²/(4G²L_J) the factor of
    ‖∇J_L‖² is ≤ 0 once IΛ ≥ 1 and Lemma 4 is not proved; μ_F²/(4G²mL_J) repairs it.
 3. Lemma 14: L(ω) is 2(1−γ)²μ_F-strongly convex, not μ_F, and α = 1/(4G²) fits the step on w = (1−γ)ω. For
    that step the two errors cancel; for the step printed in Algorithm 1, line 8, the share of the start ω₀
    is 1/(√2(1−γ)) times larger. The noise of Â_L needs the factor m (in mean square: T is unbounded).
 4. Lemma 4: λ moves by η₂E|Ĵ_g − κ| ≤ 2η₂H/(1−γ), not η₂H/(1−γ); 8(μ_F²+2G⁴) is loose, 4 is enough.
 5. App. D.3: 2·4B²/(Nμ_F) is 8 (printed 4), (2/μ_F²)(16G⁴L/μ_F²) is 32 (printed 16), IΛ/η₂ means η₂I.
 6. Lemma 3: KL(π*‖π_θ⁰) ≤ log A needs a uniform start (θ⁰ = 0) and finitely many actions.
 7. Lemma 6: Σ_sa r is not ≤ 1, and the θ that imitates φ* may break the limit. By the performance difference
    |ΔJ_r| ≤ A ε₂(r⁺−r⁻)/(2(1−γ)²), |ΔJ_g| ≤ A ε₂H/(1−γ)² with ε₂ = ε_bias2; the Slater policy makes up for it.
 8. App. F: E Ĵ_g² ≤ (K+1)/(2K(1−γ)²) is false (take g = 1), but ½E(Ĵ_g−κ)² ≤ (2 + 1/N)H²/(1−γ)²; the sum over
    i is missing in the objective; 2/φ means Λ = 2/((1−γ)φ); λ_i is chosen by the sign of κ − E J_gi.
 9. Lemma 12 compares with the best of all policies, App. F.2 with the best of the class: κ includes `class_gap`.
10. Orders: K = O(I²/(φ⁴(1−γ)⁴ε²)), printed φ²; N = O(I²Λ²/((1−γ)⁴ε²)), printed (1−γ)²; so φ⁻⁶(1−γ)⁻¹⁰ε⁻⁴
    trajectories. Lemma 4's K hides L_J² = O((1−γ)⁻⁶).
11. Assumption 3, μ_F > 0 for all θ ∈ ℝᵈ, holds for no softmax (it saturates; one-hot features make F singular
    everywhere); the Gaussian it names has unbounded score and log A = ∞. On a bounded Θ it can hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from clearance.core.errors import InputError
from clearance.learning import dual


@dataclass(frozen=True)
class Constants:
    """The constants that Theorem 1 assumes for a problem and a policy class; functions take them as argument `c`.

    The numbers of constraints, parameters and actions are I, d and A. G and M bound ‖∇log π‖ and ‖∇²log π‖. mu_F is a
    lower bound on the eigenvalues of the Fisher matrix, and `slater` the Slater margin φ. `kappa` is the largest margin
    κ for which the bound Λ of the multipliers is valid. r_range is the range of the reward and h_max the largest
    |signal|. eps_bias and eps_bias2 are approximation errors of the policy class; they are 0 for tabular softmax.
    """

    gamma: float
    I: int
    d: int  # dimension of θ
    A: int  # number of actions
    G: float  # ‖∇log π‖ ≤ G
    M: float  # ‖∇²log π‖ ≤ M
    mu_F: float  # F(θ) ≽ μ_F for every θ that a run visits
    slater: float  # φ
    kappa: float  # the largest κ that Λ allows for; slater/2 is a good choice
    r_range: float = 1.0  # r⁺ − r⁻, with 0 in the range if episodes end
    h_max: float = 1.0  # the largest |signal|
    eps_bias: float = 0.0
    eps_bias2: float = 0.0

    def __post_init__(self) -> None:
        mu_F_most, slater_most = self.G**2 / self.d if self.d else 0.0, self.h_max / (1 - self.gamma or 1)
        rules = {
            "gamma": (0 <= self.gamma < 1, "in [0, 1)"),
            "I": (1 <= self.I < math.inf, "at least 1"),
            "d": (1 <= self.d < math.inf, "at least 1"),
            "A": (2 <= self.A < math.inf, "at least 2, and finite (the bound holds log A)"),
            "G": (0 < self.G < math.inf, "positive and finite (0: the policy cannot change)"),
            "M": (0 <= self.M < math.inf, "non-negative and finite"),
            "mu_F": (0 <= self.mu_F <= mu_F_most * (1 + 1e-9), "in [0, G²/d] (the trace of F is ≤ G²)"),
            "r_range": (0 < self.r_range < math.inf, "positive and finite"),
            "h_max": (0 < self.h_max < math.inf, "positive and finite"),
            "slater": (0 < self.slater <= slater_most * (1 + 1e-9), "in (0, h_max/(1−γ)]"),
            "kappa": (0 <= self.kappa < self.slater, f"in [0, slater), slater = {self.slater:.6g}"),
            "eps_bias": (0 <= self.eps_bias < math.inf, "non-negative and finite"),
            "eps_bias2": (0 <= self.eps_bias2 <= 1, "in [0, 1]"),
        }
        for field, (fine, wanted) in rules.items():
            if not fine:
                raise InputError(f"{field} = {getattr(self, field)!r}: must be {wanted}")


def why_infinite(c: Constants) -> str | None:
    """Return a sentence that says why the bounds are inf; None if they are finite."""
    if math.isfinite(omega_norm(c, 1, 1)):
        return None
    why = f"μ_F = {c.mu_F:.3g}: for softmax the Fisher matrix is singular, Theorem 1 says nothing; "
    return why + "choose κ as a fraction of the measured Slater margin and have the policy certified"


def _over(x: float, y: float) -> float:
    """Return x/y for y > 0, and inf for y = 0."""
    return x / y if y > 0 else math.inf


def G(features: np.ndarray | None = None) -> float:
    """Return G, the largest norm of the score of log-linear softmax (Assumption 2).

    G = sup_π ‖∇log π(a|s)‖ = max ‖Φ_sa − Φ_sa'‖, where the maximum is over states s and pairs of actions a, a'.
    The features Φ are [S, A, d]; None stands for tabular softmax, with G = √2.
    """
    if features is None:
        return math.sqrt(2)
    far = (np.linalg.norm(features - features[:, [a]], axis=-1).max() for a in range(features.shape[1]))
    return float(max(far))


def M(features: np.ndarray | None = None) -> float:
    """Return M, an upper bound on the derivative of the score, sup_π ‖∇²log π‖, for log-linear softmax (Assumption 2).

    M = max ‖Φ_sa − Φ_sa'‖²/4 (Popoviciu), where the maximum is over states s and pairs of actions a, a'.
    The features Φ are [S, A, d]; None stands for tabular softmax, with M = ½.
    """
    return G(features) ** 2 / 4


def mu_F(F: np.ndarray) -> float:
    """Return the smallest eigenvalue μ_F (Assumption 3) of the Fisher matrix F [d, d] = Σ d(s,a) score scoreᵀ at one θ.

    Return 0 if the eigenvalue is so small that it may be rounding.
    """
    eigenvalues = np.linalg.eigvalsh(F)
    rounding = len(F) * np.finfo(float).eps * eigenvalues[-1]
    return float(eigenvalues[0]) if eigenvalues[0] > rounding else 0.0


def lam_max(c: Constants) -> float:
    """Return Λ, the upper bound that λ is projected to while learning (Lemma 10, with φ − κ in place of φ).

    Λ = 2(r⁺−r⁻)/((1−γ)(φ−κ)) ≥ 2 Σ_i λ_i*, where φ is the Slater margin, κ the margin `c.kappa`, and r⁺−r⁻ the range of
    the reward.
    """
    return dual.lam_max_of(c.gamma, c.slater, c.kappa, c.r_range)


def weight(c: Constants) -> float:
    """Return the weight m = 1 + IΛ, which is at least 1 + Σ_i λ_i for all multipliers λ ∈ [0, Λ]ᴵ."""
    return 1 + c.I * lam_max(c)


def L_J(c: Constants) -> float:
    """Return L_J, an upper bound on the norm ‖∇²J_h‖ of the Hessian of J_h for a signal |h| ≤ H (Lemma 1).

    L_J = H(M/(1−γ)² + 2G²/(1−γ)³), where G and M bound ‖∇log π‖ and ‖∇²log π‖. H(M + G²)/(1−γ)² is a bound too, since
    E scoreₜ = 0.
    """
    return c.h_max * (c.M / (1 - c.gamma) ** 2 + 2 * c.G**2 / (1 - c.gamma) ** 3)


def L_L(c: Constants) -> float:
    """Return m L_J, an upper bound on the norm ‖∇²J_L(·, λ)‖ of the Hessian of the Lagrangian for λ ∈ [0, Λ]ᴵ (App. C).

    m is `weight`, which the paper omits, and L_J bounds the Hessian of a single J_h.
    """
    return weight(c) * L_J(c)


def grad_bound(c: Constants) -> float:
    """Return HG/(1−γ)², an upper bound on the gradient norm ‖∇J_h‖ for a signal |h| ≤ H (Lemma 2).

    G bounds ‖∇log π‖.
    """
    return c.h_max * c.G / (1 - c.gamma) ** 2


def omega_star_bound(c: Constants) -> float:
    """Return the bound mHG/(μ_F(1−γ)²) on the norm of the natural gradient ω* = F⁻¹∇J_L (Lemma 13).

    The module's head explains the symbols.
    """
    return _over(weight(c) * grad_bound(c), c.mu_F)


def alpha(c: Constants) -> float:
    """Return the step size α = 1/(4G²) of the SGD that estimates w = (1−γ)ω (Lemma 14); G bounds ‖∇log π‖."""
    return 1 / (4 * c.G**2)


def eta1(c: Constants) -> float:
    """Return the step size η₁ = μ_F²/(4G²mL_J) of θ (Theorem 1, which omits m = `weight`); it is 0 if μ_F = 0.

    The module's head explains the symbols.
    """
    return c.mu_F**2 / (4 * c.G**2 * L_L(c))


def eta2(K: float) -> float:
    """Return the step size η₂ = 1/√K of λ (Theorem 1)."""
    return 1 / math.sqrt(K)


def sgd_bracket(c: Constants) -> float:
    """Return the factor B of `sgd_error` (Lemma 14): mH/(1−γ)² · [2(G²/μ_F + 2)√d + G²/μ_F].

    In the paper, the factor m = `weight` is missing at the 2 inside the brackets. The module's head explains the other
    symbols.
    """
    ratio = _over(c.G**2, c.mu_F)
    return weight(c) * c.h_max / (1 - c.gamma) ** 2 * (2 * (ratio + 2) * math.sqrt(c.d) + ratio)


def sgd_error(c: Constants, N: float) -> float:
    """Return the bound 4B²/(μ_F N) on the error E‖ω − ω*‖² of the SGD with N samples (Lemma 14).

    ω is the estimated natural gradient, ω* the exact one; B is `sgd_bracket`, and μ_F is `c.mu_F`.
    """
    B = sgd_bracket(c)
    return _over(4 * B * B / N, c.mu_F)


def first_order(c: Constants, K: float, N: float) -> float:
    """Return a bound on the mean over iterates of E‖∇J_L‖², the squared gradient of the Lagrangian (Lemma 4).

    The bound is (16G⁴mL_J/μ_F²)[2mH/((1−γ)K) + 2IH²η₂/(1−γ)²] + (μ_F²+2G⁴) E‖ω−ω*‖²; the last factor is `sgd_error`.
    The module's head explains the other symbols.
    """
    J = c.h_max / (1 - c.gamma)
    ascent = 2 * weight(c) * J / K + 2 * c.I * J**2 * eta2(K)
    return _over(16 * c.G**4 * L_L(c) * ascent, c.mu_F**2) + (c.mu_F**2 + 2 * c.G**4) * sgd_error(c, N)


def omega_norm(c: Constants, K: float, N: float) -> float:
    """Return a bound on the mean over iterates of E‖ω‖², the squared norm of the estimated natural gradient (App. D.3).

    The bound is 2 E‖ω−ω*‖² + (2/μ_F²) mean E‖∇J_L‖², where ω* is the exact natural gradient. The two expectations are
    bounded by `sgd_error` and `first_order`; μ_F is `c.mu_F`.
    """
    return 2 * sgd_error(c, N) + _over(2 * first_order(c, K, N), c.mu_F**2)


def epsilon_KN(c: Constants, K: float, N: float) -> float:
    """Return ε_KN, a bound on the error of learning with K iterations of N samples (Lemma 5):

    ε_KN = (Mη₁/2) mean E‖ω‖² + log A/(η₁K) + G√E‖ω−ω*‖² ≥ mean E ΔJ_L − √ε_bias/(1−γ).

    ΔJ_L is the gap of an iterate in the Lagrangian. The means over iterates come from `omega_norm` and `sgd_error`. The
    module's head explains the other symbols.
    """
    if why_infinite(c):
        return math.inf
    drift = c.M * eta1(c) / 2 * omega_norm(c, K, N)
    return drift + math.log(c.A) / (eta1(c) * K) + c.G * math.sqrt(sgd_error(c, N))


def dual_terms(c: Constants, K: float, N: float) -> float:
    """Return a bound on the error of the dual steps, (η₂/2) Σ_i E(Ĵ_gi − κ)² (App. F.1).

    The bound is (2/√K + 1/N) IH²/(1−γ)², where H bounds the signals. It uses κ ≤ H/(1−γ), and E T² ≤ 2/(1−γ)² for the
    random horizon T of a rollout.
    """
    return c.I * (c.h_max / (1 - c.gamma)) ** 2 * (2 * eta2(K) + 1 / N)


def class_gap(c: Constants) -> float:
    """Return a bound on how far the best policy of the class Θ is below the best of all policies Π (for Lemma 6):

    (A ε₂/(2(1−γ)²))(r⁺−r⁻ + ΛH) ≥ max_Π J_r − max_Θ J_r.

    Both maxima are over policies with J_g ≥ κ. A is the number of actions, and ε₂ = ε_bias2 the approximation error of
    the class. The module's head explains r⁺−r⁻, Λ and H.
    """
    return c.A * c.eps_bias2 / (2 * (1 - c.gamma) ** 2) * (c.r_range + lam_max(c) * c.h_max)


def conservative_gap(c: Constants, kappa: float) -> float:
    """Return a bound on the loss of reward if the limits are tightened by the margin κ (Lemma 7):

    κ(r⁺−r⁻)/((1−γ)φ) + class_gap ≥ J_r(π*_θ) − J_r(π*_θ,κ).

    π*_θ is the best policy of the class that meets the limits, π*_θ,κ the best one that meets the tightened limits, φ
    the Slater margin, and r⁺−r⁻ the range of the reward. The bound is loose: the true slope in κ is about λ*.
    """
    return kappa * c.r_range / ((1 - c.gamma) * c.slater) + class_gap(c)


def kappa_explicit(c: Constants, K: float) -> float:
    """Return the terms of the margin κ other than those for ε_KN, bias and noise: IΛ/√K + 4IH²/(Λ(1−γ)²√K).

    If `c.kappa` = 0, these are the last two terms of κ in Theorem 1. H bounds the signals, and Λ the multipliers.
    """
    return c.I * lam_max(c) * eta2(K) + 2 / lam_max(c) * dual_terms(c, K, math.inf)


def kappa(c: Constants, K: float, N: float) -> float:
    """Return the margin κ of Theorem 1 (App. F.2, by Lemma 12) for K iterations of N samples.

    κ = (2/Λ)[√ε_bias/(1−γ) + class_gap + ε_KN + IΛ²/(2√K) + dual_terms]

    Λ is `lam_max`; the other terms are functions of this module. If the result is at most `c.kappa`, then E J_gi(π̄) ≥
    0: in expectation, the uniform mixture π̄ of the iterates meets every limit.
    """
    bias = math.sqrt(c.eps_bias) / (1 - c.gamma) + class_gap(c)
    return kappa_explicit(c, K) + 2 / lam_max(c) * (bias + epsilon_KN(c, K, N) + dual_terms(c, math.inf, N))


def objective_bound(c: Constants, K: float, N: float) -> float:
    """Return the bound of Theorem 1 on the gap E[J_r(π*_θ) − J_r(π̄)] of the uniform mixture π̄ of the iterates:

    √ε_bias/(1−γ) + ε_KN + dual_terms + conservative_gap(κ).

    π*_θ is the best policy of the class that meets the limits. The terms are functions of this module.
    """
    learning = math.sqrt(c.eps_bias) / (1 - c.gamma) + epsilon_KN(c, K, N) + dual_terms(c, K, N)
    return learning + conservative_gap(c, kappa(c, K, N))


def _smallest(f: Callable[[float], float], bound: float) -> float:
    """Return the smallest whole number n ≥ 1 with f(n) ≤ `bound`, for a function of the form f(n) = p/√n + q/n.

    The values of f at very large and very small n give p and q. With b = `bound`, √n = (p + √(p² + 4qb))/(2b).
    """
    if not 0 < bound < math.inf:
        raise InputError(f"eps = {2 * bound!r}: must be positive and finite")
    p, q = f(2.0**200) * 2.0**100, f(2.0**-200) * 2.0**-200
    root = (p + math.sqrt(p * p + 4 * q * bound)) / (2 * bound)
    return max(1, math.ceil(root * root)) if math.isfinite(root * root) else math.inf


def K_of(c: Constants, eps: float) -> float:
    """Return the smallest number of iterations K for which the terms with K in `objective_bound` are at most ε/2.

    The policy class is taken to have no bias. K is O(I²/(φ⁴(1−γ)⁴ε²)), where φ is the Slater margin, or inf.
    """
    no_bias = replace(c, eps_bias=0.0, eps_bias2=0.0)
    return _smallest(lambda K: objective_bound(no_bias, K, math.inf), eps / 2)


def N_of(c: Constants, eps: float) -> float:
    """Return the smallest number of samples N for which the terms with N in `objective_bound` are at most ε/2.

    The policy class is taken to have no bias. N is O(I²Λ²/((1−γ)⁴ε²)), where Λ bounds the multipliers, or inf.
    """
    no_bias = replace(c, eps_bias=0.0, eps_bias2=0.0)
    return _smallest(lambda N: objective_bound(no_bias, math.inf, N), eps / 2)


def trajectories(K: float, N: float) -> float:
    """Return 4NK, the number of trajectories: each of N samples in K iterations needs four (Algorithms 1 and 2).

    They are one walk to draw (s, a), and one each to estimate Q, V and J.
    """
    return 4 * N * K


@dataclass(frozen=True)
class Plan:
    """All numbers that Theorem 1 gives for one ε, or for one K and N; `verdict` explains them in sentences.

    K is the number of iterations, N the number of samples per iteration, and ε the accepted gap. The other numbers are
    those of the functions with the same names.
    """

    eps: float
    K: float
    N: float
    kappa: float
    kappa_explicit: float
    slater: float
    lam_max: float
    alpha: float
    eta1: float
    eta2: float
    epsilon_KN: float
    objective_bound: float
    trajectories: float
    steps: float  # expected: T ~ Geo(1−γ) for each trajectory
    verdict: tuple[str, ...]


def plan(c: Constants, eps: float, K: float | None = None, N: float | None = None) -> Plan:
    """Return all numbers of Theorem 1 for a gap of ε; K and N default to `K_of` and `N_of`.

    With these defaults and without bias, κ ≤ (1−γ)φε/(r⁺−r⁻), where φ is the Slater margin and r⁺−r⁻ the range of the
    reward. So `c.kappa` = φ/2 is enough for every ε up to half the range of J_r.
    """
    K_eps, N_eps = K_of(c, eps), N_of(c, eps)
    K, N = K_eps if K is None else K, N_eps if N is None else N
    if not (K >= 1 and N >= 1):
        raise InputError(f"K = {K!r}, N = {N!r}: both must be at least 1")
    values = (kappa(c, K, N), kappa_explicit(c, K), c.slater, lam_max(c), alpha(c), eta1(c), eta2(K))
    bounds, cost = (epsilon_KN(c, K, N), objective_bound(c, K, N)), trajectories(K, N)
    return Plan(eps, K, N, *values, *bounds, cost, cost / (1 - c.gamma), tuple(_verdict(c, eps, K, N)))


def _verdict(c: Constants, eps: float, K: float, N: float) -> list[str]:
    """Return sentences that compare κ with the Slater margin and `c.kappa`, and the bound on the gap with ε."""
    k, bound, void = kappa(c, K, N), objective_bound(c, K, N), why_infinite(c)
    least, part = (kappa_explicit(c, K), f" (its terms without ε_KN at K = {K})") if void else (k, "")
    said = [void] if void else []
    if least >= c.slater:
        margin = f"the Slater margin {c.slater:.3g}"
        said += [f"κ = {least:.3g}{part} exceeds {margin}: the conservative problem is infeasible"]
    if void:
        return said
    if c.kappa < k < c.slater:
        said += [f"κ = {k:.3g} exceeds kappa = {c.kappa:.3g}, which sets Λ: zero violation is not proved"]
    if k <= c.kappa:
        said += [f"κ = {k:.3g}: no violation in the mean over runs, and a gap in J_r of at most {bound:.3g}"]
    if bound >= c.r_range / (1 - c.gamma):
        said += [f"the gap's bound {bound:.3g} is not below (r⁺−r⁻)/(1−γ), the range of J_r: it says nothing"]
    if bound > eps * (1 + 1e-9):
        said += [f"the gap's bound {bound:.3g} exceeds ε = {eps:.3g}: take more K and N, or reduce the bias"]
    return said
