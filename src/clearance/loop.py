"""The only loop: a problem, a frozen method, a seed → a Solution."""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from clearance import dual, kernels
from clearance.certificate import Certificate
from clearance.compiling import announce
from clearance.direction import SGD, Tabular
from clearance.errors import InfeasibleError, InputError, SolverError, infeasible_message
from clearance.methods.cnpgpd import CNPGPD, State
from clearance.mixture import Mixture
from clearance.oracle import can_be_met, slater_margin
from clearance.policy import SoftmaxPolicy, TiedFeaturesError, check_fits, class_model, softmax
from clearance.problem import CMDP, Array, occupancy, policy_of, values
from clearance.sample import Exact, Sampler, Table
from clearance.sample.streams import key_of
from clearance.trace import Trace

# Seconds between two looks at the person who watches (and at Ctrl-C).
PATIENCE = 0.2
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
        return Mixture.single(policy_of(d, self.cmdp.available))

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
        folder = folder.absolute()
        partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
        try:
            (partial / "trace").mkdir(parents=True)
            self.cmdp.save(partial / "problem.npz")
            self.trace.save(partial / "trace" / "000001.npz")
            self.policy.save(partial / "policy.npz")
            _write_json(partial / "method.json", self.settings())
            if certificate is not None:
                _write_json(partial / "certificate.json", certificate.asdict())
            partial.replace(folder)
        except OSError as e:
            shutil.rmtree(partial, ignore_errors=True)
            raise InputError(f"{folder}: cannot write: {e.strerror or e}") from None

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
    sampler = _sampler(cmdp, method, policy, sampler)
    policy, key = sampler.policy, key_of(seed)
    slater = _margin(cmdp, policy)
    lam_max = _bound_of_multipliers(cmdp, method, slater)
    exact = cmdp.S <= EXACT_STATES if exact_J is None else exact_J

    began, status = time.perf_counter(), "done"
    if isinstance(sampler, Table):
        announce(kernels.run)
    chunks = [_Chunk(method.init(policy.init(), cmdp.I), None, None)]
    n = 1
    try:
        while chunks[-1].state.k < method.K:
            started, state = time.perf_counter(), chunks[-1].state
            state, part = _advance(sampler, method, key, state, min(n, method.K - state.k), lam_max)
            _must_be_finite(state)
            d = occupancy(cmdp, policy.pi(part.theta)) if exact else None
            part = part if d is None else replace(part, J=values(cmdp, d))
            chunks.append(_Chunk(state, part, None if d is None else d.sum(0)))  # at once: Ctrl-C leaves all or nothing
            n = int(np.clip(n * PATIENCE / max(time.perf_counter() - started, 1e-6), 1, 2 * n))
            if progress is not None:
                progress(part, state)
    except KeyboardInterrupt:
        if len(chunks) == 1:
            raise
        status = "interrupted"
    trace = Trace.joined([c.trace for c in chunks if c.trace is not None])
    d_bar = np.sum([c.d_sum for c in chunks if c.d_sum is not None], axis=0) / len(trace) if exact else None
    seconds = time.perf_counter() - began
    return Solution(cmdp, method, policy, trace, chunks[-1].state, slater, lam_max, status, int(seed), seconds, d_bar)


class _Chunk(NamedTuple):
    """Some iterations: the state after them, their trace, and the sum of their occupancies if that is recorded."""

    state: State
    trace: Trace | None
    d_sum: Array | None


def _sampler(cmdp: CMDP, method: CNPGPD, policy: SoftmaxPolicy | None, sampler: Sampler | None) -> Sampler:
    """The sampler given, or Algorithm 2 on the policy given; refuses what would run and mean something else."""
    if sampler is None:
        policy = softmax(cmdp.S, cmdp.A, cmdp.available) if policy is None else policy
        sampler = Table(cmdp, policy)
    elif sampler.cmdp is not cmdp or (policy is not None and policy is not sampler.policy):
        raise InputError("sampler was made for another problem or policy: give the same objects to both")
    check_fits(cmdp, sampler.policy)
    if isinstance(sampler, Exact) and isinstance(method.direction, SGD):
        raise InputError(
            "direction SGD wants draws of equal weight, Exact weighs them: use Tabular() or LeastSquares()"
        )
    if isinstance(method.direction, Tabular) and not sampler.policy.tabular:
        raise InputError("direction Tabular is for tabular softmax only: use SGD() or LeastSquares()")
    return sampler


def _must_be_finite(state: State) -> None:
    if not (np.all(np.isfinite(state.theta)) and np.all(np.isfinite(state.lam))):
        raise SolverError(f"theta or lam is no longer finite at iteration {state.k}: lower eta1, eta2 or alpha")


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


@lru_cache(maxsize=4)
def _margin(cmdp: CMDP, policy: SoftmaxPolicy) -> float:
    """The Slater margin of the policy class, or of all policies where the class has no linear program."""
    try:
        model = class_model(cmdp, policy)
    except TiedFeaturesError:
        model = cmdp
    slater, _ = slater_margin(model)
    if not can_be_met(model, slater):
        raise InfeasibleError(infeasible_message(slater), slater, model)
    return slater


def _bound_of_multipliers(cmdp: CMDP, method: CNPGPD, slater: float) -> float:
    """Λ as given, or from the margin; warns before time is spent if κ is not below it."""
    if method.kappa >= slater - 1e-12 * abs(slater) or not slater > 1e-9 * _size(cmdp):
        text = f"kappa = {method.kappa:g} is not below the Slater margin {slater:.6g}, so no policy keeps it"
        if method.lam_max is None:
            remedy = f"choose kappa < {slater:.6g}" if slater > 0 else "lower b"
            raise InputError(f"{text}; {remedy}, or give lam_max to run it all the same")
        warnings.warn(f"{text} and lam will run into lam_max = {method.lam_max:g}", ConservatismWarning, stacklevel=3)
    if method.lam_max is not None:
        return float(method.lam_max)
    return dual.lam_max_of(cmdp.gamma, slater, method.kappa, float(np.ptp(cmdp.r))) if cmdp.I else 1.0


def _size(cmdp: CMDP) -> float:
    """The size of J_g, below whose billionth a margin is rounding."""
    return float(np.abs(cmdp.g).max(initial=0.0)) / (1 - cmdp.gamma)


def _write_json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=1, allow_nan=False, default=_number) + "\n")


def _number(x: Any) -> Any:
    """NumPy's numbers as plain ones."""
    return x.item()
