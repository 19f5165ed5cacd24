"""Whole runs of Algorithm 1 on a finite model in one compiled call.

The same streams, walks and updates as `CNPGPD.step` on the `Table` sampler, and tested to agree with it.
"""

from __future__ import annotations

import numpy as np

from clearance import kernels
from clearance.direction import SGD
from clearance.methods.cnpgpd import CNPGPD
from clearance.methods.method import State, margin_of
from clearance.methods.npgpd import NPGPD
from clearance.sample import Table
from clearance.trace import Trace


def advance(
    sampler: Table, method: CNPGPD | NPGPD, root: np.uint64, state: State, n: int, lam_max: float
) -> tuple[State, Trace]:
    """n iterations from `state`, and their trace."""
    assert isinstance(method.direction, SGD)
    cmdp, policy = sampler.cmdp, sampler.policy
    theta, lam = state.theta.copy(), state.lam.copy()
    rows = kernels.Rows(
        np.empty((cmdp.S, cmdp.A)),
        np.empty(cmdp.S * cmdp.A, np.uint64),
        np.zeros(cmdp.S, np.int64),
        theta,
        policy.bias,
        *policy.sparse_features,
    )
    H = 1 + cmdp.I
    out = np.empty((n, len(theta))), np.empty((n, cmdp.I)), np.empty((n, H)), np.empty(n), np.empty(n, np.int64)
    scales = method.direction.scales(cmdp.gamma)
    b = cmdp.b + margin_of(method.kappa)  # the conservative limits; κ may differ from constraint to constraint
    settings = (sampler.resets, method.N, float(method.eta1), float(method.eta2), 0.0, float(lam_max))
    kernels.run(root, state.k, sampler.tables, rows, lam, b, *settings, scales, kernels.workspace(cmdp.A, H), out)
    return State(theta, lam, state.k + n, state.world), Trace(*out, counts=np.ones(n), J=np.empty((0, H)))
