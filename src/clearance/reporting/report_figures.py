"""The figures of a report: each is a drawing with a text alternative, a caption, a legend and a table of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from clearance.certificates.verdict_words import as_written
from clearance.finite.evaluation import occupancy
from clearance.reporting.curves import Curve, curve, span
from clearance.reporting.html_elements import el
from clearance.reporting.number_words import number
from clearance.reporting.run_view import View
from clearance.reporting.svg_plots import SERIES, Axes, heat_map, legend
from clearance.studies.frontier import Frontier

STEPS = "environment steps"
ROWS = 12  # largest number of rows in the table below a figure
MOST_LIMITS = 8  # largest number of constraints that are drawn
# Largest numbers of states, actions and mixture components for which the policy is drawn.
MOST_STATES, MOST_ACTIONS, MOST_COMPONENTS = 128, 32, 6


class Level(NamedTuple):
    """A horizontal line in a figure, and its label."""

    y: float
    text: str


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str, *, cards: bool = False) -> Element:
    """Return an HTML table with column heads; the first cell of each row is the head of the row.

    On a narrow screen a table with `cards` shows each row as a card; any other table scrolls, with a hint.
    """
    head = el("tr", *(el("th", h, scope="col") for h in heads))
    body = [_row(heads, row) for row in rows]
    made = el(
        "table", el("caption", caption), el("thead", head), el("tbody", *body), class_="by-card" if cards else None
    )
    hint = None if cards else el("p", "Scroll sideways to see all columns →", class_="hint")
    return el("div", hint, el("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption))


def _row(heads: Sequence[str], row: Sequence[str]) -> Element:
    cells = (el("td", c, data_label=h) for h, c in zip(heads[1:], row[1:], strict=True))
    return el("tr", el("th", row[0], scope="row"), *cells)


def figure(title: str, drawn: Element, *below: Element | None) -> Element:
    return el("figure", el("figcaption", title), drawn, *below, class_="card")


def numbers(heads: Sequence[str], rows: Sequence[Sequence[float]], caption: str) -> Element:
    """Return the numbers behind a figure as a collapsed table of at most `ROWS` rows.

    `heads` are the column heads, and `caption` is the table's caption.
    """
    some = [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, min(ROWS, len(rows))).astype(int))]
    shown = table(heads, [[number(float(v)) for v in row] for row in some], caption)
    return el("details", el("summary", "Numbers"), shown)


def _over_steps(view: View, i: int, name: str, title: str, y_label: str, y: tuple[float, float]) -> Element:
    """Return the figure of the reward (i = 0) or of the slack of constraint i over environment steps.

    The chosen policy is marked. `name` makes ids in the page unique; y is the range of the vertical axis.
    """
    level = level_of(view, i)
    seen, chosen = _curve(view, i), _chosen_point(view, i)
    end, kind = float(seen.x[-1]), "exact" if len(view.trace.J) else "as sampled"
    axes = Axes((0.0, end * 1.02), y, STEPS, y_label)
    axes.band(seen.x, seen.low, seen.high, "c0")
    axes.line(seen.x, seen.so_far, "c1")
    axes.line(seen.x, seen.mean, "c0")
    keys = [("line c0", f"iterates, {kind}: mean"), ("band c0", "5 % to 95 % of them"), ("line c1", "average so far")]
    told = f"{title}. Iterates ({kind}): mean from {number(seen.mean[0])} to {number(seen.mean[-1])}"
    told += f" over {number(end)} steps."
    if level is not None:
        axes.level(level.y, "strong", level.text)
        told += f" Line: {level.text}."
    if chosen is not None:
        between = "" if chosen[1] is None else f", between {number(chosen[1])} and {number(chosen[2])}"
        said = f"The chosen policy: {number(chosen[0])}{between}"
        axes.point(end, *chosen, "c2", said)
        told += f" {said}."
        keys.append(("point c2", f"the chosen policy, {_how(view) if between else 'as estimated'}"))
    rows = list(zip(seen.x, seen.mean, seen.low, seen.high, seen.so_far, strict=True))
    behind = numbers(("steps", "mean", "5 %", "95 %", "average so far"), rows, f"{title}: numbers")
    return figure(title, axes.figure(name, told), legend(keys), behind)


def _how(view: View) -> str:
    return "enclosed" if view.certificate.get("evidence") == "exact" else "with bounds at level δ"


def _curve(view: View, i: int) -> Curve:
    b = view.b[i - 1] if i else 0.0
    return curve(view.trace.steps, view.J[:, i] - b)


def _chosen_point(view: View, i: int) -> tuple[float, float | None, float | None] | None:
    """Return (value, low, high) of the chosen policy: its reward (i = 0) or its slack in constraint i, with bounds.

    The bounds are None if they are not finite, as for a reward without declared bounds. Return None if there is no
    policy yet.
    """
    said, b = view.certificate, view.b[i - 1] if i else 0.0
    value = (said["J_r"] if i == 0 else said["J_g"][i - 1]) if said else np.nan
    if not np.isfinite(value):
        return None
    low, high = said["J_lower"][i] - b, said["J_upper"][i] - b
    return (value - b, low, high) if np.isfinite(low) and np.isfinite(high) else (value - b, None, None)


def level_of(view: View, i: int) -> Level | None:
    """Return the horizontal line of figure i: the optimum for the reward (i = 0), the limit for constraint i.

    Return None if nothing is known about the optimum.
    """
    if i:
        return Level(0.0, "limit: kept above")
    if view.best is not None:
        return Level(view.best.J_r, f"optimum {number(view.best.J_r)}")
    bound = view.certificate.get("bound")
    return None if bound is None else Level(bound, f"no policy earns more: {number(bound)}")


def range_of(views: Sequence[View], i: int) -> tuple[float, float]:
    """Return one range of the vertical axis for figure i of all runs, so that the runs can be compared.

    Figure 0 is the reward, figure i > 0 constraint i.
    """
    found = []
    for view in views:
        seen, level = _curve(view, i), level_of(view, i)
        chosen = _chosen_point(view, i)
        found += [seen.mean, seen.so_far, *(chosen or ()), None if level is None else level.y]
        late = len(seen.x) // 5  # the first iterates may be far off: their range is cut, their mean is not
        found += [seen.low[late:], seen.high[late:]]
    return span(*found)


def over_steps(view: View, name: str, ranges: Sequence[tuple[float, float]]) -> list[Element]:
    """Return the figures of the reward and of all slacks over environment steps.

    `name` makes ids in the page unique; `ranges` are the ranges of the vertical axes.
    """
    found = [_over_steps(view, 0, f"{name}-0", "Reward J_r", "J_r", ranges[0])]
    for i, constraint in enumerate(view.names[:MOST_LIMITS], 1):
        found.append(_over_steps(view, i, f"{name}-{i}", f"Slack of “{constraint}”", "slack", ranges[i]))
    return found


def multipliers(view: View, name: str) -> Element | None:
    """Return the figure of every multiplier λ_i over environment steps, with λ* of the optimum.

    Return None if there are no constraints. `name` makes ids in the page unique.
    """
    I = len(view.names)
    if not I:
        return None
    shown = range(min(I, SERIES))
    curves = [curve(view.trace.steps, view.trace.lam[:, i]) for i in shown]
    best = None if view.best is None else view.best.lam
    axes = Axes((0.0, float(curves[0].x[-1]) * 1.02), span(0.0, *(c.mean for c in curves), best), STEPS, "λ")
    keys = []
    for i in shown:
        axes.line(curves[i].x, curves[i].mean, f"c{i}")
        keys.append((f"line c{i}", f"λ of “{view.names[i]}”"))
        if best is not None:
            axes.level(float(best[i]), f"c{i}")
            keys.append((f"level c{i}", f"at the optimum: {number(float(best[i]))}"))
    told = "; ".join(f"{view.names[i]}: λ ends at {number(float(curves[i].mean[-1]))}" for i in shown)
    told += "" if best is None else "; at the optimum λ* = " + ", ".join(number(float(x)) for x in best)
    rows = [(x, *(c.mean[k] for c in curves)) for k, x in enumerate(curves[0].x)]
    behind = numbers(("steps", *(view.names[i] for i in shown)), rows, "Multipliers: numbers")
    return figure("Multipliers λ", axes.figure(f"{name}-lam", f"Multipliers. {told}."), legend(keys), behind)


def price(view: View, seen: Frontier, name: str) -> Element:
    """Return the figure of the best reward over one limit, from the frontier `seen`.

    The problem's own limit and the chosen policy are marked; `name` makes ids in the page unique.
    """
    own, chosen = seen.own, _chosen_point(view, 0)
    at_own, stricter = as_written(own.b, cost=seen.cost), "← stricter" if seen.cost else "stricter →"
    x = span(seen.limit, at_own)
    axes = Axes(x, span(seen.J_r, own.J_r, chosen and chosen[0]), f"{seen.axis_name}: {stricter}", "best J_r")
    axes.upright(at_own, "strong")
    limit, J_r = np.append(at_own, seen.limit), np.append(own.J_r, seen.J_r)
    order = np.argsort(limit)
    axes.line(limit[order], J_r[order], "c0")
    keys = [("line c0", "optimum by linear programming"), ("level strong", "the limit as it is")]
    if chosen is not None:
        axes.point(at_own, chosen[0], None, None, "c2", f"the chosen policy: J_r {number(chosen[0])}")
        keys.append(("point c2", "the chosen policy"))
    told = f"Price of safety. At the problem's own limit {number(at_own)} the best reward is {number(own.J_r)}, and one"
    told += f" unit {'less' if seen.cost else 'more'} costs at least {number(own.lam)}. The curve falls from"
    first, last = (f"{number(float(seen.J_r[i]))} at {number(float(seen.limit[i]))}" for i in (0, -1))
    told += f" {first} to {last}, the last limit that can be met."
    rows = list(zip(seen.limit, seen.J_r, seen.lam, strict=True))
    behind = numbers(("limit", "best J_r", "price λ"), rows, f"Price of “{seen.name}”: numbers")
    return figure(f"Price of “{seen.name}”", axes.figure(name, told), legend(keys), behind)


def policies(view: View) -> list[Element]:
    """Return one heat map for each component of the mixture.

    Return an empty list if the model is too large or the policy is no table.
    """
    policy, cmdp = view.policy, view.cmdp
    if policy is None or cmdp is None or cmdp.S > MOST_STATES or cmdp.A > MOST_ACTIONS:
        return []
    found = []
    for m in np.argsort(-policy.weights, kind="stable")[:MOST_COMPONENTS]:
        pi, weight = policy.pi[m], policy.weights[m]
        d = occupancy(cmdp, pi).sum(-1)
        if pi.ndim == 3:  # with a horizon: the first step, and all visits
            pi = pi[0]
        d = d.sum(0) if d.ndim == 2 else d / max(float(d.sum()), 1e-300)
        random = int(np.sum(pi.max(-1) < 1 - 1e-9))
        often = ", ".join(f"{s} ({d[s]:.0%})" for s in np.argsort(-d)[:3])
        told = f"Component {m + 1} of {policy.M}, weight {weight:.4g}: {cmdp.S} states × {cmdp.A} actions,"
        told += f" random in {random} states; most visited states: {often}."
        title = f"Component {m + 1} of {policy.M}: weight {weight:.2%}" if policy.M > 1 else "The policy π(a|s)"
        title += " in the first step" if policy.pi.ndim == 4 else ""
        keys = [("band heat", "probability of the action"), ("band visits", "how often the state is visited")]
        behind = el("details", el("summary", "Numbers"), _probabilities(pi, title)) if pi.size <= 600 else None
        found.append(figure(title, heat_map(pi, d, told), legend(keys), behind))
    return found


def _probabilities(pi: np.ndarray, title: str) -> Element:
    heads = ("state", *(f"action {a}" for a in range(pi.shape[1])))
    rows = [(str(s), *(f"{p:.4f}" for p in row)) for s, row in enumerate(pi)]
    return table(heads, rows, f"{title}: probabilities")
