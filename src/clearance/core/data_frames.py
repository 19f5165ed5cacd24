"""Convert results to pandas DataFrames, if pandas is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearance.core.errors import MissingExtraError


def make_frame(columns: Mapping[str, Any]) -> Any:
    """Return a DataFrame with these columns; raise MissingExtraError if pandas is not installed."""
    try:
        import pandas  # type: ignore[import-not-found]
    except ImportError:
        raise MissingExtraError("pandas", "pandas") from None
    return pandas.DataFrame(dict(columns))
