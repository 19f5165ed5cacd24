"""What the command line shows: tables for people, one JSON object for programs, one line for errors."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearance.certificates.verdict_words import as_written, describe_certificate, limits_as_written
from clearance.core.errors import InputError
from clearance.core.text import first_line, visible

if TYPE_CHECKING:
    from rich.console import Console

    from clearance.certificates.certificate import Certificate
    from clearance.exact.infeasibility import Infeasibility
    from clearance.studies.frontier import Frontier
    from clearance.studies.reproduce import Study


INTERRUPTED = 128  # and a signal: an exit status

# What people see in a table with one row per constraint, and in the sentences below it.
IN_TABLES = ("J_g", "b", "slack", "J_g_lower", "lam", "complementarity", "relax_each", "names", "costs", "g_range")
IN_SENTENCES = ("policy", "policy_words", "scope", "worst_component_slack", "greedy_verdict", "path_bound")


def certificate(certificate: Certificate) -> dict[str, Any]:
    """What an answer says of a certificate; its message is the verdict in words, a list of sentences."""
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
    """Which limits conflict and what to relax; with `relaxed`, what is left to earn then."""
    keys = {"conflict": list(found.names), "relax_all": found.relax_all, "relax_each": list(found.relax_each)}
    keys |= {"b": found.cmdp.b, "names": list(found.cmdp.names), "costs": list(found.cmdp.costs)}
    return keys | ({"relaxed_J_r": found.relaxed.J_r} if relaxed else {})


def answer(args: argparse.Namespace, result: dict[str, Any], title: str = "", names: Sequence[str] = ()) -> None:
    sentences = result["message"] if isinstance(result.get("message"), list) else []
    if args.json:
        result = result | {"message": " ".join(sentences)} if sentences else result
        result |= {"limits": limits_as_written(result)} if result.get("costs") is not None else {}
        say(json.dumps(_plain(result), allow_nan=False) + "\n")
        return
    from rich.text import Text

    with _page() as console:
        _tables(console, {k: v for k, v in result.items() if v is not sentences}, title, names)
        for sentence in (*sentences, *result.get("policy_words", ())):
            console.print(Text(visible(sentence)))
        if "policy" in result:
            console.print(_policy(result["policy"]))


def _tables(console: Console, result: dict[str, Any], title: str, names: Sequence[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from clearance.cli import limit_tables

    if title:
        console.print(Text(visible(title), style="italic"), soft_wrap=True)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for key, value in result.items():
        if value is not None and key not in (*IN_TABLES, *IN_SENTENCES):
            table.add_row(key, Text(_show(value)))
    console.print(table)
    if "relax_each" in result:
        console.print(limit_tables.table_of_relaxations(result, names))
    if len(result.get("J_g", ())):
        console.print(limit_tables.table_of_limits(result, names))
    elif "g_range" in result and names:
        console.print(limit_tables.table_of_signals(result, names))


def _policy(rows: list[dict[str, Any]]) -> Any:
    """All of a policy: one row per state and action that it takes there."""
    from rich.table import Table
    from rich.text import Text

    heads = [head for head in rows[0] if head != "component" or rows[-1]["component"]]
    table = Table(*heads, box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(Text(_show(row[head])) for head in heads))
    return table


def frontier(curve: Frontier, title: str, message: str) -> None:
    """The price of safety as a table; what was learned, in another. Costs stand there as costs."""
    from rich.table import Table
    from rich.text import Text

    limit = "kappa" if curve.over == "kappa" else "limit ≤" if curve.cost else "limit ≥"
    table = Table(title=Text(visible(title)), title_justify="left", box=None, padding=(0, 2, 0, 0))
    for head in (limit, "J_r", "paid so far", "λ: price of one unit stricter"):
        table.add_column(head, justify="right")
    for row in zip(curve.written, curve.J_r, curve.paid, curve.lam, strict=True):
        table.add_row(*(f"{float(x):.6g}" for x in row))
    with _page() as console:
        console.print(table)
        if curve.learned:
            found = Table("learned at", "J_r", *map(visible, curve.names), "verdict", box=None, padding=(0, 2, 0, 0))
            for p in curve.learned:
                values = (f"{as_written(x, cost=cost):.6g}" for x, cost in zip(p.J_g, curve.costs, strict=True))
                found.add_row(f"{as_written(p.limit, cost=curve.cost):.6g}", f"{p.J_r:.6g}", *values, p.verdict)
            console.print(found)
        console.print(Text(visible(message)), soft_wrap=True)


def grid(tables: list[tuple[str, list[dict[str, Any]]]], shown: dict[str, str], lines: list[str]) -> None:
    """Tables with the same columns, formatted as `shown` says, and lines below them."""
    from rich.table import Table
    from rich.text import Text

    with _page() as console:
        for title, rows in tables:
            table = Table(title=Text(visible(title)), title_justify="left", box=None, padding=(0, 1, 0, 0))
            for head in shown:
                table.add_column(head, justify="left" if head == "method" else "right", no_wrap=True)
            for row in rows:
                table.add_row(*(Text(visible(form.format_map(row))) for form in shown.values()))
            console.print(table)
        for line in lines:
            console.print(Text(visible(line)), soft_wrap=True)


def study(study: Study, paths: list[Path]) -> None:
    """The table of a reproduction, the finding, and where the figures are."""
    from rich.table import Table

    columns = study.table() + study.published_columns()
    table = Table(
        title="Bai, Bedi, Aggarwal 2023 on its own instance", title_justify="left", box=None, padding=(0, 1, 0, 0)
    )
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(str(column["setting"]).replace(", ", "\n"), justify="right")
    for key, form in STUDY_ROWS.items():
        table.add_row(key, *(form.format(c[key]) if key in c else "" for c in columns))
    optimum = f"{study.class_optimum:.4f} in the class, {study.optimum:.4f} of all policies"
    with _page() as console:
        console.print(table)
        console.print("± is one standard error over seeds; averages are over iterates, as in the paper.")
        console.print(f"Optimum with J_g ≥ 0: {optimum}.")
        console.print(study.finding())
        written = (visible(str(p)) for p in paths)
        console.print(f"{study.seconds:.0f} s. Written:", *written, sep="\n  ", soft_wrap=True)


STUDY_ROWS = {
    "average J_r": "{:.3f}",
    "± J_r": "{:.3f}",
    "average J_g": "{:+.4f}",
    "± J_g": "{:.4f}",
    "last J_r": "{:.3f}",
    "last J_g": "{:+.4f}",
    "feasible iterates": "{:.0%}",
    "runs, avg J_g ≥ 0": "{:.0%}",
    "last λ": "{:.2f}",
    "of class optimum": "{:.1%}",
    "env steps": "{:.3g}",
    "seconds": "{:.2f}",
}


def _show(value: Any) -> str:
    value = _plain(value)
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list):
        return "[" + ", ".join(_show(v) for v in value) + "]"
    return "—" if value is None else visible(str(value))


def _plain(value: Any) -> Any:
    """Plain JSON data; numbers that are not finite become null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextlib.contextmanager
def _page() -> Iterator[Console]:
    """A console without markup or highlighting whose page goes out in one piece."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    with _standard_output(), console.capture() as page:
        yield console
    say(page.get())


def say(text: str) -> None:
    """The answer, on standard output. A reader that has left (`clearance … | head`) changes no exit status."""
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
    """Now, since Python would complain at its end if the reader has left."""
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
    """The type of --max-memory: bytes, or 500MB, 4GB."""
    from clearance.core.array_files import read_size

    try:
        return str(int(read_size(text)))
    except InputError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


@contextlib.contextmanager
def memory_limit(size: str | None) -> Iterator[None]:
    """Hold the limit of --max-memory, also in processes that are started meanwhile."""
    before = os.environ.get("CLEARANCE_MAX_MEMORY")
    if size is not None:
        os.environ["CLEARANCE_MAX_MEMORY"] = size
    try:
        yield
    finally:
        if size is not None:
            os.environ.pop("CLEARANCE_MAX_MEMORY") if before is None else os.environ.update(CLEARANCE_MAX_MEMORY=before)


def accept_any_encoding() -> None:
    """Symbols that the terminal's encoding lacks become escapes, not errors."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def warning(message: Any, *_: Any, **__: Any) -> None:
    _complain(f"warning: {first_line(message)}")


def error(message: str, status: int, *, as_json: bool = False) -> int:
    """One line on standard error; as JSON also an object on standard output, where programs look for it."""
    message = " ".join(message.split())
    _complain(message)
    if as_json:
        with contextlib.suppress(InputError):  # the error may be that nothing can be written there
            kind = "interrupted" if status > INTERRUPTED else "error"
            say(json.dumps({"status": kind, "message": visible(message), "exit_status": status}) + "\n")
    return status


def _complain(message: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens: the exit status still tells
        print(f"clearance: {visible(message)}", file=sys.stderr, flush=True)
