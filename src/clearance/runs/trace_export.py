"""Export the trace of a run folder as one table: CSV, or Parquet if pyarrow is installed. θ is not exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clearance.core.atomic_files import write_whole
from clearance.core.csv_files import write_csv
from clearance.core.errors import InputError, MissingExtraError
from clearance.runs.run_reader import RunFolder

SUFFIXES = (".csv", ".parquet")


def export(run: RunFolder, path: str | Path) -> int:
    """Write the trace of a run to `path`, with one row per iteration; return the number of rows."""
    if not str(path).endswith(SUFFIXES):
        raise InputError(f"{path}: must end in one of {', '.join(SUFFIXES)}")
    if str(path).endswith(".parquet"):
        _pyarrow()  # a missing extra is said before the work
    table = run.trace.columns(run.problem.names)
    (_write_parquet if str(path).endswith(".parquet") else _write_csv)(path, table)
    return len(run.trace)


def _write_csv(path: str | Path, table: dict[str, Any]) -> None:
    write_csv(path, table, zip(*(column.tolist() for column in table.values()), strict=True))


def _write_parquet(path: str | Path, table: dict[str, Any]) -> None:
    pyarrow, parquet = _pyarrow()
    with write_whole(path) as f:
        parquet.write_table(pyarrow.table(table), f)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    return pyarrow, pyarrow.parquet
