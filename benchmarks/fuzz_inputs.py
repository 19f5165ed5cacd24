"""Inputs that nobody meant to write: model files, policy files, run folders and command lines, as
Hypothesis draws them.
"""

from __future__ import annotations

import io
import json
import warnings
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clearance.zoo import MODELS

Arrays = dict[str, Any]

ODD = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-300,
    5e-324,
    1e-9,
    -1e-9,
    1e9,
    1e151,
    1e152,
    1e308,
    -1e308,
    np.nan,
    np.inf,
    -np.inf,
]
odd_floats = st.one_of(st.sampled_from(ODD), st.floats(width=64))
dtypes = st.sampled_from(["f8", "f4", "f2", "i8", "i4", "u1", "?", "c16", "U3", "S2", "M8[s]"])
any_array = dtypes.flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)))
edits = st.tuples(st.floats(0, 1), st.sampled_from(["flip", "set", "cut", "insert", "double"]), st.binary(max_size=8))
mutated_bytes = st.lists(edits, max_size=6)


def edited(data: bytes, edits: list[tuple[float, str, bytes]]) -> bytes:
    """The bytes after some edits, each at a place between the beginning (0) and the end (1)."""
    for place, kind, new in edits:
        at = int(place * max(len(data) - 1, 0))
        if kind == "flip" and data:
            data = data[:at] + bytes([data[at] ^ (new[0] if new else 255)]) + data[at + 1 :]
        elif kind == "set":
            data = data[:at] + new + data[at + len(new) :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "insert":
            data = data[:at] + new + data[at:]
        else:
            data = data[:at] + data[at : at + 64] + data[at:]
    return data


def npz(arrays: Arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


# ------------------------------------------------------------------------------------------------------------ models


@st.composite
def distributions(draw: Any, shape: tuple[int, ...]) -> Any:
    """Rows of small whole numbers, divided by their sum: many zeros, many ties."""
    weights = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 4)))
    weights[..., 0] += weights.sum(-1) == 0
    return weights / weights.sum(-1, keepdims=True)


@st.composite
def models(draw: Any) -> Arrays:
    """A model of up to three states, three actions and two limits, near the border of what can be met."""
    S, A, I = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 2))
    gamma = draw(st.sampled_from([0.1, 0.5, 0.9, 0.99, 0.9999]))
    size = draw(st.sampled_from([1.0, 1.0, 1.0, 1e-9, 1e6, 1e100]))
    numbers = st.integers(-3, 3).map(lambda k: k * size)
    h = draw(hnp.arrays(np.float64, (1 + I, S, A), elements=numbers))
    b = draw(hnp.arrays(np.float64, (I,), elements=st.integers(-6, 6).map(lambda k: k * size / (2 * (1 - gamma)))))
    made = {"P": draw(distributions((S, A, S))), "r": h[0], "g": h[1:], "b": b, "gamma": np.float64(gamma)}
    if draw(st.booleans()):
        made["rho"] = draw(distributions((S,)))
    if draw(st.booleans()):
        made["names"] = np.array([f"limit {i}" for i in range(I)], dtype=np.str_)
    if draw(st.integers(0, 5)) == 0:
        made["available"] = draw(hnp.arrays(np.bool_, (S, A))) | (np.arange(A) == 0)
    return _as_csr(made) if draw(st.integers(0, 3)) == 0 else made


def _as_csr(made: Arrays) -> Arrays:
    from scipy import sparse

    P = made["P"].reshape(-1, made["P"].shape[-1])
    if "available" in made:
        P = P * made["available"].reshape(-1, 1)
    rows = sparse.csr_array(P)
    return {k: v for k, v in made.items() if k != "P"} | {
        "P_data": rows.data,
        "P_indices": rows.indices,
        "P_indptr": rows.indptr,
    }


@st.composite
def spoiled(draw: Any, whole: st.SearchStrategy[Arrays]) -> Arrays:
    """Arrays of which one to three are not what they should be."""
    made = dict(draw(whole))
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from([*made, "extra", "available", "rho", "weights", "P"]))
        how = draw(st.integers(0, 5))
        old = made.get(name)
        if how == 0:
            made.pop(name, None)
        elif how == 1 or old is None:
            made[name] = draw(any_array)
        elif how == 2:
            made[name] = _poked(np.asarray(old), draw(st.integers(0, 10**6)), draw(odd_floats))
        elif how == 3:
            made[name] = np.asarray(old)[None] if draw(st.booleans()) else np.asarray(old).T
        elif how == 4:
            made[name] = np.asarray(old).ravel()[:-1]
        else:
            made[name] = _cast(np.asarray(old), draw(dtypes))
    return made


def _poked(old: Any, at: int, value: float) -> Any:
    new = np.array(old, float) if old.dtype.kind in "fiub" else np.zeros(2)
    if new.size:
        new.flat[at % new.size] = value
    return new


def _cast(old: Any, dtype: str) -> Any:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            return old.astype(dtype)
    except (TypeError, ValueError):
        return np.zeros(old.shape, dtype)


@st.composite
def policies(draw: Any, shape: tuple[int, ...] | None = None) -> Arrays:
    """Mixtures of up to three policies, for models of this shape [S, A] or of any."""
    M = draw(st.integers(1, 3))
    S, A = shape or (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    return {"weights": draw(distributions((M,))), "pi": draw(distributions((M, S, A)))}


@st.composite
def pairs(draw: Any) -> tuple[Arrays, Arrays]:
    """A model and a policy: most often one of its own, sometimes spoiled."""
    model = draw(models())
    fitting = policies(model["r"].shape)
    return model, draw(st.one_of(fitting, fitting, fitting, policies(), spoiled(fitting)))


# ------------------------------------------------------------------------------------------------------------- JSON

any_value = st.one_of(
    *(st.none(), st.booleans(), st.integers(-2000, 2000), st.just(10**30), st.floats(), st.text(max_size=6)),
    st.just("CERTIFIED"),
)
any_json = st.recursive(
    any_value,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=8,
)


@st.composite
def spoiled_json(draw: Any, data: dict[str, Any]) -> bytes:
    """A JSON object with some values replaced or left out, or its text with some bytes edited."""
    new = dict(data)
    for _ in range(draw(st.integers(0, 3))):
        key = draw(st.sampled_from([*data, "schema", "extra"]))
        if draw(st.integers(0, 3)) == 0:
            new.pop(key, None)
        else:
            new[key] = draw(any_json)
    text = json.dumps(new).encode()
    return edited(text, draw(mutated_bytes)) if draw(st.integers(0, 2)) == 0 else text


# ----------------------------------------------------------------------------------------------------- command lines

WORDS = [
    *["", "-", "--", "x", "nan", "inf", "-inf", "1e400", "-1", "0", "1", "2", "0.5", "1e-5", "5", "١", "0x10", "1_0"],
    *["9" * 400, "1,2", "0.1,0.2", ",", "auto", "m.npz", "missing.npz", "p.npz", "run", "folder", "out.npz"],
    *["out.png", "out.csv", "out.html", "a/b/c", "/dev/null", "/", "\0", "\udce9", "é", "🙂", "bai2023", "two-state"],
    *["a:b", ":", "os:getcwd", "math:pi", "json:loads", "clearance.zoo:two_state", "clearance.zoo:no", "no.such:thing"],
    *["exact", "samples", "critic", "table", "coin", "sgd", "tabular", "least-squares", "cnpgpd", "regularised"],
    *["b", "kappa"],
]
FLAGS = [
    *["--json", "--out", "--K", "--N", "--kappa", "--kappa_first", "--eta1", "--eta2", "--lam_max", "--nu", "--tau"],
    *["--seed", "--delta", "--budget", "--evidence", "--method", "--direction", "--alpha", "--printed", "--ridge"],
    *["--policy", "--sampler", "--constraint", "--over", "--points", "--learned", "--epsilon", "--mu_F", "--eps_bias"],
    *["--eps_bias2", "--price", "--no-price", "--seeds", "--threads", "--help", "--version", "--resum", "-h"],
    *["--resume", "--checkpoint-every", "--tensorboard"],
]
COMMANDS = ["solve", "optimum", "certify", "check", "frontier", "plan", "report", "reproduce", "export", "sovle", ""]
SMALL = ["--K", "2", "--N", "2", "--budget", "2000"]  # so that what is valid is also short
PROBLEMS = ["m.npz", "two-state", *sorted(MODELS)[:2], "missing.npz", "clearance.zoo:two_state", "sparse.npz", "p.npz"]

# What a flag may well be given, so that not every line is refused.
GOOD = {
    "--out": ["out.npz", "out.png", "out.csv", "out.html", "new"], "--K": ["1", "3"],
    "--N": ["1", "4"], "--seed": ["0", "7"],
    "--kappa": ["auto", "0", "0.01", "0.1,0.2"], "--eta1": ["0.1"], "--eta2": ["0.1"], "--lam_max": ["1", "10"],
    "--nu": ["0.1"], "--tau": ["0.3,0.01"], "--delta": ["0.05"], "--budget": ["500"],
    "--evidence": ["exact", "samples"],
    "--method": ["cnpgpd", "regularised"], "--direction": ["sgd", "tabular", "least-squares"], "--alpha": ["0.05"],
    "--ridge": ["0", "0.1"], "--policy": ["tabular"], "--sampler": ["critic", "table", "coin", "exact"],
    "--constraint": ["0", "utility"], "--over": ["b", "kappa"], "--points": ["2", "4"], "--learned": ["0"],
    "--to": ["t.csv"], "--resume": ["run"], "--tensorboard": ["board"],
    "--epsilon": ["0.5", "0.01"], "--mu_F": ["0.1"], "--eps_bias": ["0"], "--checkpoint-every": ["1", "10"],
}  # fmt: skip
words = st.one_of(st.sampled_from(WORDS), st.text(max_size=5))
good_flags = st.sampled_from(sorted(GOOD)).flatmap(lambda f: st.tuples(st.just(f), st.sampled_from(GOOD[f])))
flags = st.one_of(good_flags, good_flags, st.tuples(st.sampled_from(FLAGS), words)).map(list)


@st.composite
def command_lines(draw: Any) -> list[str]:
    """A command, most often with a problem, and some flags with some words; never much work."""
    command = draw(st.sampled_from(COMMANDS))
    argv = [command] if command else []
    if draw(st.integers(0, 9)):
        argv.append(
            draw(st.sampled_from(["run", "folder", *PROBLEMS] if command in ("report", "export") else PROBLEMS))
        )
    if command == "certify" and draw(st.integers(0, 4)):
        argv.append(draw(st.sampled_from(["p.npz", "q.npz", "m.npz", "math:sqrt"])))
    given = [word for pair in draw(st.lists(flags, max_size=3)) for word in pair]
    argv += (
        given + (["--json"] if draw(st.booleans()) else []) + ([draw(words)] if draw(st.integers(0, 5)) == 0 else [])
    )
    if command == "reproduce":
        return [*argv, "--seeds", "0"]
    if command == "solve":
        argv[1:1] = [w for n in range(0, 6, 2) for w in SMALL[n : n + 2] if SMALL[n] not in given]
    if command == "frontier" and "--points" not in given:
        argv += ["--points", "3"]
    return argv
