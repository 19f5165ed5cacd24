"""Small pieces of HTML for notebooks: a title, sentences, a table, a curve. All text is escaped; there are no scripts.

Cards use the colours of the notebook, so they are readable on light and on dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from clearance.core.text import visible

MOST_ROWS = 12
MOST_POINTS = 200
WIDTH, HEIGHT = 320, 90
CELL = "text-align:left;padding:.1em .8em .1em 0"


def html_card(
    title: str,
    sentences: Sequence[str] = (),
    heads: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
    curve: str = "",
) -> str:
    """Return one HTML block: a title, sentences, a table with column `heads`, and `curve`, an inline SVG.

    At most `MOST_ROWS` rows are shown.
    """
    parts = [f'<div style="font-weight:600">{_text(title)}</div>', *(f"<div>{_text(s)}</div>" for s in sentences)]
    parts += [_table(heads, rows)] if rows else []
    parts += [curve] if curve else []
    return f'<div style="max-width:60em;line-height:1.45">{"".join(parts)}</div>'


def html_curve(x: Sequence[float], y: Sequence[float], label: str, *, at: tuple[float, float] | None = None) -> str:
    """Return a small curve of y over x as inline SVG. `label` is its text alternative; `at` marks one point (x, y)."""
    every = max(1, len(x) // MOST_POINTS)
    at = None if at is None or not all(map(math.isfinite, at)) else at
    drawn = [p for p in zip(x[::every], y[::every], strict=True) if all(map(math.isfinite, p))]
    points = drawn if at is None else [*drawn, at]
    if not points:
        return ""
    left, right = min(p[0] for p in points), max(p[0] for p in points)
    low, high = min(p[1] for p in points), max(p[1] for p in points)

    def place(p: tuple[float, float]) -> tuple[float, float]:
        across = (p[0] - left) / ((right - left) or 1.0)
        up = (p[1] - low) / ((high - low) or 1.0)
        return 6 + across * (WIDTH - 12), HEIGHT - 6 - up * (HEIGHT - 12)

    line = " ".join("{:.1f},{:.1f}".format(*place(p)) for p in drawn)
    mark = "" if at is None else '<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="currentColor"/>'.format(*place(at))
    return (
        f'<svg role="img" aria-label="{_text(label)}" width="{WIDTH}" height="{HEIGHT}" style="margin-top:.4em">'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/>{mark}</svg>'
        f'<div style="font-size:85%">{_text(label)}</div>'
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col" style="{CELL}">{_text(h)}</th>' for h in heads)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows[:MOST_ROWS])
    more = f"<div>and {len(rows) - MOST_ROWS:,} more</div>" if len(rows) > MOST_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cells(row: Sequence[str]) -> str:
    return "".join(f'<td style="{CELL}">{_text(cell)}</td>' for cell in row)


def _text(text: str) -> str:
    return escape(visible(text))
