"""Draw figures as inline SVG.

Colours are CSS variables, so that they follow the reader's light or dark scheme; lines also differ in dashes, not
in colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

import numpy as np

from clearance.core.arrays import Array
from clearance.reporting.curves import ticks
from clearance.reporting.html_elements import el

# The box of a figure in its own units; the page scales it. At a phone's width letters of 13 are still 10 pixels high.
WIDTH, HEIGHT = 440.0, 270.0
LEFT, RIGHT, TOP, BOTTOM = 66.0, 12.0, 10.0, 40.0
SERIES = 6  # colours c0 … c5 of the style sheet, each with dashes of its own


@dataclass(frozen=True, eq=False)
class Axes:
    """A frame with linear axes that converts data coordinates to figure coordinates and collects the drawn marks."""

    x: tuple[float, float]
    y: tuple[float, float]
    x_label: str
    y_label: str
    marks: list[Element] = field(default_factory=list)

    def px(self, x: Array | float) -> Array:
        low, high = self.x
        return LEFT + (np.asarray(x, float) - low) / ((high - low) or 1.0) * (WIDTH - LEFT - RIGHT)

    def py(self, y: Array | float) -> Array:
        low, high = self.y
        y = np.clip(np.asarray(y, float), low - 9 * (high - low), high + 9 * (high - low))  # far off is cut off anyway
        return HEIGHT - BOTTOM - (y - low) / ((high - low) or 1.0) * (HEIGHT - TOP - BOTTOM)

    def line(self, x: Array, y: Array, style: str) -> None:
        self.marks.append(el("polyline", points=_points(self.px(x), self.py(y)), class_=f"line {style}"))

    def band(self, x: Array, low: Array, high: Array, style: str) -> None:
        there, back = (self.px(x), self.py(high)), (self.px(x)[::-1], self.py(low)[::-1])
        self.marks.append(el("polygon", points=_points(*map(np.append, there, back)), class_=f"band {style}"))

    def level(self, y: float, style: str, text: str = "") -> None:
        """Draw a horizontal line at y; its label `text` is at the left end, where curves are less likely to be near."""
        at = float(self.py(y))
        self.marks.append(el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_=f"level {style}"))
        if text:
            up = at - 5 if at > TOP + 20 else at + 15
            self.marks.append(el("text", text, x=LEFT + 6, y=up, class_="note halo"))

    def upright(self, x: float, style: str) -> None:
        at = float(self.px(x))
        self.marks.append(el("line", x1=at, x2=at, y1=TOP, y2=HEIGHT - BOTTOM, class_=f"level {style}"))

    def point(self, x: float, y: float, low: float | None, high: float | None, style: str, text: str) -> None:
        """Draw a point at (x, y), with the interval from low to high unless these are None; `text` is its tooltip."""
        px, py = float(self.px(x)), float(self.py(y))
        bar = None
        if low is not None and high is not None:
            bar = el("line", x1=px, x2=px, y1=float(self.py(low)), y2=float(self.py(high)), class_="interval")
        dot = el("circle", cx=px, cy=py, r=5)
        self.marks.append(el("g", el("title", text), bar, dot, class_=f"point {style}"))

    def figure(self, name: str, described: str) -> Element:
        """Return the whole figure: frame, axes, and all marks, clipped at the frame.

        `name` makes ids in the page unique; `described` is the text alternative.
        """
        frame = el("rect", x=LEFT, y=TOP, width=WIDTH - LEFT - RIGHT, height=HEIGHT - TOP - BOTTOM)
        clip = el("clipPath", frame, id=f"clip-{name}")
        drawn = el("g", *self.marks, clip_path=f"url(#clip-{name})")
        box = f"0 0 {WIDTH:g} {HEIGHT:g}"
        parts = (el("defs", clip), *self._grid(), *self._labels(), drawn)
        return el("svg", *parts, viewBox=box, role="img", aria_label=described, class_="chart")

    def _grid(self) -> list[Element]:
        found = []
        for y in ticks(*self.y):
            at = float(self.py(y))
            found.append(el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
            found.append(el("text", short(y), x=LEFT - 6, y=at + 4, class_="end tick"))
        for x in ticks(*self.x, most=5):
            at = float(self.px(x))
            found.append(el("line", x1=at, x2=at, y1=TOP, y2=HEIGHT - BOTTOM, class_="grid"))
            found.append(el("text", short(x), x=at, y=HEIGHT - BOTTOM + 16, class_="middle tick"))
        return found

    def _labels(self) -> list[Element]:
        across, up = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
        turned = f"rotate(-90 13 {up:g})"
        return [
            el("text", self.x_label, x=across, y=HEIGHT - 6, class_="middle label"),
            el("text", self.y_label, x=13.0, y=up, transform=turned, class_="middle label"),
        ]


def _points(x: Array, y: Array) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def short(x: float) -> str:
    """Return a number for an axis: thousands as k, millions as M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(x) < 1000 * size:
            return f"{x / size:.4g}{unit}".replace("-", "−")
    return f"{x:.4g}".replace("-", "−")


def legend(entries: Sequence[tuple[str, str]]) -> Element:
    """Return the legend for entries (style of the mark, text)."""
    items = []
    for style, text in entries:
        key = _key(style)
        items.append(el("li", key, el("span", text)))
    return el("ul", *items, class_="legend")


def _key(style: str) -> Element:
    if style.startswith("point"):
        mark = el("g", el("circle", cx=14, cy=6, r=4.5), class_=style)
    elif style.startswith("band"):
        mark = el("rect", x=0, y=1, width=28, height=10, class_=style)
    else:
        mark = el("line", x1=0, x2=28, y1=6, y2=6, class_=style)
    return el("svg", mark, viewBox="0 0 28 12", class_="key", aria_hidden="true")


def heat_map(pi: Array, visits: Array, described: str) -> Element:
    """Return a heat map of π(a|s), with a column for each state and a row for each action.

    The strip at the top shows the share of visits of each state. `described` is the text alternative.
    """
    S, A = pi.shape
    left, right, top, below, strip = 34.0, 4.0, 4.0, 34.0, 14.0
    w = min((WIDTH - left - right) / S, 44.0)
    h = float(np.clip(w, 14.0, 26.0))
    base = top + strip + 4
    cells = [_cell(left + s * w, top, w, strip, float(v), f"state {s}: {p:.2%} of the visits", "visits")
             for s, (v, p) in enumerate(zip(visits / (visits.max() or 1.0), visits, strict=True))]  # fmt: skip
    cells += [
        _cell(left + s * w, base + a * h, w, h, float(pi[s, a]), f"state {s}, action {a}: {pi[s, a]:.4g}", "heat")
        for s in range(S)
        for a in range(A)
    ]
    rows = [el("text", str(a), x=left - 5, y=base + (a + 0.5) * h + 4, class_="end tick") for a in _few(A, 26)]
    columns = [el("text", str(s), x=left + (s + 0.5) * w, y=base + A * h + 14, class_="middle tick")
               for s in _few(S, int((WIDTH - left) // 26))]  # fmt: skip
    frame = el("rect", x=left, y=base, width=w * S, height=h * A, class_="frame")
    words = [
        el("text", "state", x=left + w * S / 2, y=base + A * h + 30, class_="middle label"),
        el("text", "action", x=10, y=base + A * h / 2, class_="middle label",
           transform=f"rotate(-90 10 {base + A * h / 2:g})"),
    ]  # fmt: skip
    box = f"0 0 {WIDTH:g} {base + A * h + below:g}"
    return el(
        "svg", *cells, frame, *rows, *columns, *words, viewBox=box, role="img", aria_label=described, class_="chart"
    )


def _cell(x: float, y: float, w: float, h: float, strength: float, text: str, style: str) -> Element:
    return el("rect", el("title", text), x=x, y=y, width=w, height=h, class_=style, fill_opacity=f"{strength:.3f}")


def _few(n: int, most: int) -> range:
    return range(0, n, -(-n // most))
