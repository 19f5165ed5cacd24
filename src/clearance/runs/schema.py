"""JSON of a run folder, looked at field by field: a file may have been altered, its hash too.

Certificates are checked strictly, since people act on them; whatever else is not as it was written ends in one line
that names the file.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from clearance.certificates.best_mixture import SINGLE
from clearance.certificates.certificate import Certificate
from clearance.certificates.contradictions import find_contradiction
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath
from clearance.exact.proof import is_proof

VERDICTS = ("CERTIFIED", "VIOLATED", "UNDECIDED")
STATUS = ("running", "interrupted", "failed", "done")
PHASES = ("margin", "learning", "choice", "done", "certify")  # the last of a folder in which `certify` keeps tests
REMEDY = "the file was altered; solve again in another folder"
LISTS = {"J_g": 0, "slack": 0, "J_lower": 1, "J_upper": 1}
MAYBE_NUMBERS = ("bound", "gap", "worst_component_slack", "delta", "level", "spent")
MAYBE_LISTS = ("lam", "complementarity")
COUNTS = {"components": 1, "episodes": 0, "env_steps": 0}
TEXTS = ("message", "scope")
EACH = {"names": (str, "texts"), "costs": (bool, "of true and false")}  # one per constraint
KINDS = ("method", "sampler")
CLASSES = ("tabular", "features", "network", "design")
# Fields of certificates that version 0.1 wrote under other names.
RENAMED = {"worst_slack": "worst_component_slack", "mode": "greedy_verdict"}
# What stands for null in a certificate: a bound that is not there, a value that is not finite.
GAPS = {"J_lower": -math.inf, "J_upper": math.inf, "J_g": math.nan, "slack": math.nan, "complementarity": math.nan}


def parse_certificate(where: AnyPath, data: dict[str, Any]) -> Certificate:
    """Return the certificate that a file holds, if no field contradicts another; else an error that names it."""
    data = {RENAMED.get(name, name): value for name, value in data.items()}
    said = {f.name: data[f.name] for f in fields(Certificate) if f.name in data}
    I = len(said["b"]) if isinstance(said.get("b"), list) else 0
    gaps = said.get("verdict") in VERDICTS[1:]  # what is CERTIFIED has all its numbers
    rules = [
        ("verdict", said.get("verdict") in VERDICTS, f"one of {', '.join(VERDICTS)}"),
        ("greedy_verdict", said.get("greedy_verdict") in (None, *VERDICTS), f"null, or one of {', '.join(VERDICTS)}"),
        ("evidence", said.get("evidence") in ("exact", "samples"), "exact or samples"),
        ("J_r", _is_number(said.get("J_r")) or (gaps and "J_r" in said and said["J_r"] is None), "a finite number"),
        ("b", _is_list(said.get("b"), I), "a list of finite numbers"),
        ("interval", _is_interval(said.get("interval"), 1 + I), f"null, or two lists of {1 + I} finite numbers"),
    ]
    rules += [(k, _is_list(said.get(k), I + n, gaps, n), f"a list of {I + n} finite numbers") for k, n in LISTS.items()]
    rules += [(k, said.get(k) is None or _is_number(said[k]), "a finite number, or null") for k in MAYBE_NUMBERS]
    rules += [
        (k, said.get(k) is None or _is_list(said[k], I, gaps), f"{I} finite numbers, or null") for k in MAYBE_LISTS
    ]
    rules += [(k, _is_count(said.get(k), n), f"a whole number from {n} on") for k, n in COUNTS.items()]
    rules += [(k, isinstance(said.get(k), str), "a text") for k in TEXTS]
    rules += [(k, _is_each(said.get(k), I, kind), f"null, or a list of {I} {what}") for k, (kind, what) in EACH.items()]
    rules += [("proof", said.get("proof") is None or is_proof(said["proof"], I), "null, or arrays that fit b")]
    _hold(where, rules)
    first, *rest = said["J_lower"]
    again = {"J_r_lower": first, "J_g_lower": rest}  # written twice, for those who read the file
    _hold(where, [(k, data.get(k, x) == x, "as in J_lower") for k, x in again.items()])
    absent: dict[str, Any] = dict.fromkeys((*MAYBE_NUMBERS, *MAYBE_LISTS))
    said |= {k: [x if v is None else v for v in said[k]] for k, x in GAPS.items() if said.get(k) is not None}
    said |= {"J_r": math.nan} if said["J_r"] is None else {}
    said |= {"interval": tuple(said["interval"])} if said.get("interval") else {}
    found = Certificate(**(absent | said))
    wrong = find_contradiction(found)
    if wrong is not None:
        raise InputError(f"{where}: {wrong}; {REMEDY}")
    return found


def parse_manifest(where: AnyPath, data: dict[str, Any]) -> dict[str, Any]:
    """The same manifest, if every field is what it should be."""
    files = data.get("files")
    rules = [
        ("status", data.get("status") in STATUS, f"one of {', '.join(STATUS)}"),
        ("phase", data.get("phase") in PHASES, f"one of {', '.join(PHASES)}"),
        ("k", _is_count(data.get("k"), 0), "a whole number from 0 on"),
        ("K", data.get("K") is None or _is_count(data["K"], 0), "a whole number from 0 on, or null"),
        ("env_steps", _is_count(data.get("env_steps"), 0), "a whole number from 0 on"),
        ("seconds", _is_number(data.get("seconds")), "a finite number"),
        ("version", isinstance(data.get("version"), str), "a text"),
        ("message", isinstance(data.get("message"), str), "a text"),
        ("files", _is_files(files), "names inside the folder, with hashes"),
        ("run", isinstance(data.get("run"), str) or str(data.get("version")).startswith("0.1."), "the id of the run"),
    ]
    _hold(where, rules)
    return data


def parse_files(files: Any) -> dict[str, dict[str, Any]]:
    """The same names with their hashes, as a checkpoint lists them; a ValueError if they are something else."""
    if not _is_files(files):
        raise ValueError("files must be names inside the folder, with hashes")
    return files


def parse_settings(where: AnyPath, data: dict[str, Any]) -> dict[str, Any]:
    """The same settings, if every field is what it should be; method and sampler check themselves when made."""
    budget, delta, command = data.get("budget"), data.get("delta"), data.get("command")
    policy = data.get("policy")
    rules = [
        ("evidence", data.get("evidence") in ("exact", "samples"), "exact or samples"),
        ("budget", budget is None or (_is_number(budget) and budget >= 1), "null, or a number from 1 on"),
        ("delta", delta is None or (_is_number(delta) and 0 < delta < 1), "null, or in (0, 1)"),
        ("seed", _is_count(data.get("seed"), -(2**63)), "a whole number"),
        ("exact_J", data.get("exact_J") in (None, True, False), "null, true or false"),
        ("single", data.get("single") in (None, *SINGLE), f"null, or one of {', '.join(SINGLE)}"),
        ("deterministic", data.get("deterministic") in (None, True, False), "null, true or false"),
        ("policy", isinstance(policy, dict) and policy.get("kind") in CLASSES, ", ".join(CLASSES)),
        ("problem", isinstance(data.get("problem"), str), "a text"),
        ("flags", data.get("flags") is None or isinstance(data["flags"], dict), "null, or an object"),
        ("command", command is None or _is_words(command), "null, or a list of texts"),
    ]
    rules += [(k, data.get(k) is None or _is_kind(data[k]), "null, or an object with a name") for k in KINDS]
    rules += [
        (k, k in data, "there, if only as null") for k in ("budget", "delta", "exact_J", "flags", "command", *KINDS)
    ]
    _hold(where, rules)
    return data


@contextlib.contextmanager
def blame_file(where: AnyPath) -> Iterator[None]:
    """What goes wrong inside is the fault of what stands in this file or folder."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as e:
        what = (str(e).splitlines() or [""])[0]
        raise InputError(f"{where}: holds what it should not ({type(e).__name__}: {what}); {REMEDY}") from None


def _hold(where: AnyPath, rules: list[tuple[str, bool, str]]) -> None:
    for key, right, what in rules:
        if not right:
            raise InputError(f"{where}: {key} must be {what}; {REMEDY}")


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < 1e300 and math.isfinite(x)


def _is_count(x: Any, least: int) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and least <= x < 2**63


def _is_list(x: Any, n: int, gaps: bool = False, free: int = 0) -> bool:
    """n numbers; with `gaps` any of them may be null, and the first `free` always: bounds of a reward without any."""
    if not (isinstance(x, list) and len(x) == n):
        return False
    return all(_is_number(v) or (v is None and (gaps or i < free)) for i, v in enumerate(x))


def _is_interval(x: Any, n: int) -> bool:
    return x is None or (isinstance(x, list) and len(x) == 2 and all(_is_list(v, n) for v in x))


def _is_each(x: Any, n: int, kind: type) -> bool:
    return x is None or (isinstance(x, list) and len(x) == n and all(isinstance(v, kind) for v in x))


def _is_words(x: Any) -> bool:
    return isinstance(x, list) and all(isinstance(word, str) for word in x)


def _is_kind(x: Any) -> bool:
    return isinstance(x, dict) and isinstance(x.get("name"), str)


def _is_files(x: Any) -> bool:
    return isinstance(x, dict) and all(map(_is_entry, x.items()))


def _is_entry(item: tuple[str, Any]) -> bool:
    """A name inside the folder, and what is known of the file."""
    name, entry = item
    inside = not Path(name).is_absolute() and ".." not in Path(name).parts and name.isprintable()
    return (
        inside and isinstance(entry, dict) and _is_count(entry.get("bytes"), 0) and isinstance(entry.get("sha256"), str)
    )
