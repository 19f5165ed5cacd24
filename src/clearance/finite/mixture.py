"""A mixture: at the start of each episode, one of several policies is drawn by weight. Theorem 1 is about a mixture.

J of a mixture is the weighted mean of the J of its components. In a finite model one stationary policy has exactly the
same values: the policy of the averaged occupancy, π(a|s) ∝ Σ_m w_m d^{π_m}(s, a).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearance.certificates.certificate import Certificate
from clearance.certificates.certificate_fields import certificate_array
from clearance.certificates.verdict_words import join_some
from clearance.core.array_files import read_arrays
from clearance.core.arrays import Array
from clearance.core.atomic_files import save_npz
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath
from clearance.core.policy_tables import SUFFIXES, read_policy_table
from clearance.core.validation import read_distributions, read_numbers
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import check_available, occupancy, values_from_occupancy


@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """A mixture of M policies pi [M, S, A] of a finite model; component m is drawn with probability weights[m].

    A single policy has M = 1. With a horizon the policies may depend on the time: pi [M, H, S, A].

    >>> Mixture(weights=[1.0], pi=[[[0.5, 0.5]]]).M
    1
    """

    weights: Array
    pi: Array

    def __init__(self, weights: ArrayLike, pi: ArrayLike) -> None:
        pi_ = read_numbers("pi", pi, ndim=4 if np.ndim(pi) == 4 else 3)
        weights_ = read_numbers("weights", weights, ndim=1)
        if len(weights_) != len(pi_) or len(pi_) == 0:
            raise InputError(
                f"weights has {len(weights_)} entries for {len(pi_)} policies; give one each, at least one"
            )
        object.__setattr__(self, "weights", read_distributions("weights", weights_))
        object.__setattr__(self, "pi", read_distributions("pi", pi_))

    def __repr__(self) -> str:
        S, A = self.pi.shape[-2:]
        if self.M == 1:
            return f"<Mixture: one policy for {S:,} states and {A:,} actions>"
        weights = join_some([f"{w:.4g}" for w in self.weights])
        return f"<Mixture: {self.M:,} policies for {S:,} states and {A:,} actions, weights {weights}>"

    @classmethod
    def single(cls, pi: ArrayLike) -> Mixture:
        """Return a mixture of one policy [S, A], or [H, S, A] if it depends on the time."""
        return cls(np.ones(1), read_numbers("policy", pi, ndim=3 if _depends_on_time(pi) else 2)[None])

    @classmethod
    def of(cls, policy: Mixture | ArrayLike) -> Mixture:
        """Return `policy` as a mixture: a Mixture stays as it is, and a table becomes a mixture of one policy."""
        return policy if isinstance(policy, Mixture) else cls.single(policy)

    @classmethod
    def of_actions(cls, actions: ArrayLike, S: int, A: int) -> Mixture:
        """Return the deterministic policy that takes actions[s] in state s."""
        act = np.asarray(actions)
        if act.shape != (S,) or act.dtype.kind not in "iu":
            raise InputError(f"policy must be one action for each of {S} states, whole numbers, got shape {act.shape}")
        wrong = np.flatnonzero((act < 0) | (act >= A))
        if len(wrong):
            raise InputError(f"policy takes action {act[wrong[0]]} at state {wrong[0]}; actions are 0..{A - 1}")
        return cls.single(np.eye(A)[act])

    @classmethod
    def uniform(cls, pi: ArrayLike) -> Mixture:
        """Return π̄, the mixture of M policies pi [M, S, A] with equal weights 1/M."""
        pi_ = read_numbers("pi", pi, ndim=3)
        return cls(np.full(len(pi_), 1 / max(len(pi_), 1)), pi_)

    @property
    def M(self) -> int:
        return len(self.weights)

    def tables(self, cmdp: CMDP) -> Array:
        """Return the components as tables [M, S, A] or, if the model has a horizon, [M, H, S, A].

        Components that do not depend on the time are repeated as a view.
        """
        return np.broadcast_to(self.pi[:, None], (self.M, *cmdp.policy_shape)) if self._ignores_time(cmdp) else self.pi

    def _ignores_time(self, cmdp: CMDP) -> bool:
        return cmdp.horizon is not None and self.pi.ndim == 3

    def check(self, cmdp: CMDP) -> None:
        """Raise InputError unless the components are policies of this model."""
        if self.pi.shape[1:] not in ((cmdp.S, cmdp.A), cmdp.policy_shape):
            needs = "[S, A]" if cmdp.horizon is None else "[H, S, A] (or [S, A] without time)"
            raise InputError(f"policy has shape {self.pi.shape[1:]}, the model needs {needs} = {cmdp.policy_shape}")
        check_available(cmdp, self.pi)

    def occupancy(self, cmdp: CMDP) -> Array:
        """Return the occupancy Σ_m w_m d^{π_m} of the mixture in this model: [S, A] or, with a horizon, [H, S, A]."""
        self.check(cmdp)
        return np.tensordot(self.weights, occupancy(cmdp, self.tables(cmdp)), 1)

    def J(self, cmdp: CMDP) -> Array:
        """Return the exact values J [1+I] = Σ_m w_m J(π_m) of the mixture in this model."""
        return values_from_occupancy(cmdp, self.occupancy(cmdp))

    def stationary(self, cmdp: CMDP) -> Mixture:
        """Return one policy with the same occupancy as the mixture, and so with the same J.

        It is stationary or, with a horizon, has one table per step:

            π(·|s) = Σ_m w_m d_m(s) π_m(·|s) / Σ_m w_m d_m(s)

        In states that no component visits it is Σ_m w_m π_m(·|s). This π takes an action only if some component takes
        it. Under the average criterion there may be no policy with the same J, if components end in different closed
        classes. The result then has another J, so certify it.
        """
        self.check(cmdp)
        d = np.maximum(occupancy(cmdp, self.tables(cmdp)).sum(-1), 0.0)
        weights = self.weights.reshape(-1, *(1,) * (d.ndim - 1))
        share = np.where((weights * d).sum(0) > 0, weights * d, weights)
        return Mixture.single(np.einsum("m...s,m...sa->...sa", share / share.sum(0), self.tables(cmdp)))

    def describe(self, cmdp: CMDP) -> str:
        """Return a text: a heading, then for each component its weight, J_r, slacks and number of random states."""
        J = np.atleast_2d(values_from_occupancy(cmdp, occupancy(cmdp, self.tables(cmdp))))
        lines = [f"a mixture of {self.M}, drawn once per episode" if self.M > 1 else "one policy"]
        for weight, pi, (J_r, *J_g) in zip(self.weights, self.pi, J, strict=True):
            kept = (
                ", ".join(f"{n} {x - b:+.4g}" for n, x, b in zip(cmdp.names, J_g, cmdp.b, strict=True)) or "no limits"
            )
            random = int(np.sum(pi.max(-1) < 1 - 1e-9))
            lines.append(f"{weight:8.2%}  J_r {J_r:.6g}  slack {kept}  random in {random} of {cmdp.S} states")
        return "\n".join(lines)

    def reset(self, rng: np.random.Generator) -> Actor:
        """Draw one component for the next episode, and return an object that follows it."""
        return Actor(self.pi[rng.choice(self.M, p=self.weights / self.weights.sum())], rng)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a policy file: weights [M], pi [M, S, A] (or [M, H, S, A])."""
        return {"schema": np.array("clearance/policy/1"), "weights": self.weights, "pi": self.pi}

    def save(self, path: AnyPath, certificate: Certificate | None = None, model: CMDP | None = None) -> None:
        """Write the mixture as an .npz file that `clearance.load_policy` reads.

        If given, the certificate of this policy and the names of the states and actions of `model` are also stored.
        """
        names = {} if model is None else {"states": model.states, "actions": model.actions}
        labels = {name: np.array(x, dtype=np.str_) for name, x in names.items() if x is not None}
        save_npz(path, self.arrays() | labels | certificate_array(certificate))

    @classmethod
    def load(cls, path: AnyPath, cmdp: CMDP | None = None) -> Mixture:
        """Read a policy file: .npz, or a table (.csv or .json). A file with only `pi` [S, A] is a single policy.

        With `cmdp`, files whose arrays are larger than a policy of this model needs are refused, and the states and
        actions in tables are matched by the names in this model.
        """
        if Path(str(path)).suffix.lower() in SUFFIXES:
            return cls._of_table(str(path), cmdp)
        z = read_arrays(path, ("weights", "pi"), None if cmdp is None else partial(most_numbers, cmdp))
        if "pi" not in z and "r" in read_arrays(path, ("r",)):
            raise InputError(f"{path}: this is a model, not a policy; a policy file holds weights [M] and pi [M, S, A]")
        if "pi" not in z:
            raise InputError(f"{path}: pi is missing; a policy file holds weights [M] and pi [M, S, A]")
        single = z["pi"].ndim == 2
        if "weights" not in z and not single:
            raise InputError(f"{path}: weights is missing; give weights [M] for pi [M, S, A], or one policy pi [S, A]")
        try:
            return cls(z.get("weights", np.ones(1)), z["pi"][None] if single else z["pi"])
        except InputError as e:
            raise InputError(f"{path}: {e}") from None

    @classmethod
    def _of_table(cls, path: str, cmdp: CMDP | None) -> Mixture:
        names = {} if cmdp is None else {"states": cmdp.states, "actions": cmdp.actions}
        if cmdp is not None:
            sizes = {"states": cmdp.S, "actions": cmdp.A}
            names = {k: [str(i) for i in range(sizes[k])] if x is None else x for k, x in names.items()}
        found = read_policy_table(path, **names)
        return cls(found.weights, found.pi)


def most_numbers(cmdp: CMDP, shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the largest allowed number of entries of each array in a mixture's file, by name.

    The numbers follow from the model and from `shapes`, the shapes of the arrays in the file.
    """
    pi = shapes.get("pi", ())
    M = pi[0] if pi[1:] in ((cmdp.S, cmdp.A), cmdp.policy_shape) else 1
    return {"pi": min(M, math.prod(shapes.get("weights", ()))) * math.prod(cmdp.policy_shape), "weights": M}


@dataclass(frozen=True, eq=False)
class Actor:
    """An object that follows the policy `pi`, one component of a mixture, for one episode.

    If the policy is time-dependent [H, S, A], the object counts the steps from 0.
    """

    pi: Array
    rng: np.random.Generator
    clock: Iterator[int] = field(default_factory=itertools.count)

    def act(self, s: int) -> int:
        """Return an action at state s."""
        t = next(self.clock)
        if self.pi.ndim == 3 and t >= len(self.pi):
            raise InputError(f"the policy is for {len(self.pi)} steps: the episode is over, reset it")
        p = self.pi[t, s] if self.pi.ndim == 3 else self.pi[s]
        return int(self.rng.choice(len(p), p=p / p.sum()))


def _depends_on_time(pi: ArrayLike) -> bool:
    try:
        return np.ndim(pi) == 3
    except ValueError:  # rows of different lengths, which the reader of numbers refuses
        return False
