"""Run many iterations of Algorithm 1 on a finite model in one compiled call."""

from __future__ import annotations

import numpy as np

from clearance.core.compiled.alias_tables import U, fold, state_of
from clearance.core.compiled.compilation import kernel
from clearance.core.compiled.walks import READY, rollouts, softmax_row


@kernel(inline="always")
def sgd(rows, A, pair, A_L, step, scale, x, mean):
    """Run the averaged SGD of `direction.SGD`; write the mean of its iterates to `mean` [d].

    This mean is the update direction ω of the policy parameters, up to a factor. The samples are the state-action pairs
    s·A + a in `pair` [N], with the estimated advantages `A_L` [N] of the Lagrangian. SGD with step size `step` fits
    scale · score·x to the advantages, starting from the iterate x [d] = 0. The score of a pair is sparse,
    score = Φ_sa − Σ_a' π(a'|s) Φ_sa', where `rows` holds the features Φ. The step at sample n changes all iterates from
    n to N, so its weight in their mean is (N−n)/N.
    """
    pi, fptr, fidx, fval, fact = rows.pi, rows.fptr, rows.fidx, rows.fval, rows.fact
    N, per_A = len(pair), 1.0 / A
    for i in range(len(x)):
        x[i], mean[i] = 0.0, 0.0
    for n in range(N):
        row = pair[n]
        s = state_of(row, per_A)
        first, end = fptr[s * A], fptr[s * A + A]
        fit = 0.0
        for i in range(fptr[row], fptr[row + 1]):
            fit += fval[i] * x[U(fidx[i])]
        for i in range(first, end):
            fit -= pi[s, U(fact[i])] * fval[i] * x[U(fidx[i])]
        move = -step * (scale * fit - A_L[n])
        share = (N - n) / N
        for i in range(first, end):
            by = -move * pi[s, U(fact[i])] * fval[i]
            x[U(fidx[i])] += by
            mean[U(fidx[i])] += share * by
        for i in range(fptr[row], fptr[row + 1]):
            by = move * fval[i]
            x[U(fidx[i])] += by
            mean[U(fidx[i])] += share * by


@kernel
def run(root, k0, model, rows, lam, b, resets, N, eta1, eta2, kappa, lam_max, scales, lanes, out):
    """Run iterations k0, k0 + 1, … of Algorithm 1; their number is the number of rows of the arrays in `out`.

    The parameters θ (in `rows`) and the multipliers λ (`lam`) are updated in place. `out` receives for each iteration
    θ and λ before it, the estimates of J, the norm of the update direction ω, and the number of environment steps.
    `root` is the random key of the run and N the number of samples per iteration. eta1 and eta2 are the step sizes of θ
    and λ, `lam_max` is the upper bound of λ, and `kappa` is the margin added to the limits b. `resets` says whether the
    simulator can be reset to a chosen state. `scales` holds the step size of SGD, the scale of its scores, and a factor
    for ω. `lanes` are the scratch arrays that `workspace` returns.
    """
    theta_out, lam_out, J_out, norm_out, steps_out = out
    step, scale, factor = scales
    d, H = len(rows.theta), model.h.shape[1]
    pair, start, last = np.empty(N, np.int64), np.empty(2 * N, np.int64), np.empty(2 * N, np.int64)
    J, QV = np.empty((2 * N, H)), np.empty((2 * N, H))
    A_L, x, omega = np.empty(N), np.empty(d), np.empty(d)
    for i in range(len(norm_out)):
        key = fold(root, k0 + i)
        for j in range(d):
            theta_out[i, j] = rows.theta[j]
        for j in range(H - 1):
            lam_out[i, j] = lam[j]
        tick = k0 + i + 1
        if len(rows.stamp) <= N:  # few states: compute all rows at once, instead of checking each row at every step
            for s in range(len(rows.stamp)):
                softmax_row(rows, model.A, s, lanes[-1])
            tick = READY
        steps_out[i] = rollouts(key, model, rows, tick, resets, pair, start, last, J, QV, lanes)
        for n in range(N):
            A_L[n] = QV[n, 0] - QV[N + n, 0]
            for j in range(1, H):
                A_L[n] += lam[j - 1] * (QV[n, j] - QV[N + n, j])
        sgd(rows, model.A, pair, A_L, step, scale, x, omega)
        norm = 0.0
        for j in range(d):
            rows.theta[j] += eta1 * factor * omega[j]
            norm += (factor * omega[j]) ** 2
        norm_out[i] = np.sqrt(norm)
        for j in range(H):
            total = 0.0
            for n in range(N, 2 * N):
                total += J[n, j]
            J_out[i, j] = total / N
        for j in range(H - 1):
            lam[j] = min(max(lam[j] - eta2 * (J_out[i, j + 1] - b[j] - kappa), 0.0), lam_max)
