"""The folders from which the user's own code may be imported.

If a user types `mine:make` on the command line, the file in the current folder is meant, as with `python -m`. But a
command that opens stored files (`--resume`, or a sweep in a .toml file) may run in a folder with files from someone
else. For such a command, only installed packages and the folders given with `--allow-import` are searched, not the
current folder.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from typing import NamedTuple


class ImportRule(NamedTuple):
    """The folders that are searched first for the user's modules.

    `here` says whether the current folder is also searched.
    """

    folders: tuple[str, ...] = ()
    here: bool = True

    def has(self, module: str) -> bool:
        """Return whether one of the folders contains a module, without executing any of its code."""
        top = module.partition(".")[0]
        return bool(self.folders) and PathFinder.find_spec(top, list(self.folders)) is not None


_rules = [ImportRule()]


def import_rule() -> ImportRule:
    """Return the import rule that is in force now."""
    return _rules[-1]


def rule_of(words: Sequence[str]) -> ImportRule:
    """Return the import rule for a command line, which is given as a list of words.

    The current folder is searched unless the command opens stored files.

    >>> rule_of(["solve", "mine:make", "--out", "run"]).here, rule_of(["solve", "mine:make", "--resume", "run"]).here
    (True, False)
    """
    folders = [word for before, word in zip(("", *words), words, strict=False) if before == "--allow-import"]
    folders += [word.partition("=")[2] for word in words if word.startswith("--allow-import=")]
    stored = any(word.partition("=")[0] == "--resume" or word.endswith(".toml") for word in words)
    return ImportRule(tuple(os.path.realpath(f) for f in folders), not stored)


@contextlib.contextmanager
def search(rule: ImportRule) -> Iterator[None]:
    """Apply an import rule to `sys.path` for the duration of a `with` block."""
    here = os.path.realpath(os.getcwd())
    left_out = [] if rule.here else [p for p in sys.path if os.path.realpath(p) == here and here not in rule.folders]
    added = [*rule.folders, *([here] if rule.here else [])]
    sys.path[:] = [*added, *(p for p in sys.path if p not in left_out)]
    _rules.append(rule)
    try:
        yield
    finally:
        _rules.remove(rule)
        for folder in added:  # entries that the user's code has added stay
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)
        sys.path[:0] = left_out
