"""Helpers for all figures: loading matplotlib on first use, colours, and labels that are shown literally.

The colours are those of Okabe and Ito, which people with any colour vision can tell apart. Each result class draws its
own figure with its method `plot`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from clearance.core.atomic_files import write_whole
from clearance.core.errors import MissingExtraError

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#000000",
)


def load_pyplot() -> Any:
    """Return pyplot with the user's backend. In a notebook, this backend shows figures inline."""
    # If there is no home folder, matplotlib uses a temporary one; this suppresses its two warnings about that.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtraError("matplotlib", "report") from None
    return plt


def pyplot_for_files() -> Any:
    """Return pyplot with a backend that writes figures to files and works without a screen."""
    plt = load_pyplot()
    plt.switch_backend("Agg")
    return plt


def finish_figure(fig: Any) -> Any:
    """Close a figure in pyplot and return it, so that a notebook shows it only as the value of the cell's last line."""
    load_pyplot().close(fig)  # otherwise a notebook shows it twice
    return fig


def save_figure(fig: Any, path: str | Path, *, dpi: int = 110) -> None:
    """Write a figure atomically as .png or .svg; the same figure always gives the same bytes."""
    kind = Path(path).suffix[1:]
    with write_whole(path) as f:
        fig.savefig(f, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)


def plain_text(name: str) -> str:
    """Return a name with escapes for characters that matplotlib would read as mathematics or cannot show."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return shown.replace("\\", "\\\\").replace("$", "\\$")
