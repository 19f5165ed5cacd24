"""Print answers of the command line: tables for people, one JSON object for programs, one line for errors.

An answer is a dict of fields, which the JSON object shows in full.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from clearance.certificates.price_words import prices_in_words
from clearance.certificates.verdict_words import describe_certificate, limits_as_written
from clearance.cli import layout
from clearance.core.errors import InputError, round_up
from clearance.core.labels import label
from clearance.core.text import first_line, visible

if TYPE_CHECKING:
    from clearance.certificates.certificate import Certificate
    from clearance.exact.infeasibility import Infeasibility


INTERRUPTED = 128  # plus the number of a signal: an exit status

# Fields that are printed in a table with one row per constraint, or in the sentences below it.
IN_TABLES = (
    "J_g",
    "b",
    "slack",
    "J_g_lower",
    "lam",
    "complementarity",
    "relax_each",
    "relax_together",
    "names",
    "costs",
    "g_range",
)
USUAL = ("done", "optimal")  # statuses that are not shown
IN_SENTENCES = (
    "policy",
    "policy_words",
    "scope",
    "worst_component_slack",
    "nu",
    "greedy_verdict",
    "path_bound",
    "runs",
    "out",
    "lam_range",
    "conflict_weights",
)
AT_LEAST = "Slater margin, at least"  # its label if it is a confidence bound
OF_RELAXING = ("status", "slater", "conflict", "relax_all", "relaxed_J_r")  # rows below the table of relaxations
CHANGES = "The limits, and the smallest changes that make them feasible:"
CLOSEST = "The policy that comes closest to the limits:"


def certificate(certificate: Certificate) -> dict[str, Any]:
    """Return the fields of a command's answer about a certificate; the field `message` is a list of sentences."""
    keys = (
        "verdict",
        "J_r",
        "J_g",
        "b",
        "slack",
        "J_r_lower",
        "J_g_lower",
        "bound",
        "gap",
        "lam",
        "complementarity",
        "worst_component_slack",
        "nu",
        "greedy_verdict",
        "evidence",
        "delta",
        "level",
        "spent",
        "names",
        "costs",
        "scope",
    )
    data = certificate.asdict()
    return {k: data[k] for k in keys} | {"message": describe_certificate(data)}


def diagnosis(found: Infeasibility, *, relaxed: bool = False) -> dict[str, Any]:
    """Return the fields of a command's answer about infeasible limits: which conflict, and what to relax.

    With `relaxed`, the best reward after relaxing is included.
    """
    keys = {"conflict": list(found.names), "relax_all": found.relax_all, "relax_each": list(found.relax_each)}
    keys |= {"b": found.cmdp.b, "names": list(found.cmdp.names), "costs": list(found.cmdp.costs)}
    keys |= {"relax_together": None if found.helps_alone else list(found.relax_together), "advice": found.advice}
    return keys | ({"relaxed_J_r": found.relaxed.J_r} if relaxed else {})


def answer(args: argparse.Namespace, result: dict[str, Any], title: str = "", names: Sequence[str] = ()) -> None:
    """Print a command's answer: with --json as one JSON object, else as verdict, tables and sentences.

    result  the fields of the answer;  title: the first line;  names: the names of the constraints
    """
    message = result.get("message")
    sentences = message if isinstance(message, list) else []
    if args.json:
        result = result | {"message": " ".join(sentences)} if sentences else result
        result |= (
            {"limits": limits_as_written(result)} if None not in (result.get("names"), result.get("costs")) else {}
        )
        say(json.dumps(_plain(result), allow_nan=False) + "\n")
        return
    first, *rest = sentences or [_with_verdict(result, message)]
    rest = [line for line in rest if not line.startswith(("Limits: ", "path_bound "))]  # in the table, or not shown
    show_page(
        [title],
        [first],
        *_tables({k: v for k, v in result.items() if k not in ("message", "verdict")}, names),
        [*prices_in_words(result), *rest],
        result.get("policy_words", ()),
        _policy(result["policy"]) if "policy" in result else (),
        [f"Written: {result['out']}"] if result.get("out") and "Written: " not in first else (),
    )


def _with_verdict(result: dict[str, Any], message: Any) -> str:
    words = [str(x) for x in (result.get("verdict"), message) if x]
    return ": ".join(words)


class Lines(list[str]):
    """A list of lines of text that are laid out already and must not be wrapped."""


def show_page(*blocks: Sequence[str]) -> None:
    """Print blocks of text, with an empty line between blocks. Blocks of type `Lines` are printed as they are.

    Other blocks are lists of sentences, which are wrapped.
    """
    width = page_width()
    shown = []
    for block in blocks:
        lines = block if isinstance(block, Lines) else [x for s in block for x in layout.wrap(visible(s), width)]
        shown += [[visible(line) for line in lines]] if lines else []
    say("\n\n".join("\n".join(lines) for lines in shown) + "\n")


def page_width() -> int:
    """Return the width of the terminal in characters; 80 if there is no terminal."""
    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def _tables(result: dict[str, Any], names: Sequence[str]) -> list[Lines]:
    from clearance.cli import limit_tables

    width = page_width()
    hidden = (*IN_TABLES, *IN_SENTENCES, *(("status",) if result.get("status") in USUAL else ()))
    hidden += () if result.get("env_steps") else ("env_steps",)  # exact evidence takes no steps
    hidden += ("J_r_lower",) if result.get("evidence") == "exact" else ()  # equal to J_r in all digits that are shown
    facts = {k: _fact(k, v) for k, v in result.items() if _plain(v) is not None and k not in hidden}
    if "slater" in facts and result.get("evidence") == "samples":
        facts["slater"] = AT_LEAST, facts["slater"][1]
    found = []
    if "relax_each" in result:
        found.append(limit_tables.table_of_relaxations(result, names))
    if len(result.get("J_g", ())):
        found.append(limit_tables.table_of_limits(result, names))
    elif "g_range" in result and names:
        found.append(limit_tables.table_of_signals(result, names))
    shown = [Lines(layout.lay_out(heads, rows, width)) for heads, rows in found]
    if "relax_each" in result and len(result.get("J_g", ())):  # an answer about limits and about a policy
        facts.pop("attained_margin", None)
        below = [facts.pop(k) for k in OF_RELAXING if k in facts]
        shown = [Lines([CHANGES, "", *shown[0]]), Lines(layout.pairs(below, width)), Lines([CLOSEST, "", *shown[1]])]
    return [*shown, Lines(layout.pairs(list(facts.values()), width))]


def _fact(key: str, value: Any) -> tuple[str, str]:
    return label(key), _show(round_up(value) if key == "relax_all" else value)


def _policy(rows: list[dict[str, Any]]) -> Lines:
    """Return the table of a policy as lines: one row for each state and each action that the policy takes there."""
    heads = [head for head in rows[0] if head != "component" or rows[-1]["component"]]
    return Lines(layout.lay_out(heads, [[_show(row[head]) for head in heads] for row in rows], page_width()))


def _show(value: Any) -> str:
    """Return a value as text for people: numbers with six significant digits, large whole numbers with commas."""
    value = _plain(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(_show(v) for v in value)
    return "—" if value is None else visible(str(value))


def _plain(value: Any) -> Any:
    """Convert a value to plain JSON data; numbers that are not finite become null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def say(text: str) -> None:
    """Print a text to standard output.

    If the reader of a pipe has gone (`clearance … | head`), the text is dropped without an error.
    """
    with _standard_output():
        print(text, end="", flush=True)


@contextlib.contextmanager
def _standard_output() -> Iterator[None]:
    try:
        yield
    except OSError as e:
        _drop_output()
        if not isinstance(e, BrokenPipeError):
            raise InputError(f"standard output: cannot write: {e.strerror or e}") from None


def flush() -> None:
    """Flush standard output now, because at exit Python would print an error if the reader has gone."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def size(text: str) -> str:
    """Check a value of --max-memory, such as 500MB or 4GB, and return it in bytes as text."""
    from clearance.core.array_files import read_size

    try:
        return str(int(read_size(text)))
    except InputError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


@contextlib.contextmanager
def memory_limit(size: str | None) -> Iterator[None]:
    """Apply the limit of --max-memory inside the `with` block, also to processes that are started there."""
    before = os.environ.get("CLEARANCE_MAX_MEMORY")
    if size is not None:
        os.environ["CLEARANCE_MAX_MEMORY"] = size
    try:
        yield
    finally:
        if size is not None:
            os.environ.pop("CLEARANCE_MAX_MEMORY") if before is None else os.environ.update(CLEARANCE_MAX_MEMORY=before)


def accept_any_encoding() -> None:
    """Make the output streams escape symbols that the terminal's encoding lacks, instead of raising errors."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def warning(message: Any, *_: Any, **__: Any) -> None:
    _complain(f"warning: {first_line(message)}")


def error(message: str, status: int, *, as_json: bool = False) -> int:
    """Print a message of one line to standard error, and return the exit status `status`.

    With `as_json`, also print a JSON object to standard output.
    """
    message = with_flags(" ".join(message.split()))
    _complain(message)
    if as_json:
        with contextlib.suppress(InputError):  # the error may be that nothing can be written there
            kind = "interrupted" if status > INTERRUPTED else "error"
            say(json.dumps({"status": kind, "message": visible(message), "exit_status": status}) + "\n")
    return status


def with_flags(message: str) -> str:
    """Return a message in which arguments of Python functions are replaced by flags of the command line.

    >>> with_flags("give criterion='average', or horizon=H for the first H steps")
    'give --criterion average, or --horizon H for the first H steps'
    """
    message = re.sub(r"\bgive limits=\{name: number\}", "give --limit NAME=NUMBER for each", message)
    message = re.sub(r"\bgive b=\{name: number\}", "give --b NAME=NUMBER for each", message)
    message = re.sub(r"\bgive gamma below 1\b", "give --gamma below 1", message)
    message = re.sub(r"\b(criterion|evidence)='(\w+)'", r"--\1 \2", message)
    return re.sub(r"\bhorizon=(H\b|…)", r"--horizon \1", message)


def _complain(message: str) -> None:
    with contextlib.suppress(OSError):  # standard error is closed: the exit status still shows the failure
        print(f"clearance: {visible(message)}", file=sys.stderr, flush=True)
