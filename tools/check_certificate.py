"""Check an exact certificate without trusting `clearance`: standard library and rational arithmetic only.

    python tools/check_certificate.py RUN                       a folder with problem.npz, policy.npz, certificate.json
    python tools/check_certificate.py MODEL POLICY CERTIFICATE  the three files

All numbers are taken as stored, as fractions. With V from the proof, h a signal and c the largest row sum of P_π,

    δ = h_π + γ P_π V − V     V + min(0, min δ)/(1 − γc)  ≤  V_π  ≤  V + max(0, max δ)/(1 − γc)

so J = ρ·V_π is enclosed. Likewise δ = max_a (r + λ·g + γ P V) − V bounds the reward of every policy that meets the
limits, and the same without r, if it is negative, proves that no policy does. Exit status: 0 the certificate holds,
1 it does not, 2 there is nothing to check (no proof, as in files of version 0.1), or a file cannot be read.
"""

import array
import ast
import base64
import json
import math
import sys
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

FILES = ("problem.npz", "policy.npz", "certificate.json")
TYPES = {"f8": "d", "f4": "f", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u1": "B", "b1": "B"}
SUM = Fraction(1, 10**13)  # how far a distribution may be from 1: clearance divides away what is beyond rounding


class Unreadable(Exception):
    """There is nothing to check."""


def read_npz(path):
    """The numeric arrays of an .npz file, as lists of lists."""
    arrays = {}
    with zipfile.ZipFile(path) as z:
        for name in z.namelist():
            raw = z.read(name)
            start = 10 if raw[6] == 1 else 12
            end = start + int.from_bytes(raw[8:start], "little")
            header = ast.literal_eval(raw[start:end].decode())
            order, kind = header["descr"][0], header["descr"][1:]
            if kind in TYPES:
                data = array.array(TYPES[kind], raw[end:])
                if (order == ">") == (sys.byteorder == "little") and data.itemsize > 1:
                    data.byteswap()
                arrays[name.removesuffix(".npy")] = nest(data, header["shape"], header["fortran_order"])
    return arrays


def nest(data, shape, fortran=False) -> Any:
    """Numbers in the order of a file as lists of lists; the one number of an empty shape as itself."""
    if len(data) != math.prod(shape):
        raise Unreadable(f"{len(data)} numbers for the shape {shape}")
    if not shape:
        return data[0]
    if len(shape) == 1:
        return list(data)
    n = shape[0]
    part = len(data) // max(n, 1)
    return [nest(data[i::n] if fortran else data[i * part : (i + 1) * part], shape[1:], fortran) for i in range(n)]


def unpack(x) -> Any:
    """An array of the proof."""
    if "fractions" in x:
        return nest([Fraction(*(int(n, 16) for n in text.split("/"))) for text in x["fractions"]], x["shape"])
    data = array.array("d", base64.b64decode(x["float64"], validate=True))
    if sys.byteorder == "big":
        data.byteswap()
    return nest(data, x["shape"])


def dot(x, y):
    return sum((Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True)), Fraction(0))


def check_distributions(name, rows):
    for row in rows:
        if min(row, default=-1) < 0 or abs(sum(map(Fraction, row)) - 1) > SUM:
            raise Unreadable(f"{name}: probabilities are negative or do not sum to 1; save it with clearance first")


class Model:
    """A finite model; rows[s][a] lists (t, P(t|s, a)) and is empty where state s has no action a."""

    def __init__(self, path):
        z = read_npz(path)
        g, b = z.get("g", []), z.get("b", 0.0)
        self.h, self.gamma = [z["r"], *(g if not g or isinstance(g[0][0], list) else [g])], Fraction(z["gamma"])
        self.S, self.A, self.b = len(z["r"]), len(z["r"][0]), b if isinstance(b, list) else [b] * (len(self.h) - 1)
        self.rho = z.get("rho", [1 / self.S] * self.S)
        self.rows = [[self.read_row(z, s, a) for a in range(self.A)] for s in range(self.S)]
        self.pairs = [(s, a) for s in range(self.S) for a in range(self.A) if self.rows[s][a]]
        self.sums = [[sum(p for _, p in row) for row in rows] for rows in self.rows]
        check_distributions("rho", [self.rho])
        check_distributions("P", [[p for _, p in self.rows[s][a]] for s, a in self.pairs])
        if "horizon" in z or {s for s, _ in self.pairs} != set(range(self.S)) or not 0 < self.gamma < 1:
            raise Unreadable("a state has no action, or this is not a discounted sum without horizon")

    def read_row(self, z, s, a):
        if "available" in z and not z["available"][s][a]:
            return []
        if "P" in z:
            return [(t, Fraction(p)) for t, p in enumerate(z["P"][s][a]) if p]
        begin, end = z["P_indptr"][s * self.A + a : s * self.A + a + 2]
        return [(z["P_indices"][k], Fraction(z["P_data"][k])) for k in range(begin, end)]

    def step(self, weights, V):
        """For every pair (s, a): Σ_h weights_h h(s, a) + γ Σ_t P(t|s, a) V(t)."""
        V, used = [Fraction(v) for v in V], [(Fraction(w), h) for w, h in zip(weights, self.h, strict=True) if w]
        if len(V) != self.S:
            raise Unreadable("the proof is for another model")
        return {
            (s, a): sum(w * Fraction(h[s][a]) for w, h in used) + self.gamma * sum(p * V[t] for t, p in self.rows[s][a])
            for s, a in self.pairs
        }

    def value(self, V, residual, c):
        """ρ·V, and what this residual in every step adds to it at most, with row sums up to c."""
        if self.gamma * c >= 1:
            raise Unreadable("gamma times the largest row sum reaches 1")
        return dot(self.rho, V) + residual / (1 - self.gamma * c) * sum(map(Fraction, self.rho))

    def policy_bounds(self, pi, V):
        """Lower and upper bounds of J_h of the policy pi[s] = [(a, π(a|s)), …], for V[h] of every signal h."""
        c, found = max(sum(p * self.sums[s][a] for a, p in row) for s, row in enumerate(pi)), []
        for k, v in enumerate(V):
            Q = self.step([k == j for j in range(len(self.h))], v)
            delta = [sum(p * Q[s, a] for a, p in row) - Fraction(v[s]) for s, row in enumerate(pi)]
            found.append([self.value(v, min(0, *delta), c), self.value(v, max(0, *delta), c)])
        return found

    def dual_bound(self, reward, lam, V):
        """An upper bound on max_π reward·J_r + Σ_i λ_i (J_gi − b_i)."""
        if any(x < 0 for x in lam):
            return math.inf
        worst = max(q - Fraction(V[s]) for (s, _), q in self.step([reward, *lam], V).items())
        return self.value(V, max(0, worst), max(self.sums[s][a] for s, a in self.pairs)) - dot(lam, self.b)


def read_policy(path, model):
    """Weights, and of every component the actions [(a, π(a|s)), …] for each state s."""
    z = read_npz(path)
    tables, weights = (z["pi"], z["weights"]) if isinstance(z["pi"][0][0], list) else ([z["pi"]], [1.0])
    if any(len(table) != model.S or {len(row) for row in table} != {model.A} for table in tables):
        raise Unreadable(f"{path}: the policy is for another model")
    check_distributions("weights", [weights])
    check_distributions("pi", [row for table in tables for row in table])
    parts = [[[(a, Fraction(p)) for a, p in enumerate(row) if p] for row in table] for table in tables]
    if any(not model.rows[s][a] for part in parts for s, row in enumerate(part) for a, _ in row):
        raise Unreadable(f"{path}: the policy takes an action that its state does not have")
    return weights, parts


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


def main(words):
    if len(words) not in (1, 3):
        print(__doc__)
        return 2
    paths = words if len(words) == 3 else [Path(words[0]) / name for name in FILES]
    try:
        said = json.loads(Path(paths[2]).read_bytes())
        if said.get("evidence") != "exact" or not said.get("proof"):
            raise Unreadable(f"{paths[2]}: carries no proof")
        model = Model(paths[0])
        claims = list(find_claims(model, *read_policy(paths[1], model), said))
    except Exception as e:  # a file may hold anything: whatever goes wrong, nothing was shown
        print(f"nothing to check: {e if isinstance(e, Unreadable | OSError) else repr(e)}")
        return 2
    print("\n".join(f"{'holds' if good else 'FALSE'}  {what}" for what, good in claims))
    return 0 if all(good for _, good in claims) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
