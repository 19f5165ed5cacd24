"""Numbers as people read them in a report."""

from __future__ import annotations

import numpy as np

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(x: float | None) -> str:
    """As people read it, six digits: 0.25, −3, 1.45·10⁻⁸; a dash where there is none."""
    if x is None or not np.isfinite(x):
        return "—"
    digits, power = f"{x:.6g}".partition("e")[::2]
    return digits.replace("-", "−") + (f"·10{str(int(power)).translate(SUPERSCRIPT)}" if power else "")
