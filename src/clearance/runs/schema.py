"""Check the JSON files of a run folder field by field, since a file and its hash may have been altered together.

Certificates are checked most strictly, because people act on them. A wrong file raises an InputError of one line that
names the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearance.certificates import certificate_fields
from clearance.certificates.best_mixture import SINGLE
from clearance.certificates.certificate import Certificate
from clearance.certificates.certificate_fields import REMEDY, hold, is_count, is_number
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath
from clearance.exact.proof import is_proof

STATUS = ("running", "interrupted", "failed", "done")
PHASES = ("margin", "learning", "choice", "done", "certify")  # "certify": a folder that holds tests by `certify` alone
KINDS = ("method", "sampler")
CLASSES = ("tabular", "features", "network", "design", "table")


def parse_certificate(where: AnyPath, data: dict[str, Any]) -> Certificate:
    """Return the certificate in `data`, the content of the file `where`; raise InputError if a field is wrong."""
    return certificate_fields.parse_certificate(where, data, is_proof)


def parse_manifest(where: AnyPath, data: dict[str, Any]) -> dict[str, Any]:
    """Return `data`, the content of a manifest, unchanged.

    Raise InputError if a field is wrong; the error names the file `where`.
    """
    files = data.get("files")
    rules = [
        ("status", data.get("status") in STATUS, f"one of {', '.join(STATUS)}"),
        ("phase", data.get("phase") in PHASES, f"one of {', '.join(PHASES)}"),
        ("k", is_count(data.get("k"), 0), "a whole number from 0 on"),
        ("K", data.get("K") is None or is_count(data["K"], 0), "a whole number from 0 on, or null"),
        ("env_steps", is_count(data.get("env_steps"), 0), "a whole number from 0 on"),
        ("seconds", is_number(data.get("seconds")), "a finite number"),
        ("version", isinstance(data.get("version"), str), "a text"),
        ("message", isinstance(data.get("message"), str), "a text"),
        ("files", _is_files(files), "names inside the folder, with hashes"),
        ("run", isinstance(data.get("run"), str) or str(data.get("version")).startswith("0.1."), "the id of the run"),
    ]
    hold(where, rules)
    return data


def parse_files(files: Any) -> dict[str, dict[str, Any]]:
    """Return `files`, the table of files in a checkpoint, unchanged.

    Raise ValueError unless it is a dict {path in the folder: size and hash}.
    """
    if not _is_files(files):
        raise ValueError("files must be names inside the folder, with hashes")
    return files


def parse_settings(where: AnyPath, data: dict[str, Any]) -> dict[str, Any]:
    """Return `data`, the content of a settings file, unchanged.

    Raise InputError if a field is wrong; the error names the file `where`. The fields of method and sampler are not
    checked here, but when method and sampler are built.
    """
    budget, delta, command = data.get("budget"), data.get("delta"), data.get("command")
    policy = data.get("policy")
    rules = [
        ("evidence", data.get("evidence") in ("exact", "samples"), "exact or samples"),
        ("budget", budget is None or (is_number(budget) and budget >= 1), "null, or a number from 1 on"),
        ("delta", delta is None or (is_number(delta) and 0 < delta < 1), "null, or in (0, 1)"),
        ("seed", is_count(data.get("seed"), -(2**63)), "a whole number"),
        ("exact_J", data.get("exact_J") in (None, True, False), "null, true or false"),
        ("single", data.get("single") in (None, *SINGLE), f"null, or one of {', '.join(SINGLE)}"),
        ("deterministic", data.get("deterministic") in (None, True, False), "null, true or false"),
        ("policy", isinstance(policy, dict) and policy.get("kind") in CLASSES, ", ".join(CLASSES)),
        ("problem", isinstance(data.get("problem"), str), "a text"),
        ("init", isinstance(data.get("init"), str | None), "null, or a text"),
        ("flags", data.get("flags") is None or isinstance(data["flags"], dict), "null, or an object"),
        ("command", command is None or _is_words(command), "null, or a list of texts"),
    ]
    rules += [(k, data.get(k) is None or _is_kind(data[k]), "null, or an object with a name") for k in KINDS]
    rules += [
        (k, k in data, "there, if only as null") for k in ("budget", "delta", "exact_J", "flags", "command", *KINDS)
    ]
    hold(where, rules)
    return data


@contextlib.contextmanager
def blame_file(where: AnyPath) -> Iterator[None]:
    """Turn errors raised inside the `with` block into an InputError that names the file or folder `where`."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as e:
        what = (str(e).splitlines() or [""])[0]
        raise InputError(f"{where}: holds what it should not ({type(e).__name__}: {what}); {REMEDY}") from None


def _is_words(x: Any) -> bool:
    return isinstance(x, list) and all(isinstance(word, str) for word in x)


def _is_kind(x: Any) -> bool:
    return isinstance(x, dict) and isinstance(x.get("name"), str)


def _is_files(x: Any) -> bool:
    return isinstance(x, dict) and all(map(_is_entry, x.items()))


def _is_entry(item: tuple[str, Any]) -> bool:
    """Return whether `item` is a pair (path inside the folder, {"bytes": count, "sha256": text})."""
    name, entry = item
    inside = not Path(name).is_absolute() and ".." not in Path(name).parts and name.isprintable()
    return (
        inside and isinstance(entry, dict) and is_count(entry.get("bytes"), 0) and isinstance(entry.get("sha256"), str)
    )
