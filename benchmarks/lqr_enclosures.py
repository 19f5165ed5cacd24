"""Exact values of linear policies against 400-digit arithmetic, on loops at the edge of stability.

    python benchmarks/lqr_enclosures.py --rows rows.jsonl [--loops 10000] [--seed 0]

A loop is a random problem in one to six dimensions with a policy whose closed loop has a spectral radius √γ·ρ(A − BK)
from 1 − 10⁻¹ to 1 − 10⁻¹⁵, or as far above 1: normal, dense, rotating, Jordan-like and badly scaled matrices, γ from .5
to 1 − 10⁻¹², singular W, X0, Q and R, with and without bias, and σ as such or as its logarithm. The truth sums the
series by doubling, M_{2k} = M_k + G_k M_k G_k', G_{2k} = G_k², with mpmath: it shares neither equations nor arithmetic
with the library. The limit of every loop is its true effort times 1 ± 10⁻¹ to 10⁻¹⁶. Rows are appended as they are
found, and a second start continues; docs/research/simulator_log.md has the table.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np

from clearance.core.arrays import Array
from clearance.simulator.linear_quadratic import LQR, LinearPolicy, enclose_variance

mpmath.mp.dps = 400
FAR = mpmath.mpf(10) ** 300
CLOSE = mpmath.mpf(10) ** -100  # the error of the truth, relative: far above what it is
KINDS = "normal", "dense", "rotation", "jordan", "scaled"
SHARES = 0.2, 0.24, 0.2, 0.16, 0.1, 0.1  # of one to six dimensions
GAMMAS = 0.5, 0.9, 0.95, 0.99, 0.999, 1 - 1e-6, 1 - 1e-12


class Loop(NamedTuple):
    """A problem, a policy, and log σ [m] where the policy stores that."""

    problem: LQR
    policy: LinearPolicy
    log_std: Array | None
    kind: str
    margin: float


class Truth(NamedTuple):
    """J_x and J_u, ∞ where they diverge, and the measured log of the spectral radius √γ·ρ."""

    J: list[Any]
    log_radius: float


# ------------------------------------------------------------------------------------------------ loops


def draw_loop(rng: np.random.Generator) -> Loop:
    n, m = int(rng.choice(6, p=SHARES)) + 1, int(rng.integers(1, 3))
    gamma, kind = float(rng.choice(GAMMAS)), str(rng.choice(KINDS))
    margin = float(10 ** -rng.uniform(1, 15) * rng.choice([1, -1], p=[0.8, 0.2]))
    B, K = (np.round(8 * rng.normal(size=s)) / 8 for s in ((n, m), (m, n)))  # few bits: A − BK is hardly rounded
    K *= rng.random() < 0.95
    A = draw_closed_loop(rng, kind, n, (1 - margin) / math.sqrt(gamma)) + B @ K
    W, X0, Q, R = (draw_semidefinite(rng, size) for size in (n, n, n, m))
    log_std = rng.uniform(-5, 2, size=m).astype(np.float32).astype(float) if rng.random() < 0.4 else None
    variance, error = np.transpose([enclose_variance(x) for x in log_std]) if log_std is not None else (None, None)
    Sigma = draw_semidefinite(rng, m) if variance is None else np.diag(variance)
    c = rng.normal(size=m) * (rng.random() < 0.3)
    return Loop(LQR(A, B, Q, R, W, X0, gamma, 1.0), LinearPolicy(K, c, Sigma, error), log_std, kind, margin)


def draw_closed_loop(rng: np.random.Generator, kind: str, n: int, radius: float) -> Array:
    """Return F [n, n] with the spectral radius given, up to rounding."""
    F = np.diag(radius * np.append(rng.choice([-1, 1]), rng.uniform(-1, 1, n - 1)))
    if kind == "dense":
        T = rng.normal(size=(n, n))
        return T @ F @ np.linalg.inv(T)
    if kind == "normal":
        T = np.linalg.qr(rng.normal(size=(n, n)))[0]
        return T @ F @ T.T
    if kind == "rotation" and n > 1:
        angle = rng.uniform(0, math.pi)
        F[:2, :2] = radius * np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        return F + np.triu(rng.normal(size=(n, n)), 2)
    if kind in ("jordan", "scaled"):
        F = radius * np.eye(n) + 10 ** rng.uniform(-2, 2) * np.diag(rng.uniform(0.5, 1, n - 1), 1)
    if kind == "scaled":
        D = 10.0 ** rng.uniform(-20, 20, n)
        F = F * D[:, None] / D
    return F


def draw_semidefinite(rng: np.random.Generator, n: int) -> Array:
    """Return a matrix of any scale and rank, with few bits so that it is semidefinite as stored."""
    X = np.round(16 * rng.normal(size=(n, int(rng.integers(0 if n > 1 else 1, n + 1))))) / 16
    scale = 2.0 ** rng.integers(-40, 40) if rng.random() < 0.3 else 1.0
    return scale * (X @ X.T if rng.random() < 0.5 else np.diag(rng.uniform(0.1, 2, n)))


# ------------------------------------------------------------------------------------------------ truth


def find_truth(loop: Loop) -> Truth:
    p, policy = loop.problem, loop.policy
    A, B, Q, R, W, X0, K, c, Sigma = (_precise(x) for x in (p.A, p.B, p.Q, p.R, p.W, p.X0, *policy[:3]))
    if loop.log_std is not None:
        Sigma = np.diag(np.array([mpmath.exp(2 * mpmath.mpf(x)) for x in loop.log_std], object))
    gamma, n = mpmath.mpf(p.gamma), len(A)
    G, M = _precise(np.eye(n + 1)), _precise(np.zeros((n + 1, n + 1)))
    G[:n, :n], G[:n, n] = A - B @ K, B @ c
    M[:n, :n], M[n, n] = X0 + gamma / (1 - gamma) * (W + B @ Sigma @ B.T), mpmath.mpf(1)
    feed = np.hstack([-K, c[:, None]])
    C_x, C_u = np.zeros_like(M), feed.T @ R @ feed
    C_x[:n, :n] = Q
    used = n + int(np.any(policy.c))  # without bias the constant does nothing
    sums, log_radius = sum_by_doubling(mpmath.sqrt(gamma) * G[:used, :used], M[:used, :used], [C_x, C_u])
    return Truth([sums[0], sums[1] + np.sum(R * Sigma) / (1 - gamma)], log_radius)


def sum_by_doubling(G: Any, M: Any, Cs: list[Any]) -> tuple[list[Any], float]:
    """Return Σ_t tr(C G^t M G'^t) for every C, ∞ where it grows without end, and log ρ(G).

    A sum is settled only once G has vanished or exploded, and then by itself: it stands still, or one doubling
    multiplies it. Effort may converge slowly, by γ^t alone, while the state has long exploded.
    """
    used, before = len(G), None
    for k in range(100):
        now = [np.sum(C[:used, :used] * M) for C in Cs]
        size = max(abs(x) for x in G.ravel())
        if before is not None and (size < 1 / FAR**2 or size > FAR):
            pairs = list(zip(now, before, strict=True))
            still = [abs(x - y) <= CLOSE**2 * abs(x) for x, y in pairs]
            if all(stands or x > y / CLOSE for stands, (x, y) in zip(still, pairs, strict=True)):
                log_radius = float(mpmath.log(size) / mpmath.mpf(2) ** k) if size else -math.inf
                return [x if stands else mpmath.inf for x, stands in zip(now, still, strict=True)], log_radius
        before, M, G = now, M + G @ M @ G.T, G @ G
    raise AssertionError("neither converges nor diverges within 2^100 steps")


def _precise(x: Any) -> Any:
    return np.vectorize(mpmath.mpf, otypes=[object])(np.asarray(x, float))


# ------------------------------------------------------------------------------------------------ comparison


def judge(loop: Loop, rng: np.random.Generator) -> dict[str, Any]:
    """Compare the enclosure and the verdict of one loop with the truth."""
    truth, n = find_truth(loop), len(loop.problem.A)
    finite = bool(mpmath.isfinite(truth.J[1]))
    near = mpmath.mpf(1) + mpmath.mpf(10) ** -rng.uniform(1, 16) * int(rng.choice([1, -1]))
    limit = float(truth.J[1] * near) if finite else float(10 ** rng.uniform(0, 300))
    verdict, found = LQR(**{**vars(loop.problem), "budget": limit}).certify(loop.policy)
    kept = truth.J[1] <= mpmath.mpf(limit)
    bounds = list(zip(truth.J, found.lower.tolist(), found.upper.tolist(), strict=True))
    widths = [
        float((mpmath.mpf(b) - a) / abs(J)) for J, a, b in bounds if mpmath.isfinite(J) and J and math.isfinite(b)
    ]
    return {
        "n": n,
        "kind": loop.kind,
        "margin": -truth.log_radius,
        "diverges": [not bool(mpmath.isfinite(J)) for J in truth.J],
        "outside": sum(not is_inside(*x) for x in bounds),
        "verdict": verdict,
        "wrong": (verdict == "CERTIFIED" and not bool(kept)) or (verdict == "VIOLATED" and bool(kept)),
        "width": max(widths, default=None),
    }


def is_inside(J: Any, lower: float, upper: float) -> bool:
    if not mpmath.isfinite(J):
        return upper == math.inf
    slip = CLOSE * abs(J)
    return bool(mpmath.mpf(lower) - slip <= J <= mpmath.mpf(upper) + slip)


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    widths = [x["width"] for x in rows if x["width"] is not None]
    margins = np.abs([x["margin"] for x in rows])
    return {
        "loops": len(rows),
        "outside": sum(x["outside"] for x in rows),
        "wrong": sum(x["wrong"] for x in rows),
        **{v: sum(x["verdict"] == v for x in rows) for v in ("CERTIFIED", "VIOLATED", "UNDECIDED")},
        "diverging": sum(any(x["diverges"]) for x in rows),
        "within 1e-6": int(np.sum(margins < 1e-6)),
        "within 1e-12": int(np.sum(margins < 1e-12)),
        "median width": float(np.median(widths)) if widths else None,
        "largest width": max(widths, default=None),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Exact values of linear policies against 400-digit arithmetic.")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--loops", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    done = args.rows.read_text().splitlines() if args.rows.exists() else []
    with args.rows.open("a") as file:
        for i in range(len(done), args.loops):
            rng = np.random.default_rng([args.seed, i])
            print(json.dumps(judge(draw_loop(rng), rng)), file=file, flush=True)
    rows = [json.loads(x) for x in args.rows.read_text().splitlines()]
    for n in sorted({x["n"] for x in rows}):
        print(json.dumps({"dimension": n, **summarise([x for x in rows if x["n"] == n])}))
    print(json.dumps({"dimension": "all", **summarise(rows), "kinds": Counter(x["kind"] for x in rows)}))
    sys.exit(any(x["outside"] or x["wrong"] for x in rows))


if __name__ == "__main__":
    main()
