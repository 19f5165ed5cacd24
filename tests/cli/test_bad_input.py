"""Every kind of bad input: one line that names the field and what to do, exit 2, no traceback, no file left behind."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse

import clearance as cl
from clearance.cli.command_line import main

Files = Callable[[], object]


class Kind(NamedTuple):
    """What lies in the working directory, the command, and what its one line must say."""

    files: Files
    argv: str | list[str]
    says: tuple[str, ...]


# ------------------------------------------------------------------------------------------------- what lies on disk

TWO = cl.zoo.two_state()
DENSE: dict[str, Any] = {"P": TWO.P, "r": TWO.r, "g": TWO.g, "b": TWO.b, "rho": TWO.rho, "gamma": 0.5}
CSR = sparse.csr_array(TWO.P.reshape(4, 2))
SPARSE: dict[str, Any] = {k: v for k, v in DENSE.items() if k != "P"} | {
    "P_data": CSR.data,
    "P_indices": CSR.indices,
    "P_indptr": CSR.indptr,
}
UNIFORM = np.full((2, 2), 0.5)


def nothing() -> None:
    """The command alone is wrong."""


def npz(name: str, arrays: dict[str, Any], changes: dict[str, Any]) -> Files:
    """The file `name` with these arrays; a change to None leaves one out."""
    return lambda: np.savez(name, **{k: v for k, v in (arrays | changes).items() if v is not None})


def model(**changes: Any) -> Files:
    return npz("m.npz", DENSE, changes)


def csr(**changes: Any) -> Files:
    return npz("m.npz", SPARSE, changes)


def policy(**changes: Any) -> Files:
    return npz("p.npz", {"weights": np.array([0.5, 0.5]), "pi": np.stack([UNIFORM, UNIFORM])}, changes)


def features(**arrays: Any) -> Files:
    return npz("f.npz", {}, arrays)


def text(name: str, content: str | bytes) -> Files:
    return lambda: Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


def put(a: Any, at: Any, value: float) -> np.ndarray:
    """A copy of `a` with one entry changed."""
    a = np.array(a, float)
    a[at] = value
    return a


def bytes_of(**arrays: Any) -> bytes:
    f = io.BytesIO()
    np.savez(f, **arrays)
    return f.getvalue()


def zipped(**members: bytes) -> bytes:
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w") as z:
        for name, content in members.items():
            z.writestr(name, content)
    return f.getvalue()


def damaged() -> bytes:
    """A compressed model with bytes flipped in the middle of its first array."""
    f = io.BytesIO()
    np.savez_compressed(f, P=np.random.default_rng(0).random((8, 8, 8)), r=TWO.r)
    content = bytearray(f.getvalue())
    for i in range(300, 340):
        content[i] ^= 0xFF
    return bytes(content)


class Trap:
    """Unpickled, it would create the file `trapped`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, ("trapped", "w")


def saved_npy(a: Any) -> bytes:
    f = io.BytesIO()
    np.save(f, a)
    return f.getvalue()


def head_of(shape: tuple[int, ...]) -> bytes:
    """An array file that announces this shape and holds nothing."""
    f = io.BytesIO()
    np.lib.format.write_array_header_2_0(f, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return f.getvalue()


CHECK, CERTIFY, SOLVE = "check m.npz", "certify two-state p.npz", "solve two-state --policy f.npz"

# ------------------------------------------------------------------------------------------------------- model files

MODEL_FILES = {
    "no such file": Kind(nothing, "check nowhere.npz", ("nowhere.npz: no such file",)),
    "folder instead of a file": Kind(lambda: os.mkdir("m.npz"), CHECK, ("m.npz: cannot read: Is a directory",)),
    "link to itself": Kind(lambda: os.symlink("m.npz", "m.npz"), CHECK, ("m.npz: cannot read: Too many levels",)),
    "empty file": Kind(text("m.npz", ""), CHECK, ("m.npz: not an .npz file", "numpy.savez")),
    "text": Kind(text("m.npz", "P,r,g\n1,2,3\n"), CHECK, ("m.npz: not an .npz file", "numpy.savez")),
    "text without suffix": Kind(text("m", "P,r,g\n1,2,3\n"), "check m", ("m: not an .npz file", "numpy.savez")),
    ".npy": Kind(text("m.npz", saved_npy(TWO.r)), CHECK, ("m.npz: not an .npz file", "numpy.savez")),
    "cut off": Kind(text("m.npz", bytes_of(**DENSE)[:-100]), CHECK, ("m.npz: not an .npz file, or cut off",)),
    "damaged": Kind(text("m.npz", damaged()), CHECK, ("m.npz: P cannot be read", "numpy.savez")),
    "zip without arrays": Kind(text("m.npz", zipped(r=b"abc")), CHECK, ("m.npz: r is not an array", "numpy.savez")),
    "empty zip": Kind(text("m.npz", zipped()), CHECK, ("m.npz: r is missing", "a model needs P, r, gamma")),
    "array with a broken head": Kind(
        text("m.npz", zipped(**{"r.npy": saved_npy(TWO.r).replace(b"descr", b"dscre")})), CHECK, ("r cannot be read",)
    ),
    "array cut off": Kind(
        text("m.npz", zipped(**{"r.npy": saved_npy(TWO.r)[:-8]})), CHECK, ("m.npz: r cannot be read",)
    ),
    "array larger than memory": Kind(
        text("m.npz", zipped(**{"r.npy": head_of((2, 10**15))})), CHECK, ("m.npz: r cannot be read",)
    ),
    "pickled objects": Kind(model(r=np.array([Trap(), None])), CHECK, ("m.npz: r cannot be read", "Python objects")),
    "bare pickle": Kind(text("m.npz", pickle.dumps(Trap())), CHECK, ("m.npz: not an .npz file",)),
    "pickled array": Kind(
        text("m.npz", zipped(**{"r.npy": pickle.dumps(Trap())})), CHECK, ("m.npz: r is not an array", "numpy.savez")
    ),
    "no P": Kind(model(P=None), CHECK, ("m.npz: P (or P_data, P_indices, P_indptr) is missing",)),
    "no r": Kind(model(r=None), CHECK, ("m.npz: r is missing",)),
    "no gamma": Kind(model(gamma=None), CHECK, ("m.npz: gamma is missing",)),
    "P row sum": Kind(model(P=put(TWO.P, (1, 0, 0), 0.97)), CHECK, ("m.npz: P[1, 0] sums to 0.97", "must sum to 1")),
    "P negative": Kind(
        model(P=put(put(TWO.P, (0, 1, 1), 1.5), (0, 1, 0), -0.5)),
        CHECK,
        ("P[0, 1] has a negative value at next state 0",),
    ),
    "P NaN": Kind(model(P=put(TWO.P, (1, 1, 0), np.nan)), CHECK, ("P[1, 1] has a NaN at next state 0",)),
    "P infinite": Kind(
        model(P=put(TWO.P, (1, 1, 0), np.inf)), CHECK, ("P[1, 1] has an infinite value at next state 0",)
    ),
    "P two axes": Kind(model(P=TWO.P.reshape(4, 2)), CHECK, ("P must have 3 axes, got shape (4, 2)",)),
    "P of another size": Kind(
        model(P=np.full((3, 2, 3), 1 / 3)), CHECK, ("P has shape (3, 2, 3)", "must be [S, A, S] = (2, 2, 2)")
    ),
    "P text": Kind(model(P=np.full((2, 2, 2), "a")), CHECK, ("P must be an array of real numbers with 3 axes",)),
    "P complex": Kind(model(P=TWO.P.astype(complex)), CHECK, ("P must be an array of real numbers",)),
    "r one axis": Kind(model(r=np.ones(4)), CHECK, ("r must have 2 axes, got shape (4,)",)),
    "r without states": Kind(model(r=np.ones((0, 2))), CHECK, ("r must have at least one state and one action",)),
    "r NaN": Kind(model(r=put(TWO.r, (1, 0), np.nan)), CHECK, ("m.npz: r has a NaN at state 1, action 0",)),
    "r infinite": Kind(model(r=put(TWO.r, (0, 1), -np.inf)), CHECK, ("r has an infinite value at state 0, action 1",)),
    "r overflows": Kind(model(r=put(TWO.r, (0, 1), 1e300)), CHECK, ("r has 1e+300", "rescale", "state 0, action 1")),
    "r dates": Kind(model(r=np.zeros((2, 2), "M8[s]")), CHECK, ("r must be an array of real numbers",)),
    "r records": Kind(model(r=np.zeros((2, 2), [("x", float)])), CHECK, ("r must be an array of real numbers",)),
    "g NaN": Kind(
        model(g=put(np.zeros((1, 2, 2)), (0, 1, 0), np.nan)), CHECK, ("g[0] has a NaN at state 1, action 0",)
    ),
    "g of another size": Kind(model(g=np.zeros((1, 3, 2))), CHECK, ("g has shape (1, 3, 2)", "must be [I, S, A]")),
    "g four axes": Kind(model(g=np.zeros((1, 1, 2, 2))), CHECK, ("g must have 3 axes",)),
    "b of another length": Kind(model(b=np.zeros(3)), CHECK, ("b has 3 entries for 1 constraints in g",)),
    "b without g": Kind(model(g=None), CHECK, ("b has 1 entries for 0 constraints",)),
    "b NaN": Kind(model(b=np.array([np.nan])), CHECK, ("b has a NaN at 0",)),
    "b scalar NaN": Kind(model(b=np.nan), CHECK, ("b has a NaN at 0",)),
    "b infinite": Kind(model(b=-np.inf), CHECK, ("b has an infinite value",)),
    "b two axes": Kind(model(b=np.zeros((1, 1))), CHECK, ("b must have 1 axis",)),
    "b text": Kind(model(b=np.array("low")), CHECK, ("b must be one real number, got 'low'",)),
    "rho of another length": Kind(model(rho=np.full(3, 1 / 3)), CHECK, ("rho has 3 entries, the model has 2 states",)),
    "rho sum": Kind(model(rho=np.array([0.5, 0.4])), CHECK, ("rho sums to 0.9; probabilities must sum to 1",)),
    "rho negative": Kind(model(rho=np.array([1.5, -0.5])), CHECK, ("rho has a negative value at 1",)),
    "rho NaN": Kind(model(rho=np.array([np.nan, 1])), CHECK, ("rho has a NaN at 0",)),
    "gamma 1": Kind(model(gamma=1.0), CHECK, ("m.npz: gamma must be in (0, 1), got 1",)),
    "gamma 0": Kind(model(gamma=0), CHECK, ("gamma must be in (0, 1), got 0",)),
    "gamma negative": Kind(model(gamma=-0.5), CHECK, ("gamma must be in (0, 1), got -0.5",)),
    "gamma NaN": Kind(model(gamma=np.nan), CHECK, ("gamma must be in (0, 1), got nan",)),
    "gamma many": Kind(model(gamma=np.array([0.5, 0.6])), CHECK, ("gamma must be one real number, got an array",)),
    "gamma none": Kind(model(gamma=np.zeros(0)), CHECK, ("gamma must be one real number, got an array",)),
    "gamma text": Kind(model(gamma=np.array("half")), CHECK, ("gamma must be one real number, got 'half'",)),
    "gamma complex": Kind(model(gamma=0.5 + 0j), CHECK, ("gamma must be one real number",)),
    "gamma too near to 1": Kind(model(gamma=1 - 1e-16), CHECK, ("linear program", "gamma further from 1")),
    "names of another number": Kind(
        model(names=np.array(["a", "b"])), CHECK, ("names has 2 entries for 1 constraints", "one name each")
    ),
    "one CSR array missing": Kind(csr(P_indptr=None), CHECK, ("P (or P_data, P_indices, P_indptr) is missing",)),
    "P_indptr short": Kind(csr(P_indptr=np.arange(4)), CHECK, ("P_indptr has 4 entries, it must have S·A + 1 = 5",)),
    "P_indptr two axes": Kind(
        csr(P_indptr=np.zeros((5, 1), int)), CHECK, ("P_indptr must be a list of whole numbers",)
    ),
    "P_indptr fractions": Kind(csr(P_indptr=np.arange(5.0)), CHECK, ("P_indptr must be a list of whole numbers",)),
    "P_indptr decreases": Kind(
        csr(P_indptr=np.array([0, 3, 2, 3, 4])), CHECK, ("P_indptr[2] is 2; it must not decrease",)
    ),
    "P_indptr decreases, unsigned": Kind(
        csr(P_indptr=np.array([0, 3, 2, 3, 4], np.uint64)), CHECK, ("P_indptr[2] is 2; it must not decrease",)
    ),
    "P_indptr beyond 2**63": Kind(
        csr(P_indptr=np.array([0, 1, 2**64 - 1, 3, 4], np.uint64)), CHECK, ("P_indptr[2] is -1",)
    ),
    "P_indptr starts late": Kind(csr(P_indptr=np.array([1, 1, 2, 3, 4])), CHECK, ("P_indptr goes from 1 to 4",)),
    "P_indptr ends late": Kind(
        csr(P_indptr=np.array([0, 1, 2, 3, 9])), CHECK, ("P_indptr goes from 0 to 9", "P_data, 4")
    ),
    "P_indices short": Kind(csr(P_indices=np.array([1, 1])), CHECK, ("P_indices has 2 entries for 4 in P_data",)),
    "P_indices beyond S": Kind(
        csr(P_indices=np.array([1, 1, 7, 0])), CHECK, ("P_indices[2] is 7; next states lie in 0..1",)
    ),
    "P_indices negative": Kind(csr(P_indices=np.array([1, -1, 0, 0])), CHECK, ("P_indices[1] is -1; next states",)),
    "P_indices fractions": Kind(csr(P_indices=np.ones(4)), CHECK, ("P_indices must be a list of whole numbers",)),
    "P_data NaN": Kind(csr(P_data=np.array([1, np.nan, 1, 1])), CHECK, ("P_data has a NaN at 1",)),
    "P_data complex": Kind(csr(P_data=np.ones(4, complex)), CHECK, ("P_data must be an array of real numbers",)),
    "P_data two axes": Kind(csr(P_data=np.ones((4, 1))), CHECK, ("P_data must have 1 axis, got shape (4, 1)",)),
    "P_data row sum": Kind(csr(P_data=np.array([1, 1, 1, 0.5])), CHECK, ("P[1, 1] sums to 0.5",)),
    "P_data negative": Kind(
        csr(P_data=np.array([1, 1, -1, 1])), CHECK, ("P[1, 0] has a negative value at next state 0",)
    ),
    "sparse with r of one axis": Kind(csr(r=np.ones(4)), CHECK, ("r must have 2 axes",)),
}

# ---------------------------------------------------------------------------------------- policy files, feature files

POLICY_FILES = {
    "no policy file": Kind(nothing, CERTIFY, ("p.npz: no such file",)),
    "policy file is a model": Kind(
        npz("p.npz", DENSE, {}), CERTIFY, ("p.npz: this is a model, not a policy", "pi [M, S, A]")
    ),
    "policy for another model": Kind(
        policy(pi=np.full((2, 3, 2), 0.5)), CERTIFY, ("policy has shape (3, 2)", "(2, 2)")
    ),
    "pi one axis": Kind(policy(pi=np.ones(2)), CERTIFY, ("p.npz: pi must have 3 axes, got shape (2,)",)),
    "pi row sum": Kind(policy(pi=0.9 * np.stack([UNIFORM, UNIFORM])), CERTIFY, ("p.npz: pi[0, 0] sums to 0.9",)),
    "pi NaN": Kind(
        policy(pi=put([UNIFORM, UNIFORM], (1, 0, 1), np.nan)), CERTIFY, ("pi[1] has a NaN at state 0, action 1",)
    ),
    "pi negative": Kind(
        policy(weights=None, pi=np.array([[1.5, -0.5], [1, 0]])),
        CERTIFY,
        ("pi[0] has a negative value at state 0, action 1",),
    ),
    "pi text": Kind(policy(pi=np.full((1, 2, 2), "x")), CERTIFY, ("pi must be an array of real numbers",)),
    "pi empty": Kind(policy(pi=np.ones((0, 2, 2)), weights=np.ones(0)), CERTIFY, ("at least one",)),
    "pi pickled": Kind(policy(pi=np.array([Trap()])), CERTIFY, ("p.npz: pi cannot be read", "Python objects")),
    "weights missing": Kind(policy(weights=None), CERTIFY, ("p.npz: weights is missing", "weights [M]")),
    "weights of another length": Kind(
        policy(weights=np.ones(1)), CERTIFY, ("weights has 1 entries for 2 policies", "give one each")
    ),
    "weights sum": Kind(policy(weights=np.array([0.5, 0.4])), CERTIFY, ("p.npz: weights sums to 0.9",)),
    "weights negative": Kind(policy(weights=np.array([1.5, -0.5])), CERTIFY, ("weights has a negative value at 1",)),
    "weights NaN": Kind(policy(weights=np.array([np.nan, 1])), CERTIFY, ("weights has a NaN at 0",)),
    "weights two axes": Kind(policy(weights=np.ones((2, 1))), CERTIFY, ("weights must have 1 axis",)),
    "no features file": Kind(nothing, SOLVE, ("f.npz: no such file",)),
    "features missing": Kind(features(x=np.ones(3)), SOLVE, ("f.npz: features is missing", "[S, A, d]")),
    "features two axes": Kind(features(features=np.ones((2, 2))), SOLVE, ("features must have 3 axes",)),
    "features NaN": Kind(features(features=np.full((2, 2, 1), np.nan)), SOLVE, ("features has a NaN at (0, 0, 0)",)),
    "features without columns": Kind(features(features=np.ones((2, 2, 0))), SOLVE, ("features must be [S, A, d]",)),
    "features for another model": Kind(
        features(features=np.ones((3, 2, 1))), SOLVE, ("features are for [S, A] = (3, 2)", "the model has (2, 2)")
    ),
    "features pickled": Kind(features(features=np.array([Trap()])), SOLVE, ("f.npz: features cannot be read",)),
    "zoo class for another model": Kind(nothing, "solve two-state --policy bai2023", ("features are for", "(10, 5)")),
    "unknown policy class": Kind(nothing, "solve two-state --policy mlp", ("--policy 'mlp' is neither", "tabular")),
    "features that tie states": Kind(
        features(features=np.array([[[1.0], [0]], [[1], [0]]])),
        "plan two-state --epsilon 1 --policy f.npz",
        ("features tie states or actions together",),
    ),
}

# ----------------------------------------------------------------------------------------- commands, problems, places


def module(content: str) -> Files:
    return text("mine.py", content)


MINE = "check mine:make"
LONG = "x" * 300

COMMANDS = {
    "no command": Kind(nothing, "--bogus", ("required: COMMAND", "clearance --help")),
    "unknown command": Kind(nothing, "sovle two-state", ("COMMAND", "'sovle'", "solve", "clearance --help")),
    "no problem": Kind(nothing, "check", ("required: PROBLEM", "clearance check --help")),
    "no policy": Kind(nothing, "certify two-state", ("required: POLICY", "clearance certify --help")),
    "no epsilon": Kind(nothing, "plan two-state", ("required: --epsilon",)),
    "unknown flag": Kind(nothing, "solve two-state --kapa 1", ("unrecognized arguments: --kapa",)),
    "abbreviated flag": Kind(nothing, "solve two-state --kap 1", ("unrecognized arguments: --kap",)),
    "flag without value": Kind(nothing, "solve two-state --kappa", ("--kappa: expected one argument",)),
    "flag of another command": Kind(nothing, "check two-state --seed 1", ("unrecognized arguments: --seed",)),
    "one argument too many": Kind(nothing, "check two-state bai2023", ("unrecognized arguments: bai2023",)),
    "unknown sampler": Kind(nothing, "solve two-state --sampler dice", ("--sampler", "'dice'", "table")),
    "unknown direction": Kind(nothing, "solve two-state --direction up", ("--direction", "'up'", "least-squares")),
    "SGD on weighted draws": Kind(
        nothing,
        "solve two-state --method cnpgpd --sampler exact --direction sgd",
        ("--direction sgd", "use least-squares"),
    ),
    "setting of another method": Kind(nothing, "solve two-state --eta1 0.1", ("--eta1", "--method regularised")),
    "direction of another method": Kind(nothing, "solve two-state --direction sgd", ("--direction", "regularised")),
    "alpha of another method": Kind(nothing, "solve two-state --alpha 0.1", ("--alpha", "--method regularised")),
    "form of another method": Kind(nothing, "solve two-state --printed", ("--printed", "--method regularised")),
    "sampler of another method": Kind(nothing, "solve two-state --sampler coin", ("--sampler coin", "cnpgpd")),
    "unknown method": Kind(nothing, "solve two-state --method ppo", ("--method", "'ppo'", "regularised")),
    "unknown evidence": Kind(nothing, "solve two-state --evidence hope", ("--evidence", "'hope'", "samples")),
    "one tau": Kind(nothing, "solve two-state --tau 0.1", ("tau must be two numbers",)),
    "two taus for one": Kind(nothing, "solve two-state --method rpgpd --tau 0.1,0.2", ("tau must be a positive",)),
    "three taus": Kind(nothing, "solve two-state --tau 0.1,0.2,0.3", ("--tau: must be one number, or two",)),
    "unknown geometry": Kind(nothing, "solve two-state --method opgpd --geometry flat", ("--geometry", "'flat'")),
    "unknown solver": Kind(nothing, "solve two-state --method modelbased --solver ip", ("--solver", "'ip'")),
    "negative tolerance": Kind(nothing, "solve two-state --method crpo --tolerance -1", ("tolerance must be",)),
    "inner of zero": Kind(nothing, "solve two-state --method pmdpd --inner 0", ("inner must be a whole number",)),
    "sampler for a trajectory": Kind(nothing, "solve two-state --method pdnac --sampler exact", ("--sampler",)),
    "weights for accelerated": Kind(nothing, "solve two-state --method pdanpg --sampler exact", ("equal weight",)),
    "eta of Algorithm 1": Kind(nothing, "solve two-state --method cnpgpd --eta 1", ("--eta", "--method cnpgpd")),
    "features for a table": Kind(nothing, "solve bai2023 --policy bai2023 --method opgpd", ("tabular softmax only",)),
    "tau of zero": Kind(nothing, "solve two-state --tau 0.1,0", ("tau must be a positive number",)),
    "kappa for three": Kind(nothing, "solve two-state --kappa 0.1,0.1,0.1", ("kappa has 3 entries for 1",)),
    "exact evidence for a rule": Kind(
        text("mine.py", "def rule(s):\n    return 0\n"),
        "certify two-state mine:rule --evidence exact",
        ("can only be sampled",),
    ),
    "a rule on long-run means": Kind(
        text("mine.py", "def rule(s):\n    return 0\n"),
        "certify streaming mine:rule",
        ("give the rule as a table, with one action for each state, or use --horizon H for the first",),
    ),
    "exact evidence for a rule on long-run means": Kind(
        text("mine.py", "def rule(s):\n    return 0\n"),
        "certify streaming mine:rule --evidence exact",
        ("give the rule as a table, with one action for each state, or use --horizon H for the first",),
    ),
    "a rule of too many arguments": Kind(
        text("mine.py", "def rule(a, b):\n    return 0\n"),
        "certify two-state mine:rule",
        ("policy mine:rule raised TypeError", "at step 0", "a rule takes one argument"),
    ),
    "a rule that is none": Kind(
        text("mine.py", "rule = 3\n"), "certify two-state mine:rule", ("must be a rule", "int")
    ),
    "a rule that takes what is not there": Kind(
        text("mine.py", "def rule(s):\n    return 7\n"), "certify two-state mine:rule", ("action 7 at state",)
    ),
    "a rule that is not there": Kind(text("mine.py", ""), "certify two-state mine:rule", ("POLICY mine:rule failed",)),
    "unknown experiment": Kind(nothing, "reproduce bai2024", ("experiment", "'bai2024'", "bai2023")),
    "unknown zoo name": Kind(nothing, "check two-sate", ("PROBLEM 'two-sate'", "two-state")),
    "problem of no characters": Kind(nothing, ["check", ""], ("PROBLEM ''", "clearance zoo")),
    "problem with control characters": Kind(nothing, ["check", "a\x1b[31m\nb"], ("PROBLEM 'a\\x1b[31m\\nb'",)),
    "file name with control characters": Kind(
        nothing, ["check", "\x1b[31m\r\n.npz"], ("\\x1b[31m .npz: no such file",)
    ),
    "problem of 300 characters": Kind(nothing, ["check", LONG], ("PROBLEM 'xxx", "name of the zoo")),
    "file name of 300 characters": Kind(nothing, ["check", LONG + ".npz"], ("File name too long",)),
    "colon without factory": Kind(nothing, "check mine:", ("PROBLEM 'mine:'", "module:factory")),
    "no such module": Kind(nothing, "check nowhere:make", ("PROBLEM nowhere:make", "No module named 'nowhere'")),
    "module with a syntax error": Kind(module("def make(:\n"), MINE, ("PROBLEM mine:make failed: SyntaxError",)),
    "module that raises": Kind(module("1 / 0"), MINE, ("PROBLEM mine:make failed: ZeroDivisionError",)),
    "module that exits": Kind(module("raise SystemExit(0)"), MINE, ("PROBLEM mine:make failed: SystemExit",)),
    "no such factory": Kind(module("other = 1"), MINE, ("PROBLEM mine:make failed", "has no attribute 'make'")),
    "factory is no function": Kind(module("make = 3"), MINE, ("PROBLEM mine:make failed", "not callable")),
    "factory wants arguments": Kind(module("def make(n): pass"), MINE, ("PROBLEM mine:make failed", "'n'")),
    "factory raises two lines": Kind(
        module("def make(): raise ValueError('first\\nsecond')"), MINE, ("PROBLEM mine:make failed: ValueError: first",)
    ),
    "factory returns None": Kind(
        module("def make(): pass"), MINE, ("must return a clearance.CMDP, a simulator or an environment, got NoneType",)
    ),
    "factory returns an array": Kind(
        module("import numpy\ndef make(): return numpy.ones(3)"),
        MINE,
        ("must return a clearance.CMDP, a simulator or", "got ndarray"),
    ),
    "factory makes a bad model": Kind(
        module("import clearance\ndef make(): return clearance.CMDP([[[0.5]]], [[1.0]], gamma=0.5)"),
        MINE,
        ("PROBLEM mine:make failed", "P[0, 0] sums to 0.5"),
    ),
    "plan without constraints": Kind(
        model(g=None, b=None), "plan m.npz --epsilon 1", ("no constraints", "use optimum")
    ),
    "plan with one action": Kind(
        npz("m.npz", {}, {"P": np.ones((1, 1, 1)), "r": [[1.0]], "g": [[[1.0]]], "gamma": 0.5}),
        "plan m.npz --epsilon 1",
        ("one action",),
    ),
    "kappa above the Slater margin": Kind(
        nothing, "solve two-state --kappa 0.7", ("kappa = 0.7", "Slater margin 0.666667", "or give lam_max")
    ),
    "run folder not empty": Kind(
        lambda: (os.mkdir("run"), Path("run/x").write_text("")),
        "solve two-state --out run",
        ("--out run", "not an empty folder"),
    ),
    "run folder is a file": Kind(text("run", ""), "solve two-state --out run", ("--out run: exists", "choose another")),
    "run folder is a dead link": Kind(
        lambda: os.symlink("nowhere", "run"), "solve two-state --out run", ("--out run: exists", "choose another")
    ),
    "run folder under a file": Kind(
        text("f", ""), "solve two-state --out f/run", ("--out f/run: cannot write: Not a dir",)
    ),
    "run folder without name": Kind(nothing, ["solve", "two-state", "--out", ""], ("--out", "must be a path")),
    "run folder of 300 characters": Kind(
        nothing, ["solve", "two-state", "--out", LONG], ("--out xxx", "name too long")
    ),
    "policy to a folder": Kind(lambda: os.mkdir("o"), "optimum two-state --out o", ("--out o: is a folder",)),
    "policy to this folder": Kind(nothing, "optimum two-state --out .", ("--out .: is a folder",)),
    "policy under a file": Kind(text("f", ""), "optimum two-state --out f/o.npz", ("--out f/o.npz: cannot write",)),
    "policy in no folder": Kind(
        nothing, "optimum two-state --out no/o.npz", ("--out no/o.npz: there is no folder no",)
    ),
    "policy over the model": Kind(model(), "optimum m.npz --out ./m.npz", ("--out ./m.npz: is the model itself",)),
    "frontier of no constraint": Kind(
        model(g=None, b=None), "frontier m.npz", ("the problem has no constraints: there is no limit",)
    ),
    "frontier of another constraint": Kind(
        nothing, "frontier two-state --constraint cost", ("constraint 'cost' is none of utility, nor an index in 0..0",)
    ),
    "frontier of a constraint beyond": Kind(
        nothing, "frontier two-state --constraint 1", ("constraint '1' is none of utility, nor an index in 0..0",)
    ),
    "frontier over something else": Kind(nothing, "frontier two-state --over gamma", ("--over: invalid choice",)),
    "frontier over kappa of one constraint": Kind(
        nothing, "frontier two-state --over kappa --constraint utility", ("kappa tightens all limits alike",)
    ),
    "frontier seed": Kind(nothing, "frontier two-state --learned 1 --seed -1", ("--seed: must be in 0..",)),
    "frontier as a document": Kind(
        nothing, "frontier two-state --out o.pdf", ("--out o.pdf: must end in one of .png, .svg, .csv",)
    ),
    "frontier under no folder": Kind(
        nothing, "frontier two-state --out no/o.png", ("--out no/o.png: there is no folder no",)
    ),
    "frontier over a folder": Kind(
        lambda: os.mkdir("o.csv"), "frontier two-state --out o.csv", ("--out o.csv: is a folder",)
    ),
    "figures under a file": Kind(text("f", ""), "reproduce bai2023 --out f/o", ("--out f/o: cannot write",)),
    "figures over a file": Kind(text("f", ""), "reproduce bai2023 --out f", ("--out f: exists", "choose another")),
}

# ------------------------------------------------------------------------------------------------------ numeric flags

SOLVER, PLAN, PAPER = "solve two-state", "plan two-state --epsilon 1", "reproduce bai2023"
CURVE, PLAIN = "frontier two-state", "solve two-state --method cnpgpd"
# Flag, its command, what it must not be beyond text, NaN and infinity, and what the line says then.
WHOLE = {
    ("K", SOLVER): (("0", "-5"), "K must be a whole number ≥ 1"),
    ("N", SOLVER): (("0", "-5"), "N must be a whole number ≥ 1"),
    ("seed", SOLVER): (("-1",), "seed must be a whole number in [0, 2**63)"),
    ("seeds", PAPER): (("0", "-5", "10001"), "--seeds: must be in 1..10000"),
    ("threads", PAPER): (("0", "-5", "1001"), "--threads: must be in 1..1000"),
    ("points", CURVE): (("0", "1", "-5", "10001"), "--points: must be in 2..10000"),
    ("learned", CURVE): (("-1", "10001"), "--learned: must be in 0..10000"),
}
REAL = {
    ("eta1", PLAIN): (("0", "-1"), "eta1 must be a positive number"),
    ("nu", SOLVER): (("0", "-1", "1.5"), "nu must be in (0, 1]"),
    ("kappa_first", SOLVER): (("-1",), "kappa_first must be a number ≥ 0"),
    ("delta", SOLVER): (("0", "1", "-1"), "--delta: must be in (0, 1)"),
    ("budget", SOLVER): (("0", "-1"), "--budget: must be at least 1"),
    ("eta2", SOLVER): (("0", "-1"), "eta2 must be a positive number"),
    ("kappa", SOLVER): (("-1", "0.1,-1"), "--kappa: must be ≥ 0"),
    ("lam_max", SOLVER): (("0", "-1"), "lam_max must be a positive number"),
    ("alpha", PLAIN): (("0", "-1"), "alpha must be a positive number"),
    ("ridge", PLAIN + " --direction least-squares"): (("-1",), "--ridge: must be ≥ 0"),
    ("epsilon", PLAN): (("0", "-1"), "epsilon must be a positive number"),
    ("mu_F", PLAN): (("-1", "1e9"), "mu_F = "),
    ("eps_bias", PLAN): (("-1",), "eps_bias = -1.0: must be non-negative"),
    ("eps_bias2", PLAN): (("-1", "2"), "eps_bias2 = "),
}


def flag_kinds() -> dict[str, Kind]:
    kinds = {}
    for table, wrong, rule in (
        (WHOLE, ("many", "1.5", "nan", "inf", ""), "must be a whole number, got"),
        (WHOLE, (str(10**30), "-" + "9" * 40), "must be below 2**63 in size"),
        (REAL, ("many", "", "0x1p3"), "must be a number, got"),
        (REAL, ("nan", "inf", "1e999"), "must be finite, got"),
    ):
        for (flag, command), (refused, said) in table.items():
            for value in wrong:
                kinds[f"--{flag} {value!r}"] = Kind(
                    nothing, [*command.split(), f"--{flag}", value], (f"--{flag}", rule)
                )
            for value in refused:
                kinds[f"--{flag} {value!r}"] = Kind(nothing, [*command.split(), f"--{flag}", value], (said,))
    return kinds


KINDS = MODEL_FILES | POLICY_FILES | COMMANDS | flag_kinds()

# --------------------------------------------------------------------------------------------------------- the checks


def listing() -> dict[str, str]:
    """Every path below the working directory with its content."""
    return {
        str(p): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "" for p in sorted(Path().rglob("*"))
    }


COMPILING = "clearance: compiling"  # said when a cache is empty; progress, and no part of the error


def assert_one_line(kind: Kind, status: int | None, out: str, err: str) -> None:
    assert status == 2
    assert out == ""
    err = "".join(line for line in err.splitlines(keepends=True) if not line.startswith(COMPILING))
    assert err.startswith("clearance: ") and err.endswith("\n") and len(err.splitlines()) == 1, err
    assert err.rstrip("\n").isprintable()
    for fragment in kind.says:
        assert fragment in err


def argv_of(kind: Kind) -> list[str]:
    return kind.argv.split() if isinstance(kind.argv, str) else kind.argv


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


def test_the_table_is_long_enough() -> None:
    assert len(KINDS) >= 45 and len({(k.files, str(k.argv)) for k in KINDS.values()}) == len(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_bad_input_is_one_line_and_leaves_nothing(name: str, workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = KINDS[name]
    kind.files()
    before = listing()
    status = main(argv_of(kind))
    said = capsys.readouterr()
    assert_one_line(kind, status, said.out, said.err)
    assert listing() == before  # no result, no *.partial, and no pickle has run


@pytest.mark.parametrize(
    "name",
    ["P row sum", "pickled objects", "unknown flag", "factory raises two lines", "--K '0'", "run folder under a file"],
)
def test_bad_input_of_a_real_process(name: str, workdir: Path) -> None:
    kind = KINDS[name]
    kind.files()
    before = listing()
    command = [sys.executable, "-B", "-m", "clearance", *argv_of(kind), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=60)
    assert_one_line(kind, run.returncode, "", run.stderr)
    said = json.loads(run.stdout)
    assert (said["status"], said["exit_status"]) == ("error", 2) and f"clearance: {said['message']}\n" == run.stderr
    assert listing() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read and write everywhere")
@pytest.mark.parametrize(
    "argv", ["check m.npz", "solve two-state --out shut/run", "optimum two-state --out shut/o.npz"]
)
def test_no_permission(argv: str, workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model()()
    os.chmod("m.npz", 0)
    os.mkdir("shut", 0o500)
    kind = Kind(nothing, argv, (argv.split()[-1], "permission" if "shut" in argv else "Permission denied"))
    status = main(argv_of(kind))
    said = capsys.readouterr()
    assert_one_line(kind, status, said.out, said.err)
    assert not any(Path("shut").iterdir())


# -------------------------------------------------------------------------------------------------------- the library

P1, R1 = np.ones((1, 2, 1)), np.zeros((1, 2))
SHORT = [[0.0, 1.0], [0.5]]  # rows of different length

LIBRARY: dict[str, tuple[Callable[[], object], str]] = {
    "row sum": (
        lambda: cl.CMDP(put(np.full((4, 2, 4), 0.25), (3, 1, 0), 0.22), np.ones((4, 2)), gamma=0.5),
        "P[3, 1] sums to 0.97; probabilities must sum to 1",
    ),
    "NaN in g": (
        lambda: cl.CMDP(
            np.full((5, 3, 5), 0.2), np.ones((5, 3)), put(np.ones((1, 5, 3)), (0, 4, 2), np.nan), gamma=0.5
        ),
        "g[0] has a NaN at state 4, action 2",
    ),
    "NaN in a cost": (
        lambda: cl.CMDP(P1, R1, cost=[[[np.nan, 1.0]]], limit=1.0, gamma=0.5),
        "cost[0] has a NaN at state 0, action 0",
    ),
    "gamma": (lambda: cl.CMDP(P1, R1, gamma=1), "gamma must be in (0, 1), got 1"),
    "gamma above 1": (lambda: cl.CMDP(P1, R1, gamma=1 + 1e-9), "gamma must be in (0, 1), got 1.000000001"),
    "gamma None": (lambda: cl.CMDP(P1, R1, gamma=None), "gamma is missing: give gamma below 1"),
    "gamma far too large": (lambda: cl.CMDP(P1, R1, gamma=10**400), "gamma must be one real number, got 1000"),
    "ragged r": (lambda: cl.CMDP(P1, SHORT, gamma=0.5), "r must be an array of real numbers with 2 axes"),
    "ragged g": (lambda: cl.CMDP(P1, R1, SHORT, gamma=0.5), "g must be an array of real numbers with 3 axes"),
    "ragged b": (lambda: cl.CMDP(P1, R1, R1, SHORT, gamma=0.5), "b must be an array of real numbers with 1 axis"),
    "ragged gamma": (lambda: cl.CMDP(P1, R1, gamma=SHORT), "gamma must be one real number, got an array"),  # type: ignore[arg-type]
    "b None": (lambda: cl.CMDP(P1, R1, R1, None, gamma=0.5), "b must be one real number, got None"),  # type: ignore[arg-type]
    "g scalar": (lambda: cl.CMDP(P1, R1, 1.0, gamma=0.5), "g must have 3 axes, got shape ()"),
    "rho scalar": (lambda: cl.CMDP(P1, R1, rho=1.0, gamma=0.5), "rho must have 1 axis, got shape ()"),
    "P None": (lambda: cl.CMDP(None, R1, gamma=0.5), "P must be an array of real numbers with 3 axes"),  # type: ignore[arg-type]
    "cost without limit": (lambda: cl.CMDP(P1, R1, cost=[R1], gamma=0.5), "limit is missing: `cost` needs it"),
    "limit without cost": (lambda: cl.CMDP(P1, R1, limit=1.0, gamma=0.5), "cost is missing: `limit` needs it"),
    "limit of another length": (
        lambda: cl.CMDP(P1, R1, cost=[R1], limit=[1.0, 2.0], gamma=0.5),
        "limit has 2 entries for 1 constraints in cost; give one each",
    ),
    "names a text": (
        lambda: cl.CMDP(P1, R1, [R1, R1], gamma=0.5, names="ab"),
        "names has the text 'ab' for 2 constraints; give a list with one name each",
    ),
    "sparse P of another shape": (
        lambda: cl.CMDP(sparse.eye_array(3), R1, gamma=0.5),
        "sparse P has shape (3, 3), it must be [S·A, S] = (2, 1)",
    ),
    "sparse P complex": (
        lambda: cl.CMDP(sparse.csr_array(np.ones((2, 1), complex)), R1, gamma=0.5),
        "P must hold real numbers, got complex128",
    ),
    "sparse P NaN": (
        lambda: cl.CMDP(sparse.csr_array([[1.0], [np.nan]]), R1, gamma=0.5),
        "P[0, 1] has a value that is not finite at next state 0",
    ),
    "policy of another model": (
        lambda: cl.certify(TWO, np.ones((3, 1))),
        "policy has shape (3, 1), the model needs [S, A] = (2, 2)",
    ),
    "policy row sum": (lambda: cl.evaluate(TWO, [[0.5, 0.5], [0.5, 0.4]]), "policy[1] sums to 0.9; probabilities must"),
    "weights": (lambda: cl.Mixture([0.5], [UNIFORM, UNIFORM]), "weights has 1 entries for 2 policies; give one each"),
    "no policies": (lambda: cl.Mixture.uniform(np.ones((0, 2, 2))), "at least one"),
    "features": (lambda: cl.linear_softmax(np.ones((2, 0, 1))), "features must be [S, A, d] with no empty axis"),
    "save under a file": (lambda: (Path("f").touch(), TWO.save("f/m.npz")), "f/m.npz: cannot write: Not a directory"),
    "save to this folder": (lambda: TWO.save("."), ".: is a folder; give the name of a file"),
    "save a name too long": (lambda: TWO.save(LONG), "cannot write: File name too long"),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_library_names_the_place(name: str, workdir: Path) -> None:
    call, message = LIBRARY[name]
    with pytest.raises(cl.InputError) as e:
        call()
    assert message in str(e.value) and "\n" not in str(e.value)
    assert set(os.listdir()) <= {"f"}


def test_what_is_not_bad_input() -> None:
    """Booleans, whole numbers, wide floats and fractions are numbers; one utility may come without its axis."""
    half: Any = np.array([0.5])
    for r in (np.ones((1, 2), bool), np.ones((1, 2), np.uint8), np.ones((1, 2), np.longdouble)):
        assert cl.CMDP(np.ones((1, 2, 1), bool), r, R1, gamma=half).r.tolist() == [[1.0, 1.0]]
    assert cl.CMDP(P1, R1, R1, -1, gamma=Fraction(1, 2)).b.tolist() == [-1.0]  # type: ignore[arg-type]


def test_an_interrupted_save_leaves_the_old_file(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(f: Any, **_: Any) -> None:
        f.write(b"half")
        raise KeyboardInterrupt

    TWO.save("m.npz")
    before = listing()
    monkeypatch.setattr(np, "savez_compressed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        TWO.save("m.npz")
    assert listing() == before


def test_the_trap_is_a_trap(workdir: Path) -> None:
    """So that a pickle that was not executed means something."""
    pickle.loads(pickle.dumps(Trap())).close()
    assert os.listdir() == ["trapped"]
