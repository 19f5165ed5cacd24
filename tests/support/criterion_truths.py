"""Truths for criteria other than the discounted one, from linear programs of their own that share no code with src."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog

import clearance as cl

TOLERANCES = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def _solve(c: Any, g: Any, b: Any, A_eq: Any, b_eq: Any) -> float | None:
    """The maximum of c·x with g x ≥ b, A_eq x = b_eq, x ≥ 0; None where there is none."""
    limits = {"A_ub": -g, "b_ub": -np.asarray(b)} if len(b) else {}
    found = linprog(-c, A_eq=A_eq, b_eq=b_eq, method="highs-ds", options=TOLERANCES, **limits)
    return -float(found.fun) if found.status == 0 else None


def average_optimum(cmdp: cl.CMDP) -> float | None:
    """Kallenberg's program with two blocks, x (long-run shares) and y (the way there), for any number of classes."""
    S, A, n = cmdp.S, cmdp.A, cmdp.S * cmdp.A
    P = np.asarray(cmdp.P)
    out = np.kron(np.eye(S), np.ones(A))
    flow = out - P.reshape(n, S).T
    A_eq = np.block([[flow, np.zeros((S, n))], [out, flow]])
    g = np.hstack([cmdp.g.reshape(cmdp.I, n), np.zeros((cmdp.I, n))])
    return _solve(np.append(cmdp.r.ravel(), np.zeros(n)), g, cmdp.b, A_eq, np.append(np.zeros(S), cmdp.rho))


def horizon_optimum(cmdp: cl.CMDP) -> float | None:
    """The program over the product with time, built out."""
    assert cmdp.horizon is not None
    H, S, A = cmdp.policy_shape
    P, n = np.asarray(cmdp.P), S * A
    out = np.kron(np.eye(S), np.ones(A))
    A_eq = np.kron(np.eye(H), out) - np.kron(np.eye(H, k=-1), P.reshape(n, S).T)
    discount = np.repeat(cmdp.gamma ** np.arange(H), n)
    g = np.tile(cmdp.g.reshape(cmdp.I, n), H) * discount
    rho = np.append(cmdp.rho, np.zeros((H - 1) * S))
    return _solve(np.tile(cmdp.r.ravel(), H) * discount, g, cmdp.b, A_eq, rho)


def total_optimum(cmdp: cl.CMDP, end: Any) -> float | None:
    """The program over visits before one of the states `end` is reached; the only places where runs may end."""
    S, A = cmdp.S, cmdp.A
    moving = np.repeat(~np.asarray(end), A)
    flow = (np.kron(np.eye(S), np.ones(A)) - np.asarray(cmdp.P).reshape(S * A, S).T)[~np.asarray(end)][:, moving]
    g = cmdp.g.reshape(cmdp.I, S * A)[:, moving]
    return _solve(cmdp.r.ravel()[moving], g, cmdp.b, flow, cmdp.rho[~np.asarray(end)])


def random_model(seed: int, *, ends: bool = False, **criterion: Any) -> cl.CMDP:
    """A small model with few successors per pair, so that it often has several classes; the last state may be terminal,
    and then every signal is a cost. The limit lies between what is best for the reward and the largest there is.
    """
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(3, 7)), int(rng.integers(2, 4))
    P = np.zeros((S, A, S))
    for s, a in np.ndindex(S, A):
        to = rng.choice(S, size=int(rng.integers(1, 3)), replace=False)
        P[s, a, to] = rng.dirichlet(np.ones(len(to)))
    r, g = rng.normal(size=(S, A)).round(2), rng.normal(size=(1, S, A)).round(2)
    if ends:
        P = 0.9 * P
        P[:, :, -1] += 0.1
        P[-1], r[-1], g[:, -1] = np.eye(S)[-1], 0, 0
        r, g = -np.abs(r), -np.abs(g)
    return cl.CMDP(P, r, g, b=-1e3, rho=rng.dirichlet(np.ones(S)), **criterion)
