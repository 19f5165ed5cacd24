"""Import user code that is named as `package.module:name`: problems, constraints, rules and methods.

Only names that the user gives when starting a run are imported, never names found in a run folder or grid folder.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from dataclasses import is_dataclass
from typing import Any

from clearance.core.errors import InputError
from clearance.core.import_path import ImportRule, import_rule, search
from clearance.core.text import first_line
from clearance.runs.field_values import is_code


def import_name(what: str, text: str, *, call: bool = False, rule: ImportRule | None = None) -> Any:
    """Import `package.module:name` and return it; if `call` is true, call it and return the result.

    Any failure becomes an InputError of one line.

    what  the flag or argument that has this text, for the error message
    rule  the folders in which to search for the module; None: those that this process allows
    """
    module, _, name = text.partition(":")
    rule = import_rule() if rule is None else rule
    try:
        with search(rule), contextlib.redirect_stdout(sys.stderr):  # standard output is for the answer alone
            found = getattr(importlib.import_module(module), name)
            return found() if call else found
    except (Exception, SystemExit) as e:  # foreign code may do anything
        raise InputError(f"{what} {text} failed: {type(e).__name__}: {first_line(e)}{_hint(e, rule)}") from None


def _hint(e: BaseException, rule: ImportRule) -> str:
    """Return a hint that tells the user to name the module's folder with --allow-import.

    Return "" if the error `e` is not about a missing module, or if `rule` searches the current folder already.
    """
    if rule.here or not isinstance(e, ModuleNotFoundError):
        return ""
    return "; with --resume or a grid in a file, name its folder: --allow-import PATH (here: --allow-import .)"


def import_function(what: str, text: str) -> Any:
    found = import_name(what, text) if is_code(text) else None
    if not callable(found):
        raise InputError(f"{what} must be package.module:function, got {text!r}")
    return found


def import_method_class(what: str, text: str) -> Any:
    """Import the class of a method; raise InputError unless it is a dataclass with `init` and `step`.

    `what` is the flag that has this text, for the error message.
    """
    found = import_name(what, text)
    if not (isinstance(found, type) and is_dataclass(found) and hasattr(found, "init") and hasattr(found, "step")):
        raise InputError(
            f"{what} {text} must be a dataclass with methods init and step (see docs/how_to/write_a_method.md)"
        )
    return found
