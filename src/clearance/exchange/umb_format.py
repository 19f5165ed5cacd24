"""UMB, the unified Markov binary format of several model checkers: a tar archive with an index and raw arrays.

    index.json                                  counts, types, which rewards there are
    state-to-choices.bin [S+1], choice-to-branches.bin [C+1]      offsets, uint64
    branch-to-target.bin [B], branch-to-probability.bin [B]       uint64, double or rational
    state-is-initial.bin                        one bit per state
    actions/choices/values.bin [C]              uint32, with names in strings.bin and string-mapping.bin
    annotations/rewards/NAME/{states,choices,branches}/values.bin

Numbers are little-endian. Data that UMB cannot express is in an extra file, `clearance.json`, which other tools
ignore: the names of states, and a start distribution that is not uniform.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from clearance.core.atomic_files import write_whole
from clearance.core.errors import InputError
from clearance.exchange.choices import name_choices, spread, start_at
from clearance.exchange.drn_format import start_states
from clearance.exchange.explicit_model import ExplicitModel, check_pairs, describe_cmdp, expect, varies
from clearance.exchange.umb_archive import Archive
from clearance.finite.cmdp import CMDP

OWN = "clearance.json"


def read_umb(path: str | Path) -> ExplicitModel:
    """Read the model in a UMB file with discrete time and at most one player."""
    umb = Archive(path)
    umb.check_kind()
    S, C, B = umb.count("#states", least=1), umb.count("#choices", least=1), umb.count("#branches", least=1)
    to_choices = umb.offsets("state-to-choices.bin", S, C)
    to_branches = umb.offsets("choice-to-branches.bin", C, B)
    s_next = umb.whole("branch-to-target.bin", B, "<u8", below=S)
    kind = umb.system.get("branch-probability-type")
    prob = np.ones(B) if kind is None else umb.numbers("branch-to-probability.bin", kind, B)
    s = np.repeat(np.arange(S), np.diff(to_choices))
    action, actions = name_choices(s.tolist(), umb.labels(C))
    a, A = np.array(action, np.int64), max(action) + 1
    check_pairs(str(path), S, A)
    choice = np.repeat(np.arange(C), np.diff(to_branches))
    found = {
        name: _reward(umb, key, about, (S, A), s, a, choice, prob) for key, name, about in umb.annotations("rewards")
    }
    rewards, averaged = ({name: pair[i] for name, pair in found.items()} for i in range(2))
    initial = np.flatnonzero(umb.bits("state-is-initial.bin", S)).tolist() if umb.count("#initial-states") else []
    own = umb.json(OWN) if umb.has(OWN) else {}
    rho, states = start_at(S, initial), umb.valuations(S)
    if "initial" in own:
        rho = _own_list(umb, own, "initial", S, float)
    if "states" in own:
        states = tuple(_own_list(umb, own, "states", S, str))
    return ExplicitModel(
        str(path), S, A, s[choice], a[choice], s_next, prob, rewards, rho, states, actions,
        place=lambda n: f"branch-to-probability.bin, branch {n}", averaged=averaged,
    )  # fmt: skip


def _own_list(umb: Archive, own: dict[str, Any], key: str, n: int, kind: type) -> Any:
    found = own[key]
    if not isinstance(found, list) or len(found) != n or not all(isinstance(x, kind) for x in found):
        raise umb.error(f"{key} must be a list of {n} entries of type {kind.__name__}", OWN)
    return found if kind is str else np.array(found)


def _reward(umb: Archive, key: str, about: dict[str, Any], shape: Any, s: Any, a: Any, choice: Any, prob: Any) -> Any:
    """Return the reward `key` as a table [S, A]: state rewards + choice rewards + expected branch rewards.

    Also return where [S, A] branch rewards differ between the branches of one choice.


    about         the description of the reward in the index
    shape         (S, A)
    s, a          state and action of each choice
    choice, prob  the choice and the probability of each branch
    """
    S, A = shape
    total, averaged = np.zeros(len(s)), np.zeros(len(s), bool)
    path = f"annotations/rewards/{key}"
    for where in umb.applies_to(path, about):
        n = {"states": S, "choices": len(s), "branches": len(choice)}[where]
        values = umb.numbers(f"{path}/{where}/values.bin", about.get("type"), n)
        if where == "branches":
            total = total + expect(len(s), 1, choice, prob, values)[:, 0]
            averaged |= varies(len(s), 1, choice, prob, values)[:, 0]
        else:
            total = total + (values[s] if where == "states" else values)
    return spread(S, A, s, a, total), spread(S, A, s, a, averaged).astype(bool)


# ------------------------------------------------------------------------------------------ out


def write_umb(cmdp: CMDP, path: str | Path) -> None:
    """Write a model as an MDP with one reward for each signal."""
    m = describe_cmdp(cmdp)
    row = m.s * m.A + m.a
    s, a = np.nonzero(cmdp.available)
    starts = start_states(cmdp.rho)
    initial = np.flatnonzero(cmdp.rho) if starts is None else np.array(sorted(starts))
    files: dict[str, bytes] = {
        "state-to-choices.bin": _offsets(np.bincount(s, minlength=m.S)),
        "state-is-initial.bin": _bits(np.isin(np.arange(m.S), initial)),
        "choice-to-branches.bin": _offsets(np.bincount(row, minlength=m.S * m.A)[s * m.A + a]),
        "branch-to-target.bin": m.s_next.astype("<u8").tobytes(),
        "branch-to-probability.bin": m.prob.astype("<f8").tobytes(),
        "actions/choices/values.bin": a.astype("<u4").tobytes(),
        **_strings("actions/choices", m.actions or [str(n) for n in range(m.A)]),
    }
    notes: dict[str, Any] = {"rewards": {}}
    double = {"type": "double", "size": 64}
    for n, (name, values) in enumerate(m.rewards.items()):
        key = name if re.fullmatch(r"[a-z0-9_-]+", name) else f"reward-{n}"
        notes["rewards"][key] = {"alias": name, "applies-to": ["choices"], "type": double}
        files[f"annotations/rewards/{key}/choices/values.bin"] = values[s, a].astype("<f8").tobytes()
    own = {"states": list(m.states)} if m.states else {}
    own |= {"initial": cmdp.rho.tolist()} if starts is None else {}
    if own:
        files[OWN] = json.dumps(own).encode()
    counts = {"#states": m.S, "#initial-states": len(initial), "#choices": len(s), "#branches": len(row)}
    counts |= {"#choice-actions": m.A, "#branch-actions": 0, "#observations": 0, "#players": 1}
    system = {"time": "discrete", **counts, "branch-probability-type": double}
    index = {"format-version": 1, "format-revision": 0, "file-data": {"tool": "clearance"}}
    index |= {"transition-system": system, "annotations": notes}
    _write_archive(path, {"index.json": json.dumps(index, indent=1).encode(), **files})


def _offsets(counts: Any) -> bytes:
    return np.concatenate([[0], np.cumsum(counts)]).astype("<u8").tobytes()


def _bits(flags: Any) -> bytes:
    """Return the flags as bits, lowest first, padded to words of 64 bits."""
    packed = np.packbits(flags, bitorder="little").tobytes()
    return packed + bytes(-len(packed) % 8)


def _strings(folder: str, texts: Any) -> dict[str, bytes]:
    encoded = [text.encode() for text in texts]
    mapping = _offsets([len(x) for x in encoded])
    return {f"{folder}/string-mapping.bin": mapping, f"{folder}/strings.bin": b"".join(encoded)}


def _write_archive(path: str | Path, files: dict[str, bytes]) -> None:
    """Write a tar archive with these files (name: content), without times and owners.

    So the same model always gives the same bytes.
    """
    with write_whole(path) as f:
        inner: Any = f
        try:
            with tarfile.open(fileobj=inner, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for name, data in files.items():
                    about = tarfile.TarInfo(name)
                    about.size = len(data)
                    tar.addfile(about, io.BytesIO(data))
        except tarfile.TarError as e:
            raise InputError(f"{path}: cannot write: {e}") from None
