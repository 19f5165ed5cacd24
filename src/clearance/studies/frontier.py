"""The price of safety: the best reward as a function of one limit, or of the conservatism κ.

    J_r*(x) = max {J_r(π) : J_gi(π) ≥ x, J_gj(π) ≥ b_j, j ≠ i}             over b: one limit varies, the others stay
    J_r*(κ) = max {J_r(π) : J_gi(π) ≥ b_i + κ for all i}                    over κ: all limits, Bai et al. 2023, eq. 7

J_r* is the value of a linear program as a function of its right-hand side. So it is concave and piecewise linear, and
its slope is minus the multiplier: −λ_i, or −Σ_i λ_i over κ. The curve begins where the limit starts to bind: at the
largest J_gi among the policies that are best without this limit. It ends at max J_gi, the strictest limit that can be
met. Half of the points are evenly spaced; the others are placed where the curve is least known, which finds the kinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.certificate import Verdict
from clearance.certificates.verdict_words import as_written
from clearance.cluster.executor import Executor, run_all
from clearance.core.arrays import Array
from clearance.core.csv_files import write_csv
from clearance.core.data_frames import make_frame
from clearance.core.errors import InfeasibleError, InputError, infeasible_message
from clearance.core.figures import finish_figure, load_pyplot
from clearance.core.html_card import html_card, html_curve
from clearance.core.text import visible
from clearance.core.validation import check_model
from clearance.exact.feasibility import Scaled, slater_margin
from clearance.exact.infeasibility import HAIRS, diagnose, maximise_constraint, select_signals
from clearance.exact.optimum import Optimum, optimum
from clearance.exact.policy_bounds import lower_bounds
from clearance.finite.cmdp import CMDP
from clearance.finite.long_run import scale_of
from clearance.simulator.simulator import Simulator
from clearance.studies.frontier_figure import draw_frontier
from clearance.studies.simulator_frontier import constraint_index, simulator_frontier

Over = Literal["b", "kappa"]
MOST = 10_000  # points on a curve
COLUMNS = ("row", "limit", "J_r", "lam", "bound", "verdict", "b")


class Point(NamedTuple):
    """The optimum at one value of the limit.

    b          the limit of the utility (minus the upper limit of a cost), or κ
    J_r        the reward;  lam: the multiplier of the limit;  bound: a proven upper bound on the reward
    certified  whether the optimal policy is proven to meet all limits
    """

    b: float
    J_r: float
    lam: float
    bound: float
    certified: bool


class Learned(NamedTuple):
    """A policy that `solve` found for one limit, with its values and the verdict of `certify`.

    b  the limit of the utility (minus the upper limit of a cost), or κ;  J_g: the values of all utilities
    """

    b: float
    J_r: float
    J_g: list[float]
    verdict: Verdict


@dataclass(frozen=True, eq=False, repr=False)
class Frontier:
    """The best reward for each value of a limit: from the loosest limit that binds to the strictest that can be met.

    over        "b" if one limit varies, or "kappa" if all limits are tightened by κ
    constraint  the index of the limit that varies; None over κ;  name: its name; empty over κ
    b           [n] the limits of the utility (or κ), increasing; that of a cost is minus its upper limit
    J_r         [n] the exact reward of the optimal policy at each limit
    lam         [n] the price λ of the limit: dJ_r/dlimit = −λ; at a kink, one of its slopes
    bound       [n] proven upper bound on the reward of every policy that meets the limits
    certified   [n] whether the policy is proven to meet its limits; then J_r ≤ optimum ≤ bound
    own         the point at the problem's own limit (κ = 0); left of the curve if that limit does not bind
    names       names of all constraints [I];  costs: which of them are costs
    learned     policies found by `solve`, with the verdicts of their certificates
    """

    over: Over
    constraint: int | None
    name: str
    b: Array
    J_r: Array
    lam: Array
    bound: Array
    certified: NDArray[np.bool_]
    own: Point
    learned: tuple[Learned, ...]
    names: tuple[str, ...] = ()
    costs: tuple[bool, ...] = ()

    def __repr__(self) -> str:
        what = self.axis_name
        ends = f"from {self.limit[0]:.6g} to {self.limit[-1]:.6g}"
        own = f"now {as_written(self.own.b, cost=self.cost):.6g}, J_r = {self.own.J_r:.6g}, price {self.own.lam:.4g}"
        return f"<Frontier: J_r over {visible(what)}, {len(self.limit)} points {ends}; {own}>"

    def _repr_html_(self) -> str:
        own = as_written(self.own.b, cost=self.cost)
        label = f"J_r from {self.J_r.min():.6g} to {self.J_r.max():.6g} over {self.axis_name}"
        label += f", {self.limit.min():.6g} to {self.limit.max():.6g}; the dot is the problem as it is"
        now = f"Now {own:.6g}: J_r = {self.own.J_r:.6g}; one unit stricter costs at least {self.own.lam:.6g}."
        curve = html_curve(self.limit.tolist(), self.J_r.tolist(), label, at=(own, self.own.J_r))
        return html_card(f"Frontier: J_r over {self.axis_name}, {len(self.limit)} points", [now], curve=curve)

    @property
    def cost(self) -> bool:
        """Whether the limit that varies is the upper limit of a cost."""
        return self.constraint is not None and bool(self.costs) and self.costs[self.constraint]

    @property
    def axis_name(self) -> str:
        """The name of the quantity that varies: "kappa", or the upper or lower limit of a constraint."""
        if self.over == "kappa":
            return "kappa"
        return f"the {'upper' if self.cost else 'lower'} limit of {self.name}"

    @property
    def limit(self) -> Array:
        """The limits [n] as the user writes them: upper limits of a cost (−b), lower limits of a utility (b), or κ."""
        return 0.0 - self.b if self.cost else self.b

    @property
    def paid(self) -> Array:
        """The reward lost so far [n]: the reward at the first, loosest limit minus the reward at each limit."""
        return self.J_r[0] - self.J_r

    def plot(self, title: str = "") -> Any:
        """Return a matplotlib figure of the best reward over the limit, and of the reward lost per unit of limit."""
        return finish_figure(draw_frontier(load_pyplot(), self, title))

    def save(self, path: str | Path) -> None:
        """Write a CSV table with one row per point.

        row    "optimum": a point of the curve; "own": the point at the problem's own limit, one row; or "learned"
        limit  the limit as the user writes it;  b: the same limit in utility form, minus the upper limit of a cost
        """
        write_csv(path, COLUMNS, [["" if x is None else x for x in row] for row in self._rows()])

    def to_frame(self) -> Any:
        """Return the table of `save` as a pandas DataFrame."""
        return make_frame(dict(zip(COLUMNS, map(list, zip(*self._rows(), strict=True)), strict=True)))

    def _rows(self) -> list[tuple[Any, ...]]:
        rows = [("optimum", *p[:4], _word(bool(p[4]))) for p in self._points()]
        rows += [("own", *self.own[:4], _word(self.own.certified))]
        rows += [("learned", p.b, p.J_r, None, None, p.verdict) for p in self.learned]
        return [(row, as_written(b, cost=self.cost), *rest, b) for row, b, *rest in rows]

    def _points(self) -> list[Point]:
        columns = (self.b, self.J_r, self.lam, self.bound, self.certified)
        return [Point(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]


def frontier(problem: Any, constraint: int | str | None = None, **how: Any) -> Any:
    """Compute the price of a limit: the best reward for each value of the limit.

    For a finite model this is the exact curve, a `Frontier`. For a simulator, policies are learned one after the other
    at the limits `at`, and each run starts from the previous one; the result is a `LearnedFrontier`.

    constraint  which limit varies, by index or name
    how         the other arguments of `model_frontier` or `simulator_frontier`
    """
    if isinstance(problem, Simulator):
        return simulator_frontier(problem, constraint, **how)
    return model_frontier(problem, constraint, **how)


def model_frontier(
    cmdp: CMDP,
    constraint: int | str | None = None,
    *,
    over: Over = "b",
    points: int = 21,
    learned: int = 0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
) -> Frontier:
    """Compute the price of the limits of a finite model: the optimum at `points` values of one limit, or of κ.

    constraint  which limit varies with over="b", by index or name (default: the first)
    over        "b": one limit varies; "kappa": all limits are tightened by κ
    learned     number of limits along the curve at which `solve` also learns a policy, which is certified
    progress    a callback progress(points done, points in all)
    executor    computes the points that do not depend on each other (default: threads of this process)

    Raises `InfeasibleError` if the problem's own limits cannot be met.
    """
    check_model(cmdp)
    i = check_arguments(cmdp, constraint, over=over, points=points, learned=learned)
    best = optimum(cmdp)
    if best.status == "infeasible":
        raise InfeasibleError(
            infeasible_message(best.attained_margin, cmdp.I), best.attained_margin, cmdp, diagnose=diagnose
        )
    curve = _Curve(cmdp, i)
    own = curve.point(0.0 if i is None else float(cmdp.b[i]), best)
    first, last = curve.ends()
    # If even the strictest limit that can be met costs no reward, the curve is one point.
    wide = last.b - first.b > 1e-8 * curve.scale
    done = [first, last] if wide else [last]
    told = progress or (lambda *_: None)
    if wide:
        even = run_all(curve.point, _even(first, last, points), executor=executor,
                       progress=lambda n, _: told(2 + n, points + learned))  # fmt: skip
        done = sorted([*done, *even])
    while wide and len(done) < points:
        done = sorted([*done, curve.point(_most_telling(done))])
        told(len(done), points + learned)
    # The midpoints of equal parts of the curve: at its end, learning would have no slack left.
    limits = [first.b + (last.b - first.b) * (j + 0.5) / learned for j in range(learned)]
    found = run_all(lambda x: _learn(curve.at(x), x, seed), limits, executor=executor,
                    progress=lambda n, _: told(points + n, points + learned))  # fmt: skip
    b, J_r, lam, bound, certified = (np.array(c) for c in zip(*done, strict=True))
    name = "" if i is None else cmdp.names[i]
    return Frontier(over, i, name, b, J_r, lam, bound, certified, own, tuple(found), cmdp.names, cmdp.costs)


def check_arguments(
    cmdp: CMDP, constraint: int | str | None, *, over: str = "b", points: int = 21, learned: int = 0
) -> int | None:
    """Return the index of the limit that varies, or None if `over` is "kappa".

    The arguments are those of `model_frontier`. Raise InputError if one of them is wrong; the error names it.
    """
    if over not in get_args(Over):
        raise InputError(f"over must be one of {', '.join(get_args(Over))}, got {over!r}")
    for name, value, least in (("points", points, 2), ("learned", learned, 0)):
        if not isinstance(value, int | np.integer) or not least <= value <= MOST:
            raise InputError(f"{name} must be a whole number in {least}..{MOST}, got {value!r}")
    if cmdp.I == 0:
        raise InputError("the problem has no constraints: there is no limit whose price could be told")
    if over == "kappa":
        if constraint is not None:
            raise InputError("constraint goes with over b: kappa tightens all limits alike")
        return None
    return constraint_index(cmdp.names, constraint)


@dataclass(frozen=True, eq=False)
class _Curve:
    """The problem `cmdp` as a function of one number x: the limit of constraint i, or if i is None, the margin κ."""

    cmdp: CMDP
    i: int | None

    def at(self, x: float) -> CMDP:
        if self.i is None:
            return self.cmdp.tightened(x)
        return self.cmdp.replace(b=np.where(np.arange(self.cmdp.I) == self.i, x, self.cmdp.b))

    def point(self, x: float, best: Optimum | None = None) -> Point:
        cmdp = self.at(x)
        best = optimum(cmdp) if best is None else best
        lam = float(best.lam.sum() if self.i is None else best.lam[self.i])
        lower = lower_bounds(cmdp, best.policy)
        return Point(x, best.J_r, lam, best.bound, bool(np.all(lower[1:] >= cmdp.b)))

    @property
    def scale(self) -> float:
        """The scale (largest possible absolute value) of J_gi, for the constraint i whose limit varies.

        If the margin κ varies, it is the smallest scale of all constraints.
        """
        g = Scaled.of(self.cmdp).g
        return float(g.min() if self.i is None else g[self.i]) * scale_of(self.cmdp)

    def ends(self) -> tuple[Point, Point]:
        top = slater_margin(self.cmdp)[0] if self.i is None else _largest(self.cmdp, self.i)
        bottom = 0.0 if self.i is None else _begins_to_bind(self.cmdp, self.i)
        last = self._last(top)
        return self.point(min(bottom, last.b)), last

    def _last(self, top: float) -> Point:
        """Return the last point of the curve, slightly below `top`, the largest limit that can be met.

        At `top` itself the set of feasible policies has no interior, and solvers are unreliable there.
        """
        for hair in HAIRS:
            last = self.point(top - hair * self.scale)
            if last.certified:
                break
        return last  # pyright: ignore[reportPossiblyUnboundVariable]


def _even(first: Point, last: Point, points: int) -> list[float]:
    """Return evenly spaced limits strictly between the two end points of a curve.

    Together with the end points, they are the first half of the `points` points.
    """
    n = (points + 1) // 2 - 1
    return [first.b + (last.b - first.b) * i / n for i in range(1, n)]


def _most_telling(done: list[Point]) -> float:
    """Return the limit at which the curve through the points `done` is least known.

    Between two points the curve lies above their chord and below both tangents, whose slopes are −λ. The tangents cross
    at the kink if there is only one. If the curve is known everywhere, return the middle of the widest gap between two
    points.
    """
    crossings = [_crossing(p, q) for p, q in pairwise(done)]
    height, x = max(crossings)
    if height > 1e-6 * (done[0].J_r - done[-1].J_r):
        return x
    _, x = max((q.b - p.b, (p.b + q.b) / 2) for p, q in pairwise(done))
    return x


def _crossing(p: Point, q: Point) -> tuple[float, float]:
    """Return where the frontier's tangents at p and q cross: the height above the chord from p to q, and the limit.

    The height is 0 if the tangents do not cross clearly between the two points.
    """
    width, drop = q.b - p.b, p.J_r - q.J_r
    if not q.lam > p.lam:
        return 0.0, p.b
    x = (q.lam * width - drop) / (q.lam - p.lam)  # J_r at p − λ_p x = J_r at q + λ_q (width − x)
    inside = 1e-3 * width < x < (1 - 1e-3) * width
    return (drop * x / width - p.lam * x if inside else 0.0), p.b + x


def _largest(cmdp: CMDP, i: int) -> float:
    """Return the largest J_gi that a policy can reach under the other limits.

    The result is a proven lower bound of J_gi for the policy that was found.
    """
    return float(lower_bounds(cmdp, optimum(maximise_constraint(cmdp, i)).policy)[1 + i])


def _begins_to_bind(cmdp: CMDP, i: int) -> float:
    """Return the value at which limit i starts to bind.

    It is the largest J_gi among the optimal policies of the problem without limit i.
    """
    others = [j for j in range(cmdp.I) if j != i]
    free = optimum(select_signals(cmdp, [0, *(1 + j for j in others)], cmdp.b[others]))
    # Ask for slightly less than the best reward, or rounding would leave the solver no choice: less by twice the proven
    # gap, or by a billionth of the scale.
    enough = free.J_r - max(2 * (free.bound - free.J_r), 1e-9 * Scaled.of(cmdp).r * scale_of(cmdp))
    safest = optimum(select_signals(cmdp, [1 + i, 0, *(1 + j for j in others)], np.append(enough, cmdp.b[others])))
    return safest.J_r  # the "reward" is J_gi here


def _learn(cmdp: CMDP, limit: float, seed: int) -> Learned:
    from clearance.runs.solve import solve  # loads compiled kernels, which only learning needs

    certificate = solve(cmdp, seed=seed).certificate
    return Learned(limit, certificate.J_r, certificate.J_g, certificate.verdict)


def _word(certified: bool) -> Verdict:
    return "CERTIFIED" if certified else "UNDECIDED"
