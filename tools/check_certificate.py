"""Check an exact certificate without trusting `clearance`: standard library and rational arithmetic only.

    python tools/check_certificate.py RUN                       a folder with problem.npz, policy.npz, certificate.json
    python tools/check_certificate.py MODEL POLICY CERTIFICATE  the three files

All numbers are taken as stored, as fractions. With V from the proof, h a signal and c the largest row sum of P_π,

    δ = h_π + γ P_π V − V     V + min(0, min δ)/(1 − γc)  ≤  V_π  ≤  V + max(0, max δ)/(1 − γc)

so J = ρ·V_π is enclosed. With every pair in place of π and r + λ·g in place of h, the same bounds the reward of every
policy that meets the limits; without r, if negative, no policy meets them. Limits of 0, horizons, averages and totals
are checked by `check_criteria.py` beside this file. Exit status: 0 the certificate holds, 1 it does not, 2 there is
nothing to check (no proof), or a file cannot be read.
"""

import ast
import base64
import importlib
import json
import math
import struct
import sys
import zipfile
from fractions import Fraction
from pathlib import Path

TYPES = {"f8": "d", "f4": "f", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u1": "B", "b1": "B"}
SUM = Fraction(1, 10**13)  # how far a distribution may be from 1: clearance divides away what is beyond rounding


def read_npz(path):
    """The little-endian numeric arrays of an .npz file as lists of lists, and its texts."""
    arrays = {}
    with zipfile.ZipFile(path) as z:
        for name in z.namelist():
            raw = z.read(name)
            end = (start := 10 if raw[6] == 1 else 12) + int.from_bytes(raw[8:start], "little")
            head = ast.literal_eval(raw[start:end].decode())
            if head["descr"][:2] == "<U":
                arrays[name.removesuffix(".npy")] = raw[end:].decode("utf-32-le")
            elif head["descr"][0] != ">" and head["descr"][1:] in TYPES:
                numbers = [x for (x,) in struct.iter_unpack("<" + TYPES[head["descr"][1:]], raw[end:])]
                arrays[name.removesuffix(".npy")] = nest(numbers, head["shape"], head["fortran_order"])
    return arrays


def nest(data, shape, fortran=False) -> list:
    """Numbers in the order of a file as lists of lists; the one number of an empty shape as itself."""
    if len(data) != math.prod(shape):
        raise ValueError(f"{len(data)} numbers for the shape {shape}")
    if len(shape) < 2:
        return data if shape else data[0]
    n, part = shape[0], len(data) // max(shape[0], 1)
    return [nest(data[i::n] if fortran else data[i * part : (i + 1) * part], shape[1:], fortran) for i in range(n)]


def unpack(x) -> list:
    """An array of the proof: base64 of float64, or fractions of hexadecimal numbers."""
    if "fractions" in x:
        return nest([Fraction(*(int(n, 16) for n in text.split("/"))) for text in x["fractions"]], x["shape"])
    return nest([y for (y,) in struct.iter_unpack("<d", base64.b64decode(x["float64"]))], x["shape"])


def dot(x, y):
    return sum((Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True)), Fraction(0))


def check_distributions(name, rows):
    if any(min(row, default=-1) < 0 or abs(sum(map(Fraction, row)) - 1) > SUM for row in rows):
        raise ValueError(f"{name}: probabilities are negative or do not sum to 1; save it with clearance first")


class Model:
    """A finite model; rows[s, a] lists (t, P(t|s, a)) of the pairs that exist, to[s, a] has their next states."""

    gamma_most, H = 1, 1  # gamma is smaller; a policy has one table per step of the horizon, else one

    def __init__(self, z):
        g, b, S, A = z.get("g", []), z.get("b", 0.0), len(z["r"]), len(z["r"][0])
        self.h, self.gamma = [z["r"], *(g if not g or isinstance(g[0][0], list) else [g])], Fraction(z["gamma"])
        self.S, self.A, self.b = S, A, b if isinstance(b, list) else [b] * (len(self.h) - 1)
        self.rho, pairs = z.get("rho", [1 / S] * S), [(s, a) for s in range(S) for a in range(A)]
        self.pairs = self.rows = {(s, a): row for s, a in pairs if (row := self.read_row(z, s, a))}
        self.sums = {x: sum(p for _, p in row) for x, row in self.rows.items()}
        self.to = {x: {t for t, _ in row} for x, row in self.rows.items()}
        check_distributions("P or rho", [self.rho, *([p for _, p in row] for row in self.rows.values())])
        if {s for s, _ in self.rows} != set(range(S)) or not 0 < self.gamma < self.gamma_most:
            raise ValueError("a state has no action, or gamma does not fit the criterion")

    def read_row(self, z, s, a):
        if "available" in z and not z["available"][s][a]:
            return []
        if "P" in z:
            return [(t, Fraction(p)) for t, p in enumerate(z["P"][s][a]) if p]
        begin, end = z["P_indptr"][s * self.A + a : s * self.A + a + 2]
        return [(z["P_indices"][k], Fraction(z["P_data"][k])) for k in range(begin, end) if z["P_data"][k]]

    def read_tables(self, pi):
        """The tables of a policy, {s: [(a, π(a|s)), …]} for each step."""
        tables = pi if isinstance(pi[0][0], list) else [pi] * self.H
        rows = [row for table in tables for row in table]
        if [len(tables), *map(len, tables), *map(len, rows)] != [self.H] + [self.S] * self.H + [self.A] * len(rows):
            raise ValueError("the policy is for another model")
        check_distributions("pi", rows)
        found = [{s: [(a, Fraction(p)) for a, p in enumerate(x) if p] for s, x in enumerate(table)} for table in tables]
        if any((s, a) not in self.rows for table in found for s, row in table.items() for a, _ in row):
            raise ValueError("the policy takes an action that its state does not have")
        return found

    def over(self, choices, weights, V, now):
        """Of each choice (s, [(a, π(a|s)), …]): Σ_a π(a|s) (weights·h(s, a) + γ Σ_t P(t|s, a) V(t)) − now(s)."""
        V, used = [Fraction(v) for v in V], [(Fraction(w), h) for w, h in zip(weights, self.h, strict=True) if w]
        if len(V) != self.S or len(now) != self.S:
            raise ValueError("the proof is for another model")
        Q = {}
        for s, a in {(s, a) for s, row in choices for a, _ in row}:
            later = sum(p * V[t] for t, p in self.rows[s, a])
            Q[s, a] = sum(w * Fraction(h[s][a]) for w, h in used) + self.gamma * later
        return [sum(p * Q[s, a] for a, p in row) - Fraction(now[s]) for s, row in choices]

    def bounds(self, steps, weights, V, c):
        """Lower and upper bounds of J of the signal weights·h, for the choices (see `over`) that each step allows."""
        if self.gamma * c >= 1:
            raise ValueError("gamma times the largest row sum reaches 1")
        found, scale = self.over(steps[0], weights, V, V), sum(map(Fraction, self.rho)) / (1 - self.gamma * c)
        return [dot(self.rho, V) + scale * side(0, *found) for side in (min, max)]

    def reach(self, tables):
        """Of each table of a policy the choices in the states that the policy can reach."""
        seen = [s for s in range(self.S) if self.rho[s]]
        for s in seen:  # it grows
            seen += {t for table in tables for a, _ in table[s] for t in self.to[s, a]} - set(seen)
        return [[(s, table[s]) for s in seen] for table in tables]

    def policy_bounds(self, tables, V):
        """Lower and upper bounds of J_h of a policy (see `read_tables`), for V[h] of each signal h."""
        steps = self.reach(tables)
        c = max(sum(p * self.sums[s, a] for a, p in row) for table in steps for s, row in table)
        return [self.bounds(steps, [k == j for j in range(len(self.h))], v, c) for k, v in enumerate(V)]

    def dual_bound(self, reward, lam, V):
        """An upper bound on max_π reward·J_r + Σ_i λ_i (J_gi − b_i), for policies that use `pairs` alone."""
        choices = [[(s, [(a, 1)]) for s, a in self.pairs]] * self.H
        top = self.bounds(choices, [reward, *lam], V, max(self.sums.values()))[1]
        return math.inf if any(x < 0 for x in lam) else top - dot(lam, self.b)


def find_claims(model, weights, parts, said):
    """Every claim of the certificate, in words, and whether it is proven."""
    proof, b, J = said["proof"], said["b"], [said["J_r"], *said["J_g"]]
    bounds = [model.policy_bounds(pi, V) for pi, V in zip(parts, unpack(proof["V"]), strict=True)]
    low, high = ([dot(weights, [part[h][side] for part in bounds]) for h in range(len(model.h))] for side in (0, 1))
    yield "b is that of the model", b == model.b
    yield "J_lower", all(x <= y for x, y in zip(said["J_lower"], low, strict=True))
    yield "J_upper", all(x >= y for x, y in zip(said["J_upper"], high, strict=True))
    ends = zip(said["J_lower"], J, said["J_upper"], strict=True)
    yield "J_r and J_g are between them", all(x <= y <= z for x, y, z in ends)
    yield "slack", said["slack"] == [x - y for x, y in zip(said["J_g"], b, strict=True)]
    met = all(x >= y for x, y in zip(low[1:], model.b, strict=True))
    broken = any(x < y for x, y in zip(high[1:], model.b, strict=True))
    yield f"verdict {said['verdict']}", {"CERTIFIED": met, "VIOLATED": broken, "UNDECIDED": True}[said["verdict"]]
    if said["bound"] is not None:
        top = model.dual_bound(1, said["lam"], unpack(proof["V_lam"]))
        yield "bound on the reward of every policy that meets the limits", top <= said["bound"]
        yield "gap", said["gap"] is None or said["gap"] == said["bound"] - said["J_r"] >= 0
    if "infeasible" in proof:
        top = model.dual_bound(0, proof["infeasible"]["lam"], unpack(proof["infeasible"]["V"]))
        yield "no policy meets the limits", top < 0


def check(model_path, policy_path, certificate_path):
    """The claims of the certificate of a model and a policy, as `find_claims` yields them."""
    said, z, policy = json.loads(Path(certificate_path).read_bytes()), read_npz(model_path), read_npz(policy_path)
    if said.get("evidence") != "exact" or not said.get("proof"):
        raise ValueError(f"{certificate_path}: carries no proof")
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    kind = "horizon" if "horizon" in z else z.get("criterion", "discounted")
    simple = kind == "discounted" and 0 not in said["b"]
    model = Model(z) if simple else importlib.import_module("check_criteria").MODELS[kind](z)
    single = not isinstance(policy["pi"][0][0], list)
    weights, pi = ([1.0], [policy["pi"]]) if single else (policy["weights"], policy["pi"])
    check_distributions("weights", [weights])
    return list(find_claims(model, weights, [model.read_tables(x) for x in pi], said))


def main(words):
    if len(words) not in (1, 3):
        return print(__doc__) or 2
    files = [f"{words[0]}/{name}" for name in ("problem.npz", "policy.npz", "certificate.json")]
    try:
        claims = check(*(words if len(words) == 3 else files))
    except Exception as e:  # a file may hold anything: whatever goes wrong, nothing was shown
        print(f"nothing to check: {e if isinstance(e, ValueError | OSError) else repr(e)}")
        return 2
    print("\n".join(f"{'holds' if good else 'FALSE'}  {what}" for what, good in claims))
    return 0 if all(good for _, good in claims) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
