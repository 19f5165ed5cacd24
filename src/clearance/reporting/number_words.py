"""Format numbers for readers of a report."""

from __future__ import annotations

import numpy as np

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(x: float | None) -> str:
    """Return a number as text with six digits, such as 0.25, −3 or 1.45·10⁻⁸; a dash if it is None or not finite."""
    if x is None or not np.isfinite(x):
        return "—"
    digits, power = f"{x:.6g}".partition("e")[::2]
    return digits.replace("-", "−") + (f"·10{str(int(power)).translate(SUPERSCRIPT)}" if power else "")
