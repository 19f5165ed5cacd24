"""The only loop: a problem, a frozen method, a seed → a Solution."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from clearance import dual, kernels
from clearance.certificate import Certificate
from clearance.direction import SGD
from clearance.errors import InfeasibleError, InputError
from clearance.methods.cnpgpd import CNPGPD, State
from clearance.mixture import Mixture
from clearance.oracle import slater_margin
from clearance.policy import SoftmaxPolicy, check_fits, class_model, softmax
from clearance.problem import CMDP, Array, occupancy, policy_of, values
from clearance.sample import Sampler, Table
from clearance.sample.streams import key_of
from clearance.trace import Trace

# Iterations between two looks at the person who watches (and at Ctrl-C).
CHUNK = 250
# Up to this many states the exact J of every iterate is recorded beside Ĵ, unless asked otherwise.
EXACT_STATES = 300

Progress = Callable[[Trace, State], None]


class ConservatismWarning(UserWarning):
    """κ is not below the Slater margin: the conservative problem has no solution and λ will run into its bound."""


@dataclass(frozen=True, eq=False)
class Solution:
    """What `solve` gives back. Three policies can be taken from it:

    mixture  π̄, uniform over all iterates: what Theorem 1 speaks of
    policy   the averaged-occupancy policy: one stationary policy with exactly the J of π̄
    last     π_{θ^{K+1}}: no guarantee
    """

    cmdp: CMDP
    method: CNPGPD
    policy_class: SoftmaxPolicy
    trace: Trace
    state: State
    slater: float
    lam_max: float
    status: Literal["done", "interrupted"]
    seed: int
    seconds: float
    d_bar: Array | None

    @property
    def lam(self) -> Array:
        """λ of the last iterate [I]."""
        return self.state.lam

    @property
    def env_steps(self) -> int:
        return int(self.trace.steps.sum())

    @cached_property
    def mixture(self) -> Mixture:
        return Mixture.uniform(self.policy_class.pi(self.trace.theta))

    @cached_property
    def policy(self) -> Mixture:
        d = self.mixture.occupancy(self.cmdp) if self.d_bar is None else self.d_bar
        return Mixture.single(policy_of(d))

    @cached_property
    def last(self) -> Mixture:
        return Mixture.single(self.policy_class.pi(self.state.theta))

    @property
    def path_bound(self) -> Array | None:
        """The free bound on mean_k (Ĵ_g − b) from the path of λ; None if the clip at Λ was active."""
        return dual.path_bound(self.trace.lam, self.lam, self.method.eta2, self.method.kappa, self.lam_max)

    def save(self, folder: str | Path, certificate: Certificate | None = None) -> None:
        """Write the run folder: problem, method, trace, policy and, if given, the certificate."""
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder}: exists and is not an empty folder; choose another --out")
        try:
            (folder / "trace").mkdir(parents=True)
        except OSError as e:
            raise InputError(f"{folder}: cannot write: {e.strerror or e}") from None
        self.cmdp.save(folder / "problem.npz")
        self.trace.save(folder / "trace" / "000001.npz")
        self.policy.save(folder / "policy.npz")
        _write_json(folder / "method.json", self.settings())
        if certificate is not None:
            _write_json(folder / "certificate.json", certificate.asdict())

    def settings(self) -> dict[str, object]:
        """What was run, as plain data."""
        direction = {"name": type(self.method.direction).__name__, **asdict(self.method.direction)}
        method = {"name": type(self.method).__name__, **asdict(self.method), "direction": direction}
        return {"method": method, "lam_max": self.lam_max, "seed": self.seed, "status": self.status}


def solve(
    cmdp: CMDP,
    method: CNPGPD | None = None,
    *,
    policy: SoftmaxPolicy | None = None,
    sampler: Sampler | None = None,
    seed: int = 0,
    exact_J: bool | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Run a method on a finite model.

    policy   the class π_θ; tabular softmax unless given
    sampler  where draws come from: `Table` (Algorithm 2, the default) or `Exact` (no noise)
    exact_J  record the exact J of every iterate beside Ĵ; by default for models of up to 300 states
    Raises `InfeasibleError` when no policy of the class meets the limits.
    """
    method = CNPGPD() if method is None else method
    policy = softmax(cmdp.S, cmdp.A) if policy is None else policy
    check_fits(cmdp, policy)
    sampler = Table(cmdp, policy) if sampler is None else sampler
    key = key_of(seed)
    slater = _margin(cmdp, policy)
    lam_max = _bound_of_multipliers(cmdp, method, slater)
    exact = cmdp.S <= EXACT_STATES if exact_J is None else exact_J

    began, status = time.perf_counter(), "done"
    state = method.init(policy.init(), cmdp.I)
    kernels.announce_compilation()
    parts: list[Trace] = []
    d_sum = np.zeros((cmdp.S, cmdp.A)) if exact else None
    try:
        while state.k < method.K:
            state, part = _advance(sampler, method, key, state, min(CHUNK, method.K - state.k), lam_max)
            if d_sum is not None:
                d = occupancy(cmdp, policy.pi(part.theta))
                part, d_sum = _with_exact(part, values(cmdp, d)), d_sum + d.sum(0)
            parts.append(part)
            if progress is not None:
                progress(part, state)
    except KeyboardInterrupt:
        if not parts:
            raise
        status = "interrupted"
    trace = Trace.joined(parts)
    d_bar = None if d_sum is None else d_sum / len(trace)
    seconds = time.perf_counter() - began
    return Solution(cmdp, method, policy, trace, state, slater, lam_max, status, seed, seconds, d_bar)


def _advance(
    sampler: Sampler, method: CNPGPD, key: np.uint64, state: State, n: int, lam_max: float
) -> tuple[State, Trace]:
    """n iterations: compiled where a kernel exists, else one readable step after the other."""
    if isinstance(sampler, Table) and isinstance(method.direction, SGD):
        from clearance.methods import compiled

        return compiled.advance(sampler, method, key, state, n, lam_max)
    rows = []
    for _ in range(n):
        before = state
        state, info = method.step(np.uint64(kernels.fold(key, state.k)), sampler, state, lam_max)
        rows.append((before.theta, before.lam, *info))
    columns = [np.array(c) for c in zip(*rows, strict=True)]
    return state, Trace(*columns, J=np.empty((0, 1 + sampler.cmdp.I)))


def _with_exact(part: Trace, J: Array) -> Trace:
    return Trace(part.theta, part.lam, part.J_hat, part.omega_norm, part.steps, J)


@lru_cache(maxsize=16)
def _margin(cmdp: CMDP, policy: SoftmaxPolicy) -> float:
    """The Slater margin of the policy class, or of all policies where the class has no linear program."""
    try:
        model = class_model(cmdp, policy)
    except InputError:
        model = cmdp
    slater, _ = slater_margin(model)
    if slater < 0:
        worst = "the limit" if cmdp.I == 1 else "all limits at once"
        raise InfeasibleError(
            f"no policy meets {worst}: max_π min_i (J_gi − b_i) = {slater:.6g} < 0; lower b by {-slater:.6g} or more",
            slater,
        )
    return slater


def _bound_of_multipliers(cmdp: CMDP, method: CNPGPD, slater: float) -> float:
    """Λ as given, or from the margin; warns before time is spent if κ is not below it."""
    if method.kappa >= slater:
        text = f"kappa = {method.kappa:g} is not below the Slater margin {slater:.6g}, so no policy keeps it"
        if method.lam_max is None:
            raise InputError(f"{text}; choose kappa < {slater:.6g}, or give lam_max to run it all the same")
        warnings.warn(f"{text} and lam will run into lam_max = {method.lam_max:g}", ConservatismWarning, stacklevel=3)
    if method.lam_max is not None:
        return float(method.lam_max)
    return dual.lam_max_of(cmdp.gamma, slater, method.kappa, float(np.ptp(cmdp.r))) if cmdp.I else 1.0


def _write_json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n")
