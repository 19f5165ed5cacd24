"""Write tables as CSV files that are safe to open in a spreadsheet or a terminal.

A spreadsheet takes a cell that begins with =, +, - or @ for a formula, and a terminal obeys control characters. Names
may come from untrusted files. So control characters are escaped, and text that begins like a formula gets an apostrophe
in front.
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
# At the start of a cell, also after blanks; a spreadsheet of another language may split at semicolons. The second four
# are the wide forms that East Asian versions take for the first.
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
    """Return a cell value that no program takes for a formula or a control sequence; numbers stay numbers.

    >>> plain_cell(-1.5), plain_cell("-1.5"), plain_cell("=1+1"), plain_cell("a\\x1b[31m")
    (-1.5, '-1.5', "'=1+1", 'a\\\\x1b[31m')
    """
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return FORMULA.sub(r"\1'", visible(value))


def other_separator(header: Sequence[str], needed: str) -> str:
    """Return the separator that a file seems to have in place of the comma, as text; "" if there is none.

    header  the first row, split at commas;  needed: a column that every such file has

    >>> other_separator(["state;action"], "state"), other_separator(["states", "action"], "state")
    ("';'", '')
    """
    line = ",".join(header)
    return next((repr(sep) for sep in (";", "\t", "|") if needed in [x.strip() for x in line.split(sep)]), "")


def read_cell(text: str) -> str:
    """Return the text of a cell without the apostrophe that `plain_cell` may have put in front.

    >>> read_cell("'=1+1"), read_cell("it's")
    ('=1+1', "it's")
    """
    return QUOTED.sub(r"\1", text)
