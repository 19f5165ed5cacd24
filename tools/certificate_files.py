"""Read the files of a certificate: standard library only, and nothing of `clearance`.

Models and policies are .npz files: a .zip of arrays, each with a short header. A proof has arrays as base64 of float64,
or as fractions of hexadecimal numbers.
"""

import ast
import base64
import math
import struct
import zipfile
from fractions import Fraction
from typing import Any

TYPES = {"f8": "d", "f4": "f", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u1": "B", "b1": "B"}
SUM = Fraction(1, 10**13)  # how far a distribution may be from 1: clearance divides away what is beyond rounding


def read_npz(path):
    """The numeric arrays of an .npz file as lists of lists, and texts."""
    arrays = {}
    with zipfile.ZipFile(path) as z:
        for name in z.namelist():
            raw = z.read(name)
            start = 10 if raw[6] == 1 else 12
            end = start + int.from_bytes(raw[8:start], "little")
            header = ast.literal_eval(raw[start:end].decode())
            order, kind, n = header["descr"][0], header["descr"][1:], math.prod(header["shape"])
            if kind[0] == "U":
                arrays[name.removesuffix(".npy")] = raw[end:].decode("utf-32-be" if order == ">" else "utf-32-le")
            elif kind in TYPES:
                data = struct.unpack(f"{order.replace('|', '<')}{n}{TYPES[kind]}", raw[end:])
                arrays[name.removesuffix(".npy")] = nest(data, header["shape"], header["fortran_order"])
    return arrays


def nest(data, shape, fortran=False) -> Any:
    """Numbers in the order of a file as lists of lists; the one number of an empty shape as itself."""
    if len(data) != math.prod(shape):
        raise ValueError(f"{len(data)} numbers for the shape {shape}")
    if len(shape) < 2:
        return list(data) if shape else data[0]
    n, part = shape[0], len(data) // max(shape[0], 1)
    return [nest(data[i::n] if fortran else data[i * part : (i + 1) * part], shape[1:], fortran) for i in range(n)]


def unpack(x) -> Any:
    """An array of the proof."""
    if "fractions" in x:
        return nest([Fraction(*(int(n, 16) for n in text.split("/"))) for text in x["fractions"]], x["shape"])
    return nest(struct.unpack(f"<{math.prod(x['shape'])}d", base64.b64decode(x["float64"], validate=True)), x["shape"])


def dot(x, y):
    return sum((Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True)), Fraction(0))


def check_distributions(name, rows):
    if any(min(row, default=-1) < 0 or abs(sum(map(Fraction, row)) - 1) > SUM for row in rows):
        raise ValueError(f"{name}: probabilities are negative or do not sum to 1; save it with clearance first")


def read_policy(path, model):
    """Weights, and of every component one table {s: [(a, π(a|s)), …]} per step."""
    z = read_npz(path)
    parts, weights = (z["pi"], z["weights"]) if isinstance(z["pi"][0][0], list) else ([z["pi"]], [1.0])
    parts = [part if isinstance(part[0][0], list) else [part] * model.H for part in parts]
    tables = [table for part in parts for table in part]
    rows = [(s, row) for table in tables for s, row in enumerate(table)]
    if (
        {len(x) for x in parts} != {model.H}
        or {len(x) for x in tables} != {model.S}
        or {len(x) for _, x in rows} != {model.A}
    ):
        raise ValueError(f"{path}: the policy is for another model")
    check_distributions("weights", [weights])
    check_distributions("pi", [row for _, row in rows])
    if any(p and (s, a) not in model.rows for s, row in rows for a, p in enumerate(row)):
        raise ValueError(f"{path}: the policy takes an action that its state does not have")

    def read(row):
        return [(a, Fraction(p) / (sum(map(Fraction, row)) if model.divide else 1)) for a, p in enumerate(row) if p]

    return weights, [[{s: read(row) for s, row in enumerate(table)} for table in part] for part in parts]
