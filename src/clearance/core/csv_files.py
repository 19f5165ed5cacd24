"""Write tables as CSV files that are safe to open in a spreadsheet or a terminal.

A spreadsheet treats a cell that begins with =, +, - or @ as a formula, and a terminal obeys control characters. Names
may come from untrusted files. So control characters are escaped, and text that begins like a formula gets a leading
apostrophe.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

from clearance.core.atomic_files import write_whole
from clearance.core.inside_folder import AnyPath
from clearance.core.text import visible

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# A formula may start a cell, also after blanks; in some languages, spreadsheets also split cells at semicolons. The
# last four characters are wide forms of the first four; East Asian versions accept them.
FORMULA = re.compile(r"(^\s*|;\s*)(?=[=+\-@＝＋－＠])")
QUOTED = re.compile(r"(^\s*|;\s*)'(?=[=+\-@＝＋－＠])")


def write_csv(path: AnyPath, heads: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table with column heads atomically.

    Each number is written as the shortest text that reads back to the same bits.
    """
    with write_whole(path) as f:
        text = io.TextIOWrapper(f, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([plain_cell(head) for head in heads])
        writer.writerows([plain_cell(value) for value in row] for row in rows)
        text.flush()
        text.detach()


def plain_cell(value: Any) -> Any:
    """Return a cell value that no program reads as a formula or a control sequence; numbers are returned unchanged.

    >>> plain_cell(-1.5), plain_cell("-1.5"), plain_cell("=1+1"), plain_cell("a\\x1b[31m")
    (-1.5, '-1.5', "'=1+1", 'a\\\\x1b[31m')
    """
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return FORMULA.sub(r"\1'", visible(value))


def other_separator(header: Sequence[str], needed: str) -> str:
    """Return the separator that a file seems to use instead of the comma, as quoted text; "" if there is none.

    header  the first row, split at commas;  needed: a column that every such file has

    >>> other_separator(["state;action"], "state"), other_separator(["states", "action"], "state")
    ("';'", '')
    """
    line = ",".join(header)
    return next((repr(sep) for sep in (";", "\t", "|") if needed in [x.strip() for x in line.split(sep)]), "")


def read_cell(text: str) -> str:
    """Return the text of a cell without the leading apostrophe that `plain_cell` may have added.

    >>> read_cell("'=1+1"), read_cell("it's")
    ('=1+1', "it's")
    """
    return QUOTED.sub(r"\1", text)
