"""Theorem 1 and its lemmas against brute force, finite differences, linear programs and simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from clearance.core.errors import InputError
from clearance.exact import theory
from clearance.exact.theory import Constants

seeds = st.integers(0, 2**32 - 1)
LEARNABLE = Constants(gamma=0.8, I=2, d=3, A=4, G=1.3, M=0.4, mu_F=0.2, slater=0.5, kappa=0.25, r_range=0.9)
BIASED = replace(LEARNABLE, eps_bias=0.03, eps_bias2=0.001)
PAPER = Constants(gamma=0.8, I=1, d=35, A=5, G=math.sqrt(2), M=0.5, mu_F=0.0, slater=0.3580401729, kappa=0.0)


# A small finite model, evaluated exactly.


def model(rng, S=3, A=3, I=1, d=2):
    P = rng.dirichlet(np.ones(S), size=(S, A))
    h = rng.uniform(-1, 1, size=(1 + I, S, A))
    return P, h, np.full(S, 1 / S), rng.normal(size=(S, A, d))


def softmax(features, theta):
    logits = features @ theta
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def score(features, pi):
    return features - np.einsum("sa,sad->sd", pi, features)[:, None]


def occupancy(P, rho, gamma, pi):
    P_pi = np.einsum("sa,sat->st", pi, P)
    return (1 - gamma) * np.linalg.solve(np.eye(len(rho)) - gamma * P_pi.T, rho)[:, None] * pi


def values(P, h, gamma, pi):
    """Q[1+I,S,A] and V[1+I,S]."""
    P_pi = np.einsum("sa,sat->st", pi, P)
    V = np.linalg.solve(np.eye(len(P)) - gamma * P_pi, np.einsum("sa,isa->si", pi, h)).T
    return h + gamma * np.einsum("sat,it->isa", P, V), V


def J(P, h, rho, gamma, pi):
    return values(P, h, gamma, pi)[1] @ rho


def grad(P, h, rho, gamma, features, theta):
    """∇J[1+I,d] by the policy gradient theorem."""
    pi = softmax(features, theta)
    d = occupancy(P, rho, gamma, pi)
    return np.einsum("sa,isa,sad->id", d, values(P, h, gamma, pi)[0], score(features, pi)) / (1 - gamma)


def fisher(P, rho, gamma, features, theta):
    pi = softmax(features, theta)
    return np.einsum("sa,sad,sae->de", occupancy(P, rho, gamma, pi), *[score(features, pi)] * 2)


def differences(f, theta, step=1e-5):
    return np.stack([(f(theta + e) - f(theta - e)) / (2 * step) for e in step * np.eye(len(theta))])


# Assumptions 2 and 3.


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 4), st.integers(2, 5), st.integers(1, 4), st.floats(0.1, 30))
def test_G_and_M_bound_every_policy_and_are_attained(seed, S, A, d, temperature):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(S, A, d))
    G, M = theory.G(features), theory.M(features)
    for pi in (softmax(features, temperature * rng.normal(size=d)), rng.dirichlet(np.full(A, 0.2), size=S)):
        scores = score(features, pi)
        covariance = np.einsum("sa,sad,sae->sde", pi, scores, scores)
        assert np.linalg.norm(scores, axis=-1).max() <= G * (1 + 1e-12)
        assert np.linalg.eigvalsh(covariance).max() <= M * (1 + 1e-12)
    corners = [score(features, np.eye(A)[np.full(S, a)]) for a in range(A)]
    assert np.linalg.norm(corners, axis=-1).max() == pytest.approx(G)
    a, b = np.triu_indices(A, 1)
    pairs = [(np.eye(A)[np.full(S, i)] + np.eye(A)[np.full(S, j)]) / 2 for i, j in zip(a, b, strict=True)]
    spread = [np.einsum("sa,sad,sae->sde", pi, *[score(features, pi)] * 2) for pi in pairs]
    assert np.linalg.eigvalsh(spread).max() == pytest.approx(M)


def test_M_bounds_the_curvature_of_log_pi():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(2, 4, 3))
    for theta in rng.normal(size=(20, 3)):
        hessian = differences(lambda t: score(features, softmax(features, t)), theta)  # [d,S,A,d]
        assert np.linalg.norm(hessian.transpose(1, 2, 0, 3), ord=2, axis=(-2, -1)).max() <= theory.M(features)


@pytest.mark.parametrize(("S", "A"), [(1, 2), (3, 4)])
def test_tabular_is_the_one_hot_case(S, A):
    one_hot = np.eye(S * A).reshape(S, A, S * A)
    assert theory.G(one_hot) == pytest.approx(theory.G()) == pytest.approx(math.sqrt(2))
    assert theory.M(one_hot) == pytest.approx(theory.M()) == pytest.approx(0.5)


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_mu_F_is_zero_for_softmax_and_the_least_eigenvalue_otherwise(seed):
    rng = np.random.default_rng(seed)
    P, _, rho, features = model(rng)
    one_hot = np.eye(9).reshape(3, 3, 9)
    assert theory.mu_F(fisher(P, rho, 0.7, one_hot, 3 * rng.normal(size=9))) == 0.0
    F = fisher(P, rho, 0.7, features, rng.normal(size=2))
    mu = theory.mu_F(F)
    assert mu > 0 and np.linalg.det(F - mu * np.eye(2)) == pytest.approx(0, abs=1e-12)
    assert mu <= theory.G(features) ** 2 / 2  # the rule of Constants: trace F ≤ G²
    assert theory.mu_F(np.zeros((2, 2))) == 0.0


# Lemmas 1, 2 and 13: smoothness, gradient, natural gradient.


@settings(max_examples=40, deadline=None)
@given(seeds, st.floats(0, 0.9), st.floats(0.1, 10))
def test_smoothness_gradient_and_direction_are_bounded(seed, gamma, h_max):
    rng = np.random.default_rng(seed)
    P, h, rho, features = model(rng, I=2)
    h, theta = h * h_max, rng.normal(size=2)
    gradient = grad(P, h, rho, gamma, features, theta)
    numeric = differences(lambda t: J(P, h, rho, gamma, softmax(features, t)), theta).T
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5 * h_max / (1 - gamma) ** 2)

    F = fisher(P, rho, gamma, features, theta)
    c = Constants(gamma, 2, 2, 3, theory.G(features), theory.M(features), theory.mu_F(F), 0.1 * h_max,
                  0.05 * h_max, 2 * h_max, h_max)  # fmt: skip
    assert np.linalg.norm(gradient, axis=1).max() <= theory.grad_bound(c)
    hessian = differences(lambda t: grad(P, h, rho, gamma, features, t), theta).transpose(1, 0, 2)
    sharper = h_max * (c.M + c.G**2) / (1 - gamma) ** 2  # the remark at L_J
    assert np.linalg.norm(hessian, ord=2, axis=(1, 2)).max() <= min(theory.L_J(c), sharper) * (1 + 1e-6)
    lam = rng.uniform(0, theory.lam_max(c), size=2)
    omega_star = np.linalg.solve(F, gradient[0] + lam @ gradient[1:])
    assert np.linalg.norm(omega_star) <= theory.omega_star_bound(c)


def test_the_lagrangian_is_not_L_J_smooth():
    """Correction 2: with g = r and λ = Λ the curvature of J_L exceeds L_J, and stays below m L_J."""
    P, h, rho, features = model(np.random.default_rng(3))
    gamma, theta = 0.5, np.zeros(2)
    c = Constants(gamma, 1, 2, 3, theory.G(features), theory.M(features), 0.0, 0.01, 0.0, r_range=2.0)
    lagrangian = h[:1] * (1 + theory.lam_max(c))
    hessian = differences(lambda t: grad(P, lagrangian, rho, gamma, features, t)[0], theta)
    assert theory.L_J(c) < np.linalg.norm(hessian, ord=2) <= theory.L_L(c)


def test_signals_scale_linearly():
    """Units: all signals times 7 leave Λ alone, multiply J, ∇J, ω by 7 and divide η₁ by 7."""
    c, x = LEARNABLE, 7.0
    big = replace(c, slater=x * c.slater, kappa=x * c.kappa, r_range=x * c.r_range, h_max=x * c.h_max)
    assert theory.lam_max(big) == pytest.approx(theory.lam_max(c))
    for f in (theory.L_J, theory.grad_bound, theory.omega_star_bound, lambda c: 1 / theory.eta1(c)):
        assert f(big) == pytest.approx(x * f(c))
    assert theory.sgd_error(big, 9) == pytest.approx(x**2 * theory.sgd_error(c, 9))


# Lemmas 6, 7, 10 and 12: duality, by linear programs.


def optimum(P, h, rho, gamma, kappa, floor=0.0):
    """max J_r subject to J_g ≥ κ and π ≥ floor, over occupancy measures: value and λ*."""
    S, A = h.shape[1:]
    flow = (np.eye(S)[:, :, None] - gamma * P.transpose(2, 0, 1)).reshape(S, S * A)
    floors = floor * np.kron(np.eye(S), np.ones((A, A))) - np.eye(S * A)  # floor · Σ_a' d(s,a') − d(s,a) ≤ 0
    above = np.vstack([-h[1:].reshape(-1, S * A) / (1 - gamma), floors])
    limits = np.concatenate([np.full(len(h) - 1, -kappa), np.zeros(S * A)])
    lp = linprog(-h[0].ravel() / (1 - gamma), A_ub=above, b_ub=limits, A_eq=flow, b_eq=(1 - gamma) * rho)
    assert lp.status == 0
    return -lp.fun, -lp.ineqlin.marginals[: len(h) - 1]


@settings(max_examples=40, deadline=None)
@given(seeds, st.floats(0, 0.99), st.floats(0.01, 1))
def test_multipliers_price_of_kappa_and_price_of_the_class_are_bounded(seed, fraction, share):
    rng, gamma = np.random.default_rng(seed), 0.6
    P, h, rho, _ = model(rng, I=1)
    h[0] = (h[0] - h[0].min()) * rng.uniform(0.1, 3)
    h[1] += 0.05 - h[1].max(axis=1).min()  # in every state some action has g ≥ 0.05
    slater = optimum(P, h[[1, 1]], rho, gamma, 0)[0]
    kappa, h_max = fraction * slater, np.abs(h).max()
    c = Constants(gamma, 1, 2, 3, 1, 1, 0, slater, kappa, r_range=float(np.ptp(h[0])), h_max=h_max)
    value, lam = optimum(P, h, rho, gamma, c.kappa)
    assert lam.sum() <= theory.lam_max(c) / 2 * (1 + 1e-9)
    assert optimum(P, h, rho, gamma, 0)[0] - value <= theory.conservative_gap(c, c.kappa) + 1e-9
    J_r, J_g = J(P, h, rho, gamma, rng.dirichlet(np.ones(3), size=3))
    zeta = value - J_r + theory.lam_max(c) * max(c.kappa - J_g, 0)
    assert max(c.kappa - J_g, 0) <= 2 * zeta / theory.lam_max(c) + 1e-9  # Lemma 12

    # The class {π ≥ floor} comes within ε_bias2 = 2·floor of every policy; Slater pays if |ΔJ_g| ≤ φ − κ.
    eps = share * (slater - kappa) * (1 - gamma) ** 2 / (c.A * h_max)
    c, floor = replace(c, eps_bias2=eps), eps / 2
    in_class = optimum(P, h, rho, gamma, kappa, floor)[0]
    assert value - in_class <= theory.class_gap(c) + 1e-9
    assert optimum(P, h, rho, gamma, 0, floor)[0] - in_class <= theory.conservative_gap(c, kappa) + 1e-9


def test_the_printed_lam_max_is_too_small():
    """Correction 1: one state, r = (1, 1, 0), g = (0, 0.4, 0.5); for κ(1−γ) in (0.4, 0.5) λ* is 10."""
    gamma, h = 0.5, np.array([[[1.0, 1.0, 0.0]], [[0.0, 0.4, 0.5]]])
    c = Constants(gamma, 1, 3, 3, 1, 0.25, 0, slater=1.0, kappa=0.9)
    lam = optimum(np.ones((1, 3, 1)), h, np.ones(1), gamma, c.kappa)[1][0]
    assert lam == pytest.approx(10) and 1 / ((1 - gamma) * c.slater) < lam <= theory.lam_max(c) / 2


@settings(max_examples=40, deadline=None)
@given(seeds, st.floats(0, 0.9), st.floats(1e-4, 0.2))
def test_imitation_within_eps_costs_at_most_the_terms_of_class_gap(seed, gamma, eps):
    rng = np.random.default_rng(seed)
    P, h, rho, _ = model(rng, S=3, A=4)
    pi = rng.dirichlet(np.ones(4), size=3)
    shift = rng.choice([-1, 1], size=(3, 1)) * np.array([1, 1, -1, -1]) * np.minimum(eps, pi.min() / 2)
    gap = np.abs(J(P, h, rho, gamma, pi) - J(P, h, rho, gamma, pi + shift))
    imitation = 4 * np.abs(shift).max() / (2 * (1 - gamma) ** 2)
    assert np.all(gap <= imitation * np.ptp(h, axis=(1, 2)) * (1 + 1e-9))


def test_the_printed_imitation_gap_is_too_small():
    """Correction 7: γ = 0, four actions, r = (1, 1, 0, 0): moving ε twice costs 2ε, the paper allows ε."""
    eps, gamma = 0.1, 0.0
    P, h, pi = np.ones((1, 4, 1)), np.array([[[1.0, 1.0, 0.0, 0.0]]] * 2), np.full((1, 4), 0.25)
    shift = eps * np.array([[1, 1, -1, -1]])
    gap = (J(P, h, np.ones(1), gamma, pi + shift) - J(P, h, np.ones(1), gamma, pi))[0]
    c = Constants(gamma, 1, 2, 4, 1, 1, 0, slater=1.0, kappa=0.0, eps_bias2=eps)
    assert eps / (1 - gamma) ** 2 < gap <= theory.class_gap(c)


# Lemma 14 and the dual terms: geometric rollouts.


def rollouts(rng, pi, h, gamma, size):
    """Σ_{t<T} h(a_t), T ~ Geo(1−γ), in a model with one state. [size]"""
    return rng.multinomial(rng.geometric(1 - gamma, size=size), pi) @ h


def test_sgd_error_bounds_averaged_sgd():
    """1000 runs in w with rollouts, one state: mean ‖ω − ω*‖² is below the bound and falls with N."""
    rng, gamma, runs, errors = np.random.default_rng(5), 0.6, 1000, []
    features, theta, lam = rng.normal(size=(1, 3, 2)), rng.normal(size=2), 2.0
    h = rng.uniform(-1, 1, (2, 3))
    pi, signal = softmax(features, theta)[0], h[0] + lam * h[1]
    scores = score(features, pi[None])[0]
    F = np.einsum("a,ad,ae->de", pi, scores, scores)
    G, M = theory.G(features), theory.M(features)
    c = Constants(gamma, 1, 2, 3, G, M, theory.mu_F(F), slater=1.0, kappa=0.0, r_range=0.4)
    assert theory.lam_max(c) == pytest.approx(lam)
    omega_star = np.linalg.solve(F, pi @ (scores * signal[:, None])) / (1 - gamma)
    for N in (50, 200):
        w, total = np.zeros((runs, 2)), np.zeros((runs, 2))
        for _ in range(N):
            total += w
            a = rng.choice(3, size=runs, p=pi)
            more = rng.random(runs) < gamma
            Q = signal[a] + more * rollouts(rng, pi, signal, gamma, runs)
            error = np.sum(scores[a] * w, axis=1) - (Q - rollouts(rng, pi, signal, gamma, runs))
            w = w - theory.alpha(c) * error[:, None] * scores[a]
        errors.append(np.sum((total / N / (1 - gamma) - omega_star) ** 2, axis=1).mean())
        assert errors[-1] <= theory.sgd_error(c, N)
    assert errors[1] < 0.6 * errors[0]


@settings(max_examples=30, deadline=None)
@given(seeds, st.floats(0, 0.95), st.integers(1, 20), st.floats(0, 1))
def test_dual_terms_bound_the_second_moment(seed, gamma, N, fraction):
    """½E(Ĵ_g − κ)² by the exact recursion for the moments of V̂ = g + 1{go on}V̂'."""
    rng, h_max = np.random.default_rng(seed), 1.7
    P, h, rho, _ = model(rng)
    g, pi = h_max * np.sign(h[1] + rng.uniform(-1, 1)), rng.dirichlet(np.ones(3), size=3)
    P_pi, V = np.einsum("sa,sat->st", pi, P), values(P, g[None], gamma, pi)[1][0]
    moments = np.einsum("sa,sa->s", pi, g**2 + 2 * gamma * g * (P @ V))
    second = np.linalg.solve(np.eye(3) - gamma * P_pi, moments) @ rho
    kappa = fraction * h_max / (1 - gamma)
    exact = ((V @ rho - kappa) ** 2 + (second - (V @ rho) ** 2) / N) / 2
    c = Constants(gamma, 1, 2, 3, 1, 1, 0, slater=0.5, kappa=0, h_max=h_max)
    assert exact <= theory.dual_terms(c, 1, N) * (1 + 1e-9)


def test_the_printed_second_moment_is_too_small():
    """Correction 8: g = 1 gives E Ĵ_g² ≥ 1/(1−γ)², which the paper puts below (K+1)/(2K(1−γ)²); and 2η₂ is
    not enough with N = 1: g = −1, κ near 1/(1−γ)."""
    gamma, T = 0.9, np.arange(1, 2000)
    p = (1 - gamma) * gamma ** (T - 1)
    assert p @ T**2 >= 1 / (1 - gamma) ** 2 > 51 / 100 / (1 - gamma) ** 2
    exact = p @ (T + 1 / (1 - gamma)) ** 2 / 2
    c = Constants(gamma, 1, 2, 3, 1, 1, 0, slater=0.5, kappa=0)
    assert 2 / (1 - gamma) ** 2 < exact <= theory.dual_terms(c, 1, 1)


# Lemmas 4 and 5, and Theorem 1.


def test_a_run_obeys_lemmas_4_and_5():
    """The exact algorithm (N = ∞) on a small model, with μ_F the least over the θ visited."""
    rng, gamma, K = np.random.default_rng(11), 0.3, 300
    P, h, rho, features = model(rng, S=2, A=3)
    h[1] = h[1] * 0.3 + 0.1
    comparator = softmax(features, np.array([1.0, -1.0]))
    G, M = theory.G(features), theory.M(features)
    slater = J(P, h, rho, gamma, comparator)[1]
    base = Constants(gamma, 1, 2, 3, G, M, 0.0, slater, slater / 2, r_range=float(np.ptp(h[0])))
    guess = 0.5 * theory.mu_F(fisher(P, rho, gamma, features, np.zeros(2)))
    c, theta, lam, seen = replace(base, mu_F=guess), np.zeros(2), 0.0, []
    for _ in range(K):
        pi, F = softmax(features, theta), fisher(P, rho, gamma, features, theta)
        gradient = np.array([1, lam]) @ grad(P, h, rho, gamma, features, theta)
        omega = np.linalg.solve(F, gradient)
        Q, V = values(P, h, gamma, pi)
        A_L = np.einsum("i,isa->sa", [1, lam], Q - V[:, :, None])
        residual = score(features, pi) @ omega * (1 - gamma) - A_L
        bias = np.sum(occupancy(P, rho, gamma, comparator) * residual**2)
        gap = np.array([1, lam]) @ (J(P, h, rho, gamma, comparator) - V @ rho)
        seen.append((theory.mu_F(F), gradient @ gradient, omega @ omega, bias, gap))
        theta = theta + theory.eta1(c) * omega
        lam = np.clip(lam - theory.eta2(K) * ((V @ rho)[1] - c.kappa), 0, theory.lam_max(c))
    mu, gradients, omegas, biases, gaps = np.array(seen).T
    assert mu.min() >= guess  # so Assumption 3 holds along the run
    assert gradients.mean() <= theory.first_order(c, K, math.inf)
    assert omegas.mean() <= theory.omega_norm(c, K, math.inf)
    assert gaps.mean() <= math.sqrt(biases.max()) / (1 - gamma) + theory.epsilon_KN(c, K, math.inf)


def test_closed_forms_by_hand():
    c, K, N = Constants(0.5, 1, 1, 2, G=1.0, M=0.25, mu_F=0.5, slater=1.0, kappa=0.0, eps_bias2=0.05), 4, 1000
    expected = {
        theory.lam_max: 4, theory.weight: 5, theory.L_J: 1 + 16, theory.L_L: 85, theory.grad_bound: 4,
        theory.omega_star_bound: 40, theory.alpha: 1 / 4, theory.eta1: 1 / 1360, theory.sgd_bracket: 200,
        theory.class_gap: 2 * 0.05 * 2 * (1 + 4),
    }  # fmt: skip
    for f, value in expected.items():
        assert f(c) == pytest.approx(value, rel=1e-12), f.__name__
    assert theory.sgd_error(c, N) == pytest.approx(320)
    assert theory.first_order(c, K, N) == pytest.approx(5440 * (5 + 4) + 2.25 * 320)
    assert theory.omega_norm(c, K, N) == pytest.approx(2 * 320 + 8 * 49680)
    eps_KN = 398080 / 8 / 1360 + 1360 * math.log(2) / 4 + math.sqrt(320)
    assert theory.epsilon_KN(c, K, N) == pytest.approx(eps_KN)
    assert theory.dual_terms(c, K, N) == pytest.approx(4 * (1 + 0.001))
    assert theory.kappa_explicit(c, K) == pytest.approx(2 + 2)
    kappa = (1 + eps_KN + 0.004) / 2 + 4
    assert theory.kappa(c, K, N) == pytest.approx(kappa)
    assert theory.objective_bound(c, K, N) == pytest.approx(eps_KN + 4.004 + 2 * kappa + 1)


def test_composition_is_the_corrected_last_line_of_appendix_D():
    c, K, N = LEARNABLE, 500.0, 2000.0
    G, M, mu, m, B, g = c.G, c.M, c.mu_F, theory.weight(c), theory.sgd_bracket(c), 1 - c.gamma
    line = 4 * G**2 * m * theory.L_J(c) * math.log(c.A) / (mu**2 * K) + 2 * G * B / math.sqrt(N * mu)
    line += M * (4 * mu + 4 * G**4 / mu) / (2 * G**2 * m * theory.L_J(c) * N) * B**2
    line += 4 * M * G**2 / (mu**2 * g) * (2 * m / K + 2 * c.I / (math.sqrt(K) * g))
    assert theory.epsilon_KN(c, K, N) == pytest.approx(line)
    assert theory.eta1(c) * theory.L_L(c) == pytest.approx(mu**2 / (4 * G**2))


@pytest.mark.parametrize("bound", [theory.first_order, theory.omega_norm, theory.epsilon_KN, theory.kappa,
                                   theory.objective_bound])  # fmt: skip
@settings(max_examples=25, deadline=None)
@given(K=st.floats(1, 1e12), N=st.floats(1, 1e12), factor=st.floats(1.01, 1e3))
def test_bounds_fall_with_K_and_with_N(bound, K, N, factor):
    at = bound(BIASED, K, N)
    assert 0 < bound(BIASED, K * factor, N) < at or at == pytest.approx(bound(BIASED, math.inf, N))
    assert 0 < bound(BIASED, K, N * factor) < at or at == pytest.approx(bound(BIASED, K, math.inf))


@pytest.mark.parametrize(("slater", "expected"), [(0.3580401729, 0.377), (0.0411263785, 2.91)])
def test_kappa_on_the_instance_of_the_paper(slater, expected):
    c = replace(PAPER, slater=slater)
    by_hand = 2 / (0.2 * slater * math.sqrt(7000)) + 2 * slater / (math.sqrt(7000) * 0.2)
    assert theory.kappa_explicit(c, 7000) == pytest.approx(by_hand, rel=1e-12)
    assert by_hand == pytest.approx(expected, rel=2e-3)
    assert theory.kappa(c, 7000, 100) == math.inf
    learnable = replace(c, mu_F=0.01, eps_bias=0.25)
    rest = theory.epsilon_KN(learnable, 7000, 100) + theory.dual_terms(learnable, math.inf, 100)
    theorem = slater * 0.5 + slater * 0.2 * rest + by_hand  # φ√ε_bias + φ(1−γ)ε_KN + …
    assert theory.kappa(learnable, 7000, 100) == pytest.approx(theorem)


@settings(max_examples=60, deadline=None)
@given(eps=st.floats(0.05, 1e6), gamma=st.floats(0, 0.9), slater=st.floats(0.05, 1), mu=st.floats(0.05, 0.5))
def test_K_and_N_of_eps_are_the_smallest(eps, gamma, slater, mu):
    c = replace(LEARNABLE, gamma=gamma, slater=slater, kappa=slater / 2, mu_F=mu)
    K, N, room = theory.K_of(c, eps), theory.N_of(c, eps), 1e-13
    assert isinstance(K, int) and isinstance(N, int)
    assert theory.objective_bound(c, K, math.inf) <= eps / 2 * (1 + room)
    assert theory.objective_bound(c, math.inf, N) <= eps / 2 * (1 + room)
    assert K == 1 or theory.objective_bound(c, K - 1, math.inf) >= eps / 2 * (1 - room)
    assert N == 1 or theory.objective_bound(c, math.inf, N - 1) >= eps / 2 * (1 - room)
    assert theory.objective_bound(c, K, N) <= eps * (1 + room)  # the terms add up: there are no others
    biased = replace(c, eps_bias=0.1, eps_bias2=0.01)
    assert (theory.K_of(biased, eps), theory.N_of(biased, eps)) == (K, N)


def slope(x, y):
    return np.polyfit(np.log(x), np.log(np.array(y, dtype=float)), 1)[0]


@pytest.mark.parametrize(
    ("field", "grid", "order_K", "order_N"),
    [
        ("eps", np.geomspace(1e-9, 1e-7, 6), -2, -2),
        ("slater", np.geomspace(1e-5, 1e-3, 6), -4, -2),
        ("1−γ", np.geomspace(1e-3, 1e-1, 6), -4, -6),
        ("I", np.array([1, 10, 100, 1000]), 2, 2),
    ],
)
def test_orders_of_K_and_N(field, grid, order_K, order_N):
    """Correction 10, by regression: K ~ I²φ⁻⁴(1−γ)⁻⁴ε⁻², N ~ I²φ⁻²(1−γ)⁻⁶ε⁻²."""
    base = replace(LEARNABLE, slater=1e-4, kappa=0.0)
    changes = {"eps": lambda x: {}, "slater": lambda x: {"slater": x}, "1−γ": lambda x: {"gamma": 1 - x},
               "I": lambda x: {"I": int(x)}}[field]  # fmt: skip
    points = [(replace(base, **changes(x)), x if field == "eps" else 1e-9) for x in grid]
    assert slope(grid, [theory.K_of(*point) for point in points]) == pytest.approx(order_K, abs=0.02)
    assert slope(grid, [theory.N_of(*point) for point in points]) == pytest.approx(order_N, abs=0.02)


# μ_F = 0, plans, errors.


@pytest.mark.parametrize("mu", [0.0, 1e-320, 1e-170, 1e-90])
@pytest.mark.parametrize("K", [1, 7000, math.inf])
@pytest.mark.parametrize("N", [1, 100, math.inf])
def test_without_mu_F_bounds_are_infinite_and_say_so(mu, K, N):
    c = replace(PAPER, mu_F=mu)
    bounds = (theory.first_order, theory.omega_norm, theory.epsilon_KN, theory.kappa, theory.objective_bound)
    if mu == 0:
        assert all(bound(c, K, N) == math.inf for bound in bounds)
        assert theory.sgd_error(c, N) == theory.omega_star_bound(c) == theory.sgd_bracket(c) == math.inf
        assert theory.eta1(c) == 0
    assert theory.epsilon_KN(c, K, N) == math.inf
    assert theory.K_of(c, 0.1) == theory.N_of(c, 0.1) == math.inf
    reason = theory.why_infinite(c)
    assert reason and reason.startswith("μ_F = ") and "singular" in reason
    assert not any(isinstance(v, float) and math.isnan(v) for v in vars(theory.plan(c, 0.1, K, N)).values())


def test_plan_on_the_instance_of_the_paper():
    plan = theory.plan(replace(PAPER, slater=0.0411263785), eps=0.1, K=7000, N=100)
    assert plan.verdict[0].startswith("μ_F = 0: ")
    cause = "κ = 2.91 (its terms without ε_KN at K = 7000) exceeds the Slater margin 0.0411"
    assert plan.verdict[1:] == (f"{cause}: the conservative problem is infeasible",)
    assert plan.trajectories == 2_800_000 and plan.steps == pytest.approx(14_000_000)
    assert plan.alpha == pytest.approx(0.125) and plan.lam_max == pytest.approx(2 / 0.2 / 0.0411263785)
    assert theory.plan(PAPER, eps=0.1, K=7000, N=100).verdict[1].startswith("κ = 0.377 ")
    assert len(theory.plan(PAPER, eps=0.1, K=10**6, N=100).verdict) == 1  # explicit part 0.03 < 0.358


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 1), st.floats(0.05, 0.95), st.floats(0, 0.9), st.floats(0.02, 0.5))
def test_plan_is_consistent_for_eps_up_to_kappa_over_slater_of_the_range(share, fraction, gamma, mu):
    """κ(K(ε), N(ε)) ≤ (1−γ)φε/(r⁺−r⁻) ≤ `kappa`, so zero violation is proved."""
    c = replace(LEARNABLE, gamma=gamma, mu_F=mu, kappa=fraction * LEARNABLE.slater)
    eps = share * fraction * c.r_range / (1 - gamma)
    plan = theory.plan(c, eps)
    assert plan.kappa <= (1 - gamma) * c.slater * eps / c.r_range * (1 + 1e-9) <= c.kappa * (1 + 2e-9)
    assert plan.objective_bound <= eps * (1 + 1e-9) and theory.why_infinite(c) is None
    assert plan.trajectories == 4 * plan.K * plan.N == pytest.approx(plan.steps * (1 - gamma))
    if plan.kappa <= c.kappa:
        assert plan.verdict[0].startswith(f"κ = {plan.kappa:.3g}: no violation")


def test_verdicts_tell_infeasible_unproved_and_empty_apart():
    c = LEARNABLE
    few = theory.plan(c, eps=0.1, K=10, N=10)
    assert few.kappa > c.slater and "exceeds the Slater margin 0.5: " in few.verdict[0]
    assert "it says nothing" in few.verdict[1] and "exceeds ε = 0.1" in few.verdict[2]
    tight = theory.plan(replace(c, kappa=0.001), eps=0.5)
    assert 0.001 < tight.kappa < c.slater
    assert tight.verdict == (f"κ = {tight.kappa:.3g} exceeds kappa = 0.001, which sets Λ: "
                             "zero violation is not proved",)  # fmt: skip
    biased = theory.plan(replace(c, eps_bias=1e-4), eps=0.5)
    assert biased.verdict[-1].endswith("take more K and N, or reduce the bias")


@pytest.mark.parametrize(
    ("field", "value"),
    [("kappa", 0.5), ("kappa", 0.7), ("kappa", -0.1), ("slater", 0.0), ("slater", 5.1), ("gamma", 1.0),
     ("I", 0), ("d", 0), ("A", 1), ("A", math.inf), ("G", 0.0), ("M", -1.0), ("mu_F", -1e-9),
     ("mu_F", 1.3**2 / 3 * 1.01), ("mu_F", math.nan), ("r_range", 0.0), ("h_max", 0.0), ("eps_bias", -1.0),
     ("eps_bias2", 1.1)],
)  # fmt: skip
def test_impossible_constants_are_named(field, value):
    with pytest.raises(InputError, match=rf"^{field} = .*: must be "):
        replace(LEARNABLE, **{field: value})


@pytest.mark.parametrize(("arguments", "field"), [((0.0,), "eps"), ((math.nan, 5, 5), "eps"), ((0.1, 0), "K"),
                                                  ((0.1, 5, 0.5), "K = 5, N")])  # fmt: skip
def test_impossible_plans_are_named(arguments, field):
    with pytest.raises(InputError, match=f"^{field} = "):
        theory.plan(LEARNABLE, *arguments)
