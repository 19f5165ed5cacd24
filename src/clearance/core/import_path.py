"""Where code of the user's own may be imported from.

Who types `mine:make` on a command line means the file in the current folder, as with `python -m`. Who opens what is
stored (`--resume`, a grid in a file) may stand in a folder that a stranger filled: there the current folder is not
searched, only installed packages and the folders that `--allow-import` names.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from typing import NamedTuple


class ImportRule(NamedTuple):
    """The folders to search first, and whether the current folder is searched too."""

    folders: tuple[str, ...] = ()
    here: bool = True

    def has(self, module: str) -> bool:
        """Return whether a module lies in one of the folders; nothing is executed to know it."""
        top = module.partition(".")[0]
        return bool(self.folders) and PathFinder.find_spec(top, list(self.folders)) is not None


_rules = [ImportRule()]


def import_rule() -> ImportRule:
    """Return the rule that holds now."""
    return _rules[-1]


def rule_of(words: Sequence[str]) -> ImportRule:
    """Return the rule for a command line: the current folder is searched unless something stored is opened.

    >>> rule_of(["solve", "mine:make", "--out", "run"]).here, rule_of(["solve", "mine:make", "--resume", "run"]).here
    (True, False)
    """
    folders = [word for before, word in zip(("", *words), words, strict=False) if before == "--allow-import"]
    folders += [word.partition("=")[2] for word in words if word.startswith("--allow-import=")]
    stored = any(word.partition("=")[0] == "--resume" or word.endswith(".toml") for word in words)
    return ImportRule(tuple(os.path.realpath(f) for f in folders), not stored)


@contextlib.contextmanager
def search(rule: ImportRule) -> Iterator[None]:
    """Search these folders, while this holds."""
    here = os.path.realpath(os.getcwd())
    left_out = [] if rule.here else [p for p in sys.path if os.path.realpath(p) == here and here not in rule.folders]
    added = [*rule.folders, *([here] if rule.here else [])]
    sys.path[:] = [*added, *(p for p in sys.path if p not in left_out)]
    _rules.append(rule)
    try:
        yield
    finally:
        _rules.remove(rule)
        for folder in added:  # code may have added its own, which stay
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)
        sys.path[:0] = left_out
