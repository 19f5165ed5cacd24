"""Read policies of finite models from tables (.csv or .json) with one row for each state and action:

    state,action,probability

With a horizon there is also a column `time`, and for a mixture there are the columns `component` and `weight`. The
whole file is checked before any array is allocated: each component must have each state (at each time) exactly once.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.core.array_files import max_memory
from clearance.core.arrays import Array
from clearance.core.atomic_files import load_json
from clearance.core.csv_files import other_separator, read_cell
from clearance.core.errors import InputError
from clearance.core.text import suggest, visible

SUFFIXES = (".csv", ".json")
SCHEMA = "clearance/policy-table/1"
LARGEST = 5 * 10**8  # the largest size of a JSON file in bytes
COLUMNS = ("component", "weight", "time", "state", "action", "probability")
NEEDED = ("state", "action", "probability")


class PolicyTable(NamedTuple):
    """A policy that was read from a table: a mixture of M policies `pi` [M, S, A], or [M, H, S, A] with a horizon.

    weights          the weights [M] of the mixture
    states, actions  the names of states and actions; None if the file has indices instead of names
    certificate      the certificate of the policy in the file, as JSON data, or None
    """

    weights: Array
    pi: Array
    states: tuple[str, ...] | None
    actions: tuple[str, ...] | None
    certificate: Mapping[str, Any] | None


class _Entry(NamedTuple):
    """One row of a policy table, with its position in the file (`place`) for error messages."""

    place: str
    component: int
    weight: float | None
    time: int | None
    state: str
    action: str
    probability: float


def read_policy_table(
    path: str | os.PathLike[str], states: Sequence[str] | None = None, actions: Sequence[str] | None = None
) -> PolicyTable:
    """Return the policy in a .csv or .json file that `save_policy` wrote, or in another file of the same form.

    states, actions  the names in the model, which define the order of the arrays; by default the names in the file
    """
    said: Mapping[str, Any] | None = None
    if Path(path).suffix.lower() == ".csv":
        entries = list(_rows_of_csv(path))
    else:
        data = load_json(Path(path), SCHEMA, LARGEST)
        entries, said = list(_rows_of_json(path, data)), data.get("certificate")
    if not entries:
        raise InputError(f"{path}: has no rows; a policy has an action for every state")
    if said is not None and not isinstance(said, dict):
        raise InputError(f"{path}: certificate must be an object, or null")
    return _assemble(str(path), entries, states, actions)._replace(certificate=said)


def _rows_of_csv(path: str | os.PathLike[str]) -> Iterator[_Entry]:
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as e:
        raise InputError(f"{path}: cannot read: {e.strerror or e}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: text is not UTF-8") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if "next_state" in header:
            raise InputError(f"{path}, line 1: has transitions (next_state), it is a model and no policy")
        for name in NEEDED:
            if header.count(name) != 1:
                there = ", ".join(header)[:80] or "none"
                if sep := other_separator(header, name):
                    there = f"{there}; the separator is probably {sep}: save the file with commas"
                raise InputError(f"{path}, line 1: the column {name} must be there once; there are {there}")
        at = {name: header.index(name) for name in COLUMNS if name in header}
        for row in reader:
            if row:
                yield _read_row(f"{path}, line {reader.line_num}", row, header, at)
    except csv.Error as e:
        raise InputError(f"{path}, line {reader.line_num}: text is no CSV ({e})") from None


def _read_row(place: str, row: list[str], header: list[str], at: Mapping[str, int]) -> _Entry:
    if len(row) != len(header):
        raise InputError(f"{place}: has {len(row)} fields, the header has {len(header)}")
    cell = {name: row[i] for name, i in at.items()}
    component = _whole(place, "component", cell["component"]) if "component" in cell else 0
    weight = _share(place, "weight", cell["weight"]) if "weight" in cell else None
    time = _whole(place, "time", cell["time"]) if "time" in cell else None
    return _entry(
        place, component, weight, time, read_cell(cell["state"]), read_cell(cell["action"]), cell["probability"]
    )


def _entry(place: str, component: int, weight: float | None, time: int | None, *rest: Any) -> _Entry:
    state, action, p = rest
    for name, text in (("state", state), ("action", action)):
        if not text.strip():
            raise InputError(f"{place}: {name} is empty")
    return _Entry(place, component, weight, time, state.strip(), action.strip(), _share(place, "probability", p))


def _rows_of_json(path: str | os.PathLike[str], data: Mapping[str, Any]) -> Iterator[_Entry]:
    components = data.get("components")
    if not isinstance(components, list):
        raise InputError(f"{path}: components must be a list")
    for m, part in enumerate(components):
        place = f"{path}, component {m}"
        table = part.get("policy") if isinstance(part, dict) else None
        if not isinstance(table, dict):
            raise InputError(f"{place}: policy must be an object {{state: {{action: probability}}}}")
        weight = _share(place, "weight", part.get("weight"))
        for t, states in _by_time(place, table):
            for state, actions in states.items():
                if not isinstance(actions, dict):
                    raise InputError(f"{place}: state {state[:40]!r} must be an object {{action: probability}}")
                for action, p in actions.items():
                    yield _entry(f"{place}, state {state[:40]!r}", m, weight, t, state, action, p)


def _by_time(place: str, table: Mapping[str, Any]) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    """Yield pairs (time, {state: {action: probability}}) from the JSON object of one component.

    If the keys of the object are times, there is one pair for each time; otherwise there is one pair with time None.
    `place` is for error messages.
    """
    inner = next((x for x in table.values() if isinstance(x, dict)), {})
    if not any(isinstance(x, dict) for x in inner.values()):
        yield None, table
        return
    for t, states in table.items():
        if not isinstance(states, dict):
            raise InputError(f"{place}: time {t[:40]!r} must be an object {{state: {{action: probability}}}}")
        yield _whole(place, "time", t), states


def _assemble(
    path: str, entries: list[_Entry], states: Sequence[str] | None, actions: Sequence[str] | None
) -> PolicyTable:
    own_states, S = _labels(entries, "state") if states is None else (tuple(states), len(states))
    own_actions, A = _labels(entries, "action") if actions is None else (tuple(actions), len(actions))
    timed = entries[0].time is not None
    M, H = 1 + max(e.component for e in entries), 1 + max(e.time or 0 for e in entries)
    shape = (M, H, S, A)
    if len({(e.component, e.time or 0) for e in entries}) != M * H:
        raise InputError(f"{path}: components and times must be 0, 1, … without gaps, every time in every component")
    if 8 * math.prod(shape) > max_memory(os.path.getsize(path)):
        raise InputError(f"{path}: the table [M, H, S, A] = {shape} does not fit into memory (--max-memory)")
    state_of, action_of = (_index(names, n) for names, n in ((own_states, S), (own_actions, A)))
    pi, seen, weights = np.zeros(shape), np.zeros(shape, bool), np.full(M, np.nan)
    for e in entries:
        at = e.component, e.time or 0, _find(e, "state", state_of), _find(e, "action", action_of)
        if seen[at]:
            raise InputError(f"{e.place}: action {e.action!r} of state {e.state!r} is there twice")
        seen[at], pi[at] = True, e.probability
        weights[e.component] = _weight(e, weights[e.component], M)
    _check_sums(path, pi, weights, own_states)
    return PolicyTable(weights, pi if timed else pi[:, 0], own_states, own_actions, None)


def _labels(entries: list[_Entry], kind: str) -> tuple[tuple[str, ...] | None, int]:
    """Return the distinct names of a `kind` ("state" or "action") in the order of the file, and their number.

    If all names are whole numbers, return None and the largest number plus 1.
    """
    names = tuple(dict.fromkeys(getattr(e, kind) for e in entries))
    if all(name.isascii() and name.isdecimal() and str(int(name)) == name for name in names):
        return None, 1 + max(map(int, names))
    return names, len(names)


def _index(names: Sequence[str] | None, n: int) -> dict[str, int]:
    """Return a dict from each name to its index 0..n−1. If `names` is None, the names are the numbers "0", "1", …

    Tables contain names with their control characters escaped, so the dict has these forms too.
    """
    known = [str(i) for i in range(n)] if names is None else list(names)
    written = {visible(name).strip(): i for i, name in enumerate(known)}
    return written | {name.strip(): i for i, name in enumerate(known)}


def _find(e: _Entry, kind: str, index: Mapping[str, int]) -> int:
    name = getattr(e, kind)
    if name not in index:
        hint = suggest(name, index)
        if name.isdecimal() and not any(known.isdecimal() for known in index):
            hint = "; the file has numbers in place of names: save it again with the model as third argument"
        raise InputError(f"{e.place}: {name[:40]!r} is no {kind} of this model{hint}")
    return index[name]


def _weight(e: _Entry, before: float, M: int) -> float:
    """Return the weight of the component in row `e`. If the row has no weight and M = 1, the weight is 1.

    `before` is the weight in earlier rows of the same component, or NaN. Raise InputError if the two differ.
    """
    if e.weight is None and M > 1:
        raise InputError(f"{e.place}: weight is missing; a mixture has one for each component")
    weight = 1.0 if e.weight is None else e.weight
    if not math.isnan(before) and weight != before:
        raise InputError(f"{e.place}: weight is {weight!r}, and {before!r} in a row above")
    return weight


def _check_sums(path: str, pi: NDArray[Any], weights: Array, states: Sequence[str] | None) -> None:
    wrong = np.argwhere(np.abs(pi.sum(-1) - 1) > 1e-9)
    if len(wrong):
        m, t, s = wrong[0].tolist()
        of = f" of component {m}" * (len(pi) > 1) + f" at time {t}" * (pi.shape[1] > 1)
        total, name = pi[m, t, s].sum(), s if states is None else repr(states[s])
        what = f"sums to {total:.10g}, must be 1" if total else "is missing: it has no rows"
        raise InputError(f"{path}: probability of state {name}{of} {what}")
    if abs(weights.sum() - 1) > 1e-9:
        raise InputError(f"{path}: weights sum to {weights.sum():.10g}, must be 1")


def _whole(place: str, field: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise InputError(f"{place}: {field} must be a whole number, got {text[:40]!r}")
    return int(text)


def _share(place: str, field: str, x: Any) -> float:
    """Return x, a number or a text, as a float; raise InputError unless it is in [0, 1].

    `place` and `field` are for the error message.
    """
    try:
        value = math.nan if isinstance(x, bool) else float(x)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value <= 1:
        raise InputError(f"{place}: {field} must be a number in [0, 1], got {str(x)[:40]!r}")
    return value
