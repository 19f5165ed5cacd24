"""The data of one run for its report, read from its folder without executing anything."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InfeasibleError, InputError, SolverError
from clearance.core.statement import Statement
from clearance.exact.optimum import Optimum, optimum
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture
from clearance.learning.trace import Trace
from clearance.runs.certificate_check import CheckedCertificate, check_certificate
from clearance.runs.run_reader import load
from clearance.studies.frontier import Frontier, frontier

# Largest numbers of pairs (s, a) for which a report computes the optimum and the price of safety within seconds.
OPTIMUM_PAIRS, PRICE_PAIRS = 20_000, 600
PRICE_POINTS = 13


@dataclass(frozen=True, eq=False)
class View:
    """The data of one run that its report shows.

    title        the name of the run folder
    policy       the policy of a finite model; None for a simulator, whose networks are not drawn
    certificate  plain data, empty if there is none yet
    price        whether to compute the price of safety; None: compute it if the model is small
    check        the result of checking the certificate again
    """

    title: str
    folder: str
    problem: CMDP | Statement
    policy: Mixture | None
    certificate: dict[str, Any]
    settings: dict[str, Any]
    trace: Trace
    price: bool | None = None
    check: CheckedCertificate | None = None

    @property
    def cmdp(self) -> CMDP | None:
        """The finite model; None for a simulator."""
        return self.problem if isinstance(self.problem, CMDP) else None

    @property
    def statement(self) -> Statement | None:
        """The statement of a problem on a simulator; None for a finite model."""
        return self.problem if isinstance(self.problem, Statement) else None

    @property
    def names(self) -> tuple[str, ...]:
        return self.problem.names

    @property
    def costs(self) -> tuple[bool, ...]:
        """Whether the user wrote each constraint as a cost; from the certificate or, if not there, the problem."""
        return tuple(self.certificate.get("costs") or self.problem.costs)

    @property
    def b(self) -> list[float]:
        return self.certificate["b"] if self.certificate else self.problem.b.tolist()

    @property
    def J(self) -> Array:
        """The values of the iterates [K, 1+I]: exact if they were recorded, else as sampled."""
        return self.trace.J if len(self.trace.J) else self.trace.J_hat

    @cached_property
    def best(self) -> Optimum | None:
        """The exact optimum; None if the model is not known, is too large, or has no optimum."""
        if self.cmdp is None or self.cmdp.S * self.cmdp.A > OPTIMUM_PAIRS:
            return None
        try:
            found = optimum(self.cmdp)
        except SolverError:
            return None
        return found if found.status == "optimal" else None

    @property
    def gap(self) -> float | None:
        """An upper bound on the optimum minus the reward: from the certificate, or else computed from the model.

        None if it is not known, or if the policy is not CERTIFIED.
        """
        if self.check is None or self.certificate["verdict"] != "CERTIFIED":
            return None
        gap, J_r = self.certificate["gap"], self.check.J_r
        if gap is None and self.best is not None and J_r is not None:
            gap = self.best.bound - J_r
        return None if gap is None else max(gap, 0.0)

    @cached_property
    def prices(self) -> tuple[Frontier, ...]:
        """The frontier (best reward over the limit) of each limit, with the other limits unchanged.

        It is empty if the frontiers are not computed.
        """
        if self.cmdp is None or self.best is None or self.no_price:
            return ()
        try:
            return tuple(frontier(self.cmdp, i, points=PRICE_POINTS) for i in range(self.cmdp.I))
        except (SolverError, InfeasibleError):  # limits that can only just be met: the rest of the report is shown
            return ()

    @property
    def no_price(self) -> str:
        """The reason why the price of safety is not shown; empty if it is shown."""
        if self.cmdp is None:
            return "it needs a finite model"
        if not self.cmdp.I:
            return "the problem has no limits"
        if self.price is False:
            return "it was not asked for"
        if self.price is None and self.cmdp.S * self.cmdp.A > PRICE_PAIRS:
            return f"S·A = {self.cmdp.S * self.cmdp.A:,} is more than {PRICE_PAIRS:,}; --price computes it all the same"
        return ""


def read_view(folder: str | Path, price: bool | None = None) -> View:
    """Read a run folder from disk; raise InputError that names the file if something is wrong.

    `price` says whether to compute the price of safety; None: compute it if the model is small.
    """
    run = load(folder)
    settings = {"asked": run.settings, "run": run.method or {}, "status": run.status}
    settings |= {key: run.manifest.get(key) for key in ("k", "K", "env_steps", "seconds", "message", "version")}
    check = None if run.certificate is None else check_certificate(run)
    certificate = {} if check is None else check.certificate.asdict()
    problem, policy = run.problem, None if run.on_simulator else run.policy
    policy = policy if isinstance(policy, Mixture) else None
    if isinstance(problem, CMDP) and policy is not None:
        policy.check(problem)
    title = run.folder.resolve().name
    view = View(title, str(folder), problem, policy, certificate, settings, run.trace, price, check)
    _check_trace(view, len(view.b))
    return view


def _check_trace(view: View, I: int) -> None:
    """Raise InputError unless the arrays of the trace have the right shapes and numbers below 1e200."""
    trace, K = view.trace, len(view.trace)
    shapes = {"lam": (K, I), "J_hat": (K, 1 + I), "steps": (K,), "J": (len(trace.J) and K, 1 + I)}
    wrong = [name for name, shape in shapes.items() if not _is_drawable(getattr(trace, name), shape)]
    if wrong or not K:
        what = f"{wrong[0]} has the wrong shape, or holds numbers that are not finite" if wrong else "it is empty"
        raise InputError(f"{view.folder}/trace: {what}; the file was altered, run solve again")


def _is_drawable(x: Array, shape: tuple[int, ...]) -> bool:
    return x.shape == shape and x.dtype.kind in "fiu" and bool(np.all(np.abs(x.astype(float)) < 1e200))
