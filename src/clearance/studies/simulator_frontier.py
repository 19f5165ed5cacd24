"""The price of safety on a simulator: policies that are learned and certified at several limits, one after the other.

The limits are visited from the loosest to the strictest. Each run starts from the policy, the multipliers and the
critics of the previous run (`init` of `solve`), so it only has to adapt to the new limit. Nothing is known about
policies at other limits, or about better policies at the same limits. So the result is a lower bound of the frontier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.certificate import Certificate
from clearance.core.arrays import Array
from clearance.core.csv_files import write_csv
from clearance.core.errors import InputError
from clearance.core.figures import GREEN, SKY, finish_figure, load_pyplot, plain_text
from clearance.core.text import find_name, visible
from clearance.core.validation import read_numbers

FIRST = 2.0  # the first run has this many times the budget of each later run


@dataclass(frozen=True, eq=False, repr=False)
class LearnedFrontier:
    """The rewards of learned policies against one limit of a simulator.

    name, cost    the name of the constraint whose limit varies, and whether it is a cost
    limit         [n] the limits as the user writes them, in the order of the runs: the loosest first
    J_r, value    [n] estimated reward, and estimated value of the constraint as the user writes it
    certified     [n] whether the policy is CERTIFIED to meet this limit and the limits of all other constraints
    certificates, policies, env_steps  the certificate, the policy and the environment steps of each run
    """

    name: str
    cost: bool
    limit: Array
    J_r: Array
    value: Array
    certified: NDArray[np.bool_]
    certificates: tuple[Certificate, ...]
    policies: tuple[Any, ...]
    env_steps: tuple[int, ...]

    def __repr__(self) -> str:
        rows = zip(self.limit, self.J_r, self.certificates, strict=True)
        points = ", ".join(f"{x:.6g}: {r:.6g} {c.verdict}" for x, r, c in rows)
        return f"<LearnedFrontier: J_r over the limit of {visible(self.name)}; {points}>"

    def plot(self) -> Any:
        """Return a matplotlib figure with the reward of the learned policies.

        Policies that are not certified have hollow markers.
        """
        fig, ax = load_pyplot().subplots(figsize=(5.6, 3.6), layout="constrained")
        ax.plot(self.limit, self.J_r, color=SKY, linewidth=1.2)
        for certified, face in ((True, GREEN), (False, "none")):
            at, label = self.certified == certified, "certified" if certified else "not certified"
            style = {"marker": "o", "linestyle": "none", "color": GREEN, "markerfacecolor": face}
            if at.any():
                ax.plot(self.limit[at], self.J_r[at], label=label, **style)
        ax.set_xlabel(plain_text(f"limit of {self.name}"))
        ax.set_ylabel("$J_r$")
        ax.legend(fontsize=8, framealpha=0.9)
        ax.grid(alpha=0.25, linewidth=0.5)
        return finish_figure(fig)

    def save(self, path: str | Path) -> None:
        """Write a CSV table with one row per limit."""
        words = [c.verdict for c in self.certificates]
        rows = zip(self.limit.tolist(), self.J_r.tolist(), self.value.tolist(), words, self.env_steps, strict=True)
        write_csv(path, ("limit", "J_r", "value", "verdict", "env_steps"), [list(row) for row in rows])


def simulator_frontier(
    simulator: Any,
    constraint: int | str | None = None,
    *,
    at: Sequence[float] | None = None,
    budget: float = 1e6,
    delta: float = 0.01,
    seed: int = 0,
    method: Any = None,
    init: Any = None,
    out: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LearnedFrontier:
    """Learn and certify one policy at each limit.

    constraint  which limit varies, by index or name (default: the first)
    at          the limits, as the user writes them
    budget      environment steps of each run; the first run has twice as many, unless `init` is given
    init        the policy or run from which the first run starts, as in `solve`
    out         a folder: each run is written to a run folder in it
    progress    a callback progress(runs done, runs in all)

    Each certificate holds at level delta on its own.
    """
    from clearance.runs.solve import solve  # loads the adapters, which only learning needs

    s = simulator.statement
    i = constraint_index(s.names, constraint)
    limits = np.sort(np.unique(read_numbers("at", np.atleast_1d(np.asarray([] if at is None else at, float)), ndim=1)))
    if not len(limits):
        raise InputError("at is missing: give the limits at which to learn, such as at=[5, 10, 20]")
    cost, sign = bool(s.costs[i]), -1.0 if s.costs[i] else 1.0
    limits = limits[::-1] if cost else limits
    found: list[Any] = []
    for j, limit in enumerate(limits):
        problem = simulator.replace(b=np.where(np.arange(s.I) == i, sign * limit, s.b))
        first = j == 0 and init is None
        folder = None if out is None else Path(out) / f"limit-{limit:g}"
        start = found[-1] if found else init
        how = {"budget": budget * (FIRST if first else 1.0), "delta": delta, "seed": seed, "init": start, "out": folder}
        found.append(solve(problem, method, **how))
        if progress is not None:
            progress(j + 1, len(limits))
    seen = tuple(solution.certificate for solution in found)
    return LearnedFrontier(
        s.names[i],
        cost,
        limits,
        np.array([c.J_r for c in seen]),
        sign * np.array([c.J_g[i] for c in seen]) + 0.0,
        np.array([c.verdict == "CERTIFIED" for c in seen]),
        seen,
        tuple(solution.policy for solution in found),
        tuple(solution.env_steps for solution in found),
    )


def constraint_index(names: Sequence[str], constraint: int | str | None) -> int:
    """Return the index of a constraint, which is given by name or by index (a number or text); 0 if it is None."""
    found = find_name(constraint, names) if isinstance(constraint, str) else None
    if found is not None:
        return list(names).index(found)
    text = "0" if constraint is None else str(constraint)
    if text.isdecimal() and int(text) < len(names):
        return int(text)
    raise InputError(f"constraint {constraint!r} is none of {', '.join(names)}, nor an index in 0..{len(names) - 1}")
