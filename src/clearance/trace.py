"""What a run leaves behind: arrays over the iterations k = 1..K."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearance.files import load_npz, save_npz
from clearance.problem import Array


@dataclass(frozen=True, eq=False)
class Trace:
    """theta [K, d] and lam [K, I] before step k; J_hat [K, 1+I] sampled at θ^k; ‖ω^k‖ [K]; environment steps [K];
    counts [K] the weight of θ^k in the mixture that the method gives out; J [K, 1+I] the exact values of θ^k where the
    model is known, else no rows.
    """

    theta: Array
    lam: Array
    J_hat: Array
    omega_norm: Array
    steps: NDArray[np.int64]
    counts: Array
    J: Array

    def __len__(self) -> int:
        return len(self.omega_norm)

    @classmethod
    def joined(cls, parts: list[Trace]) -> Trace:
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def save(self, path: str | Path) -> None:
        save_npz(path, {f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        z = load_npz(path)
        return cls(**{f.name: z[f.name] for f in fields(cls)})


def running_average(x: Array) -> Array:
    """x̄_k = (x_1 + … + x_k)/k along the first axis: what the figures of Bai et al. 2023 show."""
    k = np.arange(1, len(x) + 1).reshape(-1, *[1] * (x.ndim - 1))
    return np.cumsum(x, axis=0) / k
