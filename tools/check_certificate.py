"""Check an exact certificate without trusting `clearance`: standard library and rational arithmetic only.

    python tools/check_certificate.py RUN                       a folder with problem.npz, policy.npz, certificate.json
    python tools/check_certificate.py MODEL POLICY CERTIFICATE  the three files

All numbers are taken as stored, as fractions. The proof has vectors V for each signal h, which enclose J of a policy:

    discounted  δ = h_π + γ P_π V − V:  ρ·V + min(0, min δ)/(1 − γc)  ≤  J  ≤  ρ·V + max(0, max δ)/(1 − γc)
    horizon     the same with the V of the next step and δ of each step, which add up with the weights (γc)^t
    average     g ≤ P_π g and g + v ≤ h_π + P_π v:  ρ·g ≤ J;  with ≥ from above
    total       L ≤ h_π + P_π L, U ≥ h_π + P_π U and w ≥ 1 + P_π w ≥ 0 until a run has no more signals:  ρ·L ≤ J ≤ ρ·U

c is the largest row sum of P_π; for averages and totals rows are divided by their sums. With every pair in place of π
and r + λ·g in place of h, the same bounds the reward of every policy that meets the limits; without r, if negative, no
policy meets them. Pairs that may lead to a cost with the limit 0, or (total) to no end, are left out there. Exit
status: 0 the certificate holds, 1 it does not, 2 there is nothing to check (no proof), or a file cannot be read.
"""

import json
import sys
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from certificate_files import check_distributions, dot, read_npz, read_policy, unpack

FILES = ("problem.npz", "policy.npz", "certificate.json")
LOST = Fraction(10**400)  # in place of infinity


def stay(steps, goal=None):
    """Of steps {(s, a): next states}, those that lead to states of such steps alone; with a goal, also only to states
    from which it can be reached.
    """
    at, more = {s for s, _ in steps} if goal is None else set(goal), True
    while goal is not None and more:
        at |= (more := {s for (s, _), to in steps.items() if s not in at and to & at})
    kept = {(s, a): to for (s, a), to in steps.items() if s in at and to <= at}
    return kept if len(kept) == len(steps) else stay(kept, goal)


class Model:
    """A finite model; rows[s, a] lists (t, P(t|s, a)) of the pairs that exist, to[s, a] has their next states."""

    def __init__(self, path):
        z = read_npz(path)
        g, b, S, A = z.get("g", []), z.get("b", 0.0), len(z["r"]), len(z["r"][0])
        self.h, self.gamma = [z["r"], *(g if not g or isinstance(g[0][0], list) else [g])], Fraction(z["gamma"])
        self.S, self.A, self.b = S, A, b if isinstance(b, list) else [b] * (len(self.h) - 1)
        self.kind, self.H = "horizon" if "horizon" in z else z.get("criterion", "discounted"), z.get("horizon", 1)
        self.divide, self.rho = self.kind in ("average", "total"), z.get("rho", [1 / S] * S)
        found = {(s, a): self.read_row(z, s, a) for s in range(S) for a in range(A)}
        rows = {x: row for x, row in found.items() if row}
        check_distributions("rho", [self.rho])
        check_distributions("P", [[p for _, p in row] for row in rows.values()])
        self.sums = {x: sum(p for _, p in row) for x, row in rows.items()}
        self.to = {x: {t for t, _ in row} for x, row in rows.items()}
        self.rows = {x: [(t, p / self.sums[x] if self.divide else p) for t, p in row] for x, row in rows.items()}
        if {s for s, _ in rows} != set(range(S)) or not 0 < self.gamma < (1 if self.kind == "discounted" else 2):
            raise ValueError("a state has no action, or gamma does not fit the criterion")

    def read_row(self, z, s, a):
        if "available" in z and not z["available"][s][a]:
            return []
        if "P" in z:
            return [(t, Fraction(p)) for t, p in enumerate(z["P"][s][a]) if p]
        begin, end = z["P_indptr"][s * self.A + a : s * self.A + a + 2]
        return [(z["P_indices"][k], Fraction(z["P_data"][k])) for k in range(begin, end) if z["P_data"][k]]

    def over(self, choices, weights, V, now):
        """Of each choice (s, [(a, π(a|s)), …]): Σ_a π(a|s) (weights·h(s, a) + γ Σ_t P(t|s, a) V(t)) − now(s)."""
        V, used = [Fraction(v) for v in V], [(Fraction(w), h) for w, h in zip(weights, self.h, strict=True) if w]
        if len(V) != self.S or len(now) != self.S:
            raise ValueError("the proof is for another model")
        Q = {}
        for s, a in {(s, a) for s, row in choices for a, _ in row}:
            Q[s, a] = sum(w * Fraction(h[s][a]) for w, h in used) + self.gamma * sum(
                p * V[t] for t, p in self.rows[s, a]
            )
        return [sum(p * Q[s, a] for a, p in row) - Fraction(now[s]) for s, row in choices]

    def bounds(self, steps, weights, V, c):
        """Lower and upper bounds of J of the signal weights·h, for the choices (see `over`) that each step allows."""
        if not self.divide:
            after, V = (V, V) if self.kind == "horizon" else ([V, V], [V])
            after = [*after[1:], [0] * self.S][: self.H]
            if self.kind == "discounted" and self.gamma * c >= 1:
                raise ValueError("gamma times the largest row sum reaches 1")
            found = [[0, *self.over(x, weights, y, v)] for x, y, v in zip(steps, after, V, strict=True)]
            scale = sum(map(Fraction, self.rho)) / (1 - self.gamma * c if self.kind == "discounted" else 1)
            sums = [sum(side(x) * (self.gamma * c) ** t for t, x in enumerate(found)) for side in (min, max)]
            return [dot(self.rho, V[0]) + scale * x for x in sums]
        ends, choices = self.quiet(steps[0], self.h) if self.kind == "total" else set(), steps[0]
        moving, none, found = [x for x in choices if x[0] not in ends], [0] * len(self.h), []
        for sign, side in ((-1, V[:2]), (1, V[-2:])) if self.kind == "average" else ((-1, V[:1]), (1, V[1:2])):
            g = side[0]
            if self.kind == "total":
                wrong = self.over(choices, weights, g, g) + [-Fraction(g[s]) for s in ends]
            else:
                both = [Fraction(x) + Fraction(y) for x, y in zip(*side, strict=True)]
                wrong = self.over(choices, none, g, g) + self.over(choices, weights, side[1], both)
            found.append(dot(self.rho, g) if all(sign * x <= 0 for x in wrong) else sign * LOST)
        if self.kind == "total" and V[2] is not None:  # of one policy, which must end
            late = self.over(moving, none, V[2], [Fraction(x) - 1 for x in V[2]]) + [-x for x in V[2]]
            return found if max(late) <= 0 else [-LOST, LOST]
        return found

    def next_states(self, choices):
        return {(s, i): {t for a, _ in row for t in self.to[s, a]} for i, (s, row) in enumerate(choices)}

    def quiet(self, choices, signals):
        """The states at which choices without these signals lead to such states alone: there a run has ended."""
        silent = [(s, row) for s, row in choices if not any(h[s][a] for h in signals for a, _ in row)]
        return {s for s, _ in stay(self.next_states(silent))}

    def is_silent(self, choices, k):
        """Whether no run by these choices meets signal k; of averages, whether none meets it for ever."""
        ends, seen = self.quiet(choices, [self.h[k]]), {s for s, _ in choices}
        return seen == ({s for s, _ in stay(self.next_states(choices), ends)} if self.kind == "average" else ends)

    def policy_bounds(self, tables, V):
        """Lower and upper bounds of J_h of a policy, one table {s: [(a, π(a|s)), …]} per step, for V[h] of each h."""
        seen = [s for s in range(self.S) if self.rho[s]]
        for s in seen:  # it grows: every state that the policy can reach
            seen += {t for table in tables for a, _ in table[s] for t in self.to[s, a]} - set(seen)
        steps = [[(s, table[s]) for s in seen] for table in tables]
        c = max(sum(p * self.sums[s, a] for a, p in row) for table in steps for s, row in table)
        found = [self.bounds(steps, [k == j for j in range(len(self.h))], v, c) for k, v in enumerate(V)]
        every = [choice for table in steps for choice in table]
        return [[0, 0] if self.is_silent(every, k) else x for k, x in enumerate(found)]

    def dual_bound(self, reward, lam, V):
        """An upper bound on max_π reward·J_r + Σ_i λ_i (J_gi − b_i)."""
        pairs, zero = self.to, [g for g, b in zip(self.h[1:], self.b, strict=True) if b == 0 >= max(map(max, g))]
        if self.kind in ("discounted", "total"):
            pairs = stay({(s, a): to for (s, a), to in pairs.items() if not any(g[s][a] for g in zero)})
        if self.kind == "total":
            pairs, V = stay(pairs, self.quiet([(s, [(a, 1)]) for s, a in pairs], self.h)), [V, V, None]
        if any(p for s, p in enumerate(self.rho) if s not in {s for s, _ in pairs}):
            return -LOST  # no policy avoids a cost with the limit 0
        choices = [[(s, [(a, 1)]) for s, a in pairs]] * self.H
        top = self.bounds(choices, [reward, *lam], V, max(self.sums.values()))[1]
        return LOST if any(x < 0 for x in lam) else top - dot(lam, self.b)


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
            raise ValueError(f"{paths[2]}: carries no proof")
        model = Model(paths[0])
        claims = list(find_claims(model, *read_policy(paths[1], model), said))
    except Exception as e:  # a file may hold anything: whatever goes wrong, nothing was shown
        print(f"nothing to check: {e if isinstance(e, ValueError | OSError) else repr(e)}")
        return 2
    print("\n".join(f"{'holds' if good else 'FALSE'}  {what}" for what, good in claims))
    return 0 if all(good for _, good in claims) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
