"""Tables with one transition per row: state, action, next_state, probability, reward, and one column per cost."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clearance.core.atomic_files import write_whole
from clearance.core.csv_files import other_separator
from clearance.core.errors import InputError
from clearance.core.keywords import not_called
from clearance.core.policy_tables import COLUMNS as OF_POLICIES
from clearance.core.text import find_name, split_unit, suggest
from clearance.core.validation import SUM_TOLERANCE
from clearance.exchange.explicit_model import (
    ExplicitModel,
    build_cmdp,
    check_criterion,
    check_limits,
    check_pairs,
    describe_cmdp,
    expect,
    index_names,
    split_reward,
    varies,
)
from clearance.exchange.text_lines import read_bytes
from clearance.finite.cmdp import CMDP

KEYS = ("state", "action", "next_state", "probability")
START = "initial"  # an optional column: the probability to start in `state`


@not_called("limit", "limits")
def from_table(
    table: Any,
    *,
    gamma: float | None = None,
    criterion: str | None = None,
    horizon: int | None = None,
    reward: str | None = None,
    limits: Mapping[str, float] | None = None,
    b: Mapping[str, float] | None = None,
    initial: Any = None,
    terminal: Iterable[Any] = (),
) -> CMDP:
    """Return the model of a table with one row per transition; states and actions keep their names.

    table    the path of a CSV file, a DataFrame, or a dict of columns: state, action, next_state, probability, reward
             and one column for each cost. A reward may differ between the next states of one action.
    reward   the column to maximise (default: "reward"); with a minus before it, it is minimised
    limits   upper limits of costs, by column
    b        lower limits of utilities, by column
    initial  the state to start in, or {state: probability}; default: the column `initial` if there is one, else uniform
             over all states. The column has the probability to start in `state`, the same in all rows of the state
    gamma, criterion, horizon  the criterion, as in `CMDP`
    terminal  states that end the process and need no rows; any other next state without rows is an error

    >>> table = {"state": ["up", "down"], "action": ["run", "run"], "next_state": ["down", "up"]}
    >>> from_table(table | {"probability": [1, 1], "reward": [1, 0]}, gamma=0.9).states
    ('up', 'down')
    """
    reward = "reward" if reward is None else reward
    opened = _open(table)
    _refuse_policy(opened)
    check_criterion(opened.source, gamma, criterion, horizon)
    wanted = _limited_columns(opened, limits, b)
    wanted = list(dict.fromkeys([split_reward(reward, wanted)[1], *wanted]))
    model = _read_rows(opened, wanted, tuple(str(s) for s in terminal), start=initial is None)
    return build_cmdp(
        model, gamma=gamma, criterion=criterion, horizon=horizon, reward=reward, limits=limits, b=b, initial=initial
    )


def _refuse_policy(table: _Opened) -> None:
    """Raise InputError if the table is a policy and not a model, which its columns show.

    This is checked first, since a message about the missing columns of a model would not help.
    """
    if "next_state" not in table.header and {"state", "action", "probability"} <= set(table.header) <= set(OF_POLICIES):
        raise InputError(f"{table.source}, line 1: has no next_state, it is a policy and no model")


class _Opened(NamedTuple):
    """A table before its rows are read: the name of its source, its header, and an iterator over its rows.

    `places` is the word for a row in error messages: "line" or "row".
    """

    source: str
    places: str  # "line" or "row"
    header: list[str]
    rows: Iterator[tuple[int, Sequence[Any]]]


def _limited_columns(table: _Opened, limits: Any, b: Any) -> list[str]:
    """Return the columns that have limits; raise InputError for limits that are not given by name."""
    try:
        return [*check_limits("limits", limits), *check_limits("b", b)]
    except InputError as e:
        other = ", ".join(name for name in table.header if name not in (*KEYS, START))
        raise InputError(f"{table.source}: {e}; the columns are {other}") from None


def _read_rows(table: _Opened, wanted: Sequence[str], terminal: Sequence[str], *, start: bool) -> ExplicitModel:
    """Return the transitions of a table, with the reward columns in `wanted`.

    `terminal` are states that need no rows, since they end the process. `start` says whether to read the column
    `initial`, if there is one.
    """
    source, places, header, rows = table
    wanted = [find_name(name, header) or name for name in wanted]
    columns = _columns(source, header, [*wanted, *([START] if start and START in header else ())])
    cells: dict[str, list[Any]] = {name: [] for name in columns}
    lines: list[int] = []
    for n, row in rows:
        if len(row) != len(header):
            raise InputError(f"{source}, {places} {n}: has {len(row)} fields, the header has {len(header)}")
        lines.append(n)
        for name, at in columns.items():
            read = _text if name in KEYS[:3] else _number
            cells[name].append(read(f"{source}, {places} {n}: {name}", row[at]))
    if not lines:
        raise InputError(f"{source}: has no transitions, only a header")
    return _assemble(source, places, cells, lines, wanted, terminal)


def _assemble(
    source: str, places: str, cells: dict[str, list[Any]], lines: list[int], wanted: Sequence[str], ends: Sequence[str]
) -> ExplicitModel:
    listed = dict.fromkeys([*cells["state"], *ends])
    for n, name in zip(lines, cells["next_state"], strict=True):
        if name not in listed:
            raise InputError(f"{source}, {places} {n}: next_state {name!r} has no rows of its own; add them, or a loop")
    state_of, states = index_names(list(listed))
    action_of, actions = index_names(list(dict.fromkeys(cells["action"])))
    S, A = len(listed), len(action_of)
    check_pairs(source, S, A)
    loops = [state_of[name] for name in ends if name not in set(cells["state"])]
    s = np.array([state_of[x] for x in cells["state"]] + loops, np.int64)
    a = np.array([action_of[x] for x in cells["action"]] + [0] * len(loops), np.int64)
    s_next = np.array([state_of[x] for x in cells["next_state"]] + loops, np.int64)
    prob = np.array(cells["probability"] + [1.0] * len(loops), float)
    zeros = [0.0] * len(loops)
    values = {name: np.array(cells[name] + zeros, float) for name in wanted}
    rewards = {name: expect(S, A, s * A + a, prob, x) for name, x in values.items()}
    averaged = {name: varies(S, A, s * A + a, prob, x) for name, x in values.items()}
    rho = None if START not in cells or START in wanted else _start(source, places, S, s, cells[START] + zeros, lines)
    return ExplicitModel(
        source, S, A, s, a, s_next, prob, rewards, rho, states, actions,
        place=lambda n: f"{places} {lines[n]}" if n < len(lines) else "terminal", averaged=averaged,
    )  # fmt: skip


def _start(source: str, places: str, S: int, s: Any, values: list[float], lines: list[int]) -> Any:
    rho = np.zeros(S)
    seen: dict[int, float] = {}
    for n, (state, value) in enumerate(zip(s.tolist(), values, strict=True)):
        if seen.setdefault(state, value) != value:
            raise InputError(f"{source}, {places} {lines[n]}: {START} is {value!r}, and {seen[state]!r} in a row above")
        rho[state] = value
    if abs(rho.sum() - 1) > SUM_TOLERANCE:
        raise InputError(f"{source}: {START} sums to {rho.sum():.12g} over the states, must be 1")
    return rho


def _columns(source: str, header: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    """Return {name: index} of the columns that every table needs and of those in `wanted`.

    Raise InputError, which names the table `source`, if a column is missing or occurs twice in `header`.
    """
    for name in (*KEYS, *wanted):
        if name not in header:
            if sep := other_separator(header, name):
                other = f"save the file with commas, or pass cl.from_table a DataFrame: pandas.read_csv(…, sep={sep})"
                raise InputError(f"{source}, line 1: the separator is probably {sep}: {other}")
            other = "; name another one to maximise (reward=…, --reward)" if name == "reward" else ""
            if name == wanted[0] and "reward" in header:
                other = "; exported files call it reward"
            known = f"there are {', '.join(header) or 'none'}{other}{suggest(name, [split_unit(x)[0] for x in header])}"
            raise InputError(f"{source}, line 1: the column {name} is missing; {known}")
        if header.count(name) > 1:
            raise InputError(f"{source}, line 1: the column {name} is there {header.count(name)} times")
    return {name: header.index(name) for name in dict.fromkeys([*KEYS, *wanted])}


def _text(where: str, cell: Any) -> str:
    if isinstance(cell, float) and not isinstance(cell, str) and cell.is_integer():
        cell = int(cell)  # pandas turns a column of integers with a missing value into floats
    text = str(cell).strip()
    if not text or text == "nan":
        raise InputError(f"{where} is empty")
    return text


def _number(where: str, cell: Any) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        raise InputError(f"{where} must be a number, got {str(cell)[:40]!r}") from None
    if not math.isfinite(value):
        raise InputError(f"{where} must be finite, got {str(cell)[:40]!r}")
    return value


# ------------------------------------------------------------------------------------------ where rows come from


def _open(table: Any) -> _Opened:
    if isinstance(table, str | Path):
        return _open_csv(table)
    names = list(table.columns) if hasattr(table, "columns") else list(table) if isinstance(table, Mapping) else None
    if names is None:
        raise InputError(f"table must be a CSV file, a DataFrame or a dict of columns, got {type(table).__name__}")
    columns = [list(table[name]) for name in names]
    if len({len(column) for column in columns}) > 1:
        raise InputError("table: its columns have different lengths")
    return _Opened("table", "row", [str(n) for n in names], iter(enumerate(zip(*columns, strict=True))))


def _open_csv(path: str | Path) -> _Opened:
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = bytes(e.object[: e.start]).count(b"\n") + 1
        raise InputError(f"{path}, line {line}: text is not UTF-8") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)

    def rows() -> Iterator[tuple[int, Sequence[Any]]]:
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as e:
            raise InputError(f"{path}, line {reader.line_num}: text is no CSV: {e}") from None

    lines = rows()
    header = next(lines, (1, ()))[1]
    return _Opened(str(path), "line", [str(name).strip() for name in header], lines)


# ------------------------------------------------------------------------------------------ out


def write_table(cmdp: CMDP, path: str | Path) -> None:
    """Write the model as a table with one row per transition.

    Numbers are written with the fewest digits that restore the same bits.
    """
    m = describe_cmdp(cmdp)
    taken = [name for name in m.rewards if name in (*KEYS, START)]
    if taken:
        raise InputError(f"{path}: the constraint {taken[0]!r} has the name of a column of the table; rename it")
    states = m.states or [str(s) for s in range(m.S)]
    actions = m.actions or [str(a) for a in range(m.A)]
    start = cmdp.rho if not np.all(cmdp.rho == 1 / cmdp.S) else None
    signals = [x[m.s, m.a].tolist() for x in (*m.rewards.values(),)]
    columns = [m.s.tolist(), m.a.tolist(), m.s_next.tolist(), m.prob.tolist()]
    with write_whole(path) as f:
        text = io.TextIOWrapper(f, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow([*KEYS, *m.rewards, *([START] if start is not None else [])])
        for s, a, t, p, *values in zip(*columns, *signals, strict=True):
            tail = [] if start is None else [repr(float(start[s]))]
            writer.writerow([states[s], actions[a], states[t], repr(p), *map(repr, values), *tail])
        text.flush()
        text.detach()
