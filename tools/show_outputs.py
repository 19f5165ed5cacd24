"""Run the blocks of documentation pages and write what they print below them.

    python tools/show_outputs.py docs/tutorials/finite_model.md ...
    python tools/show_outputs.py --check docs/tutorials/finite_model.md ...    compare only: status 1 if one differs

A block `output` is written below every block that runs and prints, or replaced where it no longer fits. Long answers
are shortened: a line `…` stands for what is left out. `tests/test_docs.py` compares pages and outputs.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import documents

FLAGS = re.MULTILINE | re.DOTALL


LONG = 16  # lines, beyond which an output is shortened


def shorten(said: str) -> str:
    """Return answers without what follows their bound on the optimum, up to the next title."""
    return re.sub(
        r"^gap to the optimum, at most.*?(?=^\S+: the policy|^\S+ on |^Written|^export of|\Z)", "…\n", said, flags=FLAGS
    )


def with_outputs(text: str, name: str) -> str:
    """Return the page with the output of every block."""
    lines, found = text.splitlines(), documents.blocks(text)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    moved = 0
    for block, following in zip(found, [*found[1:], None], strict=False):
        if block.marks == ["output"] or documents.is_skipped(block, name):
            continue
        said = documents.run_block(block, name, namespace).rstrip("\n")
        kept = (
            following is not None and following.marks == ["output"] and not documents.difference(following.text, said)
        )
        if not said or kept:
            continue
        said = shorten(said) if len(said.splitlines()) > LONG else said
        end = (
            block.line + block.text.count("\n") + moved
        )  # of the block's last fence, counted from 0: the line after it
        old = 0
        if following is not None and following.marks == ["output"]:
            old = following.line + following.text.count("\n") + moved - end
        new = ["", "```output", *(line.rstrip() for line in said.splitlines()), "```"]
        lines[end : end + old] = new
        moved += len(new) - old
    return "\n".join(lines) + "\n"


def main() -> int:
    os.environ |= {"MPLBACKEND": "Agg", "COLUMNS": "80"}
    check, differ = "--check" in sys.argv, 0
    for path in [Path(p).resolve() for p in sys.argv[1:] if p != "--check"]:
        with tempfile.TemporaryDirectory() as folder:
            here = os.getcwd()
            os.chdir(folder)
            sys.path.insert(0, folder)
            sys.modules.pop("mine", None)
            try:
                text = with_outputs(path.read_text(encoding="utf-8"), path.name)
            finally:
                os.chdir(here)
                sys.path.remove(folder)
        if not check:
            path.write_text(text, encoding="utf-8")
        elif text != path.read_text(encoding="utf-8"):
            print(f"{path}: the outputs differ")
            differ = 1
    return differ


if __name__ == "__main__":
    sys.exit(main())
