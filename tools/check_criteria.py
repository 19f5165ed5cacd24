"""Models whose certificates need more than `check_certificate.py` knows: limits of 0, horizons, averages and totals.

Nothing of `clearance` is used, as there. The proof has vectors V of each signal h, which enclose J of a policy:

    discounted  as in check_certificate.py
    horizon     the same with the V of the next step and δ of each step, which add up with the weights (γc)^t
    average     g ≤ P_π g and g + v ≤ h_π + P_π v:  ρ·g ≤ J;  with ≥ from above
    total       L ≤ h_π + P_π L, U ≥ h_π + P_π U and w ≥ 1 + P_π w ≥ 0 until a run has no more signals:  ρ·L ≤ J ≤ ρ·U

For averages and totals rows are divided by their sums. A signal that no run meets is 0 whatever V. Pairs that may lead
to a cost with the limit 0, or (total) to no end, are left out where a bound covers every policy.
"""

from fractions import Fraction

from check_certificate import Model, check_distributions, dot

LOST = Fraction(10**1000)  # in place of infinity: larger than any double, even times the least weight of a mixture


def stay(steps, goal=None):
    """Of steps {(s, a): next states}, those that lead to states of such steps alone; with a goal, also only to states
    from which it can be reached.
    """
    at, more = {s for s, _ in steps} if goal is None else set(goal), True
    while goal is not None and more:
        at |= (more := {s for (s, _), to in steps.items() if s not in at and to & at})
    kept = {(s, a): to for (s, a), to in steps.items() if s in at and to <= at}
    return kept if len(kept) == len(steps) else stay(kept, goal)


class Discounted(Model):
    def __init__(self, z):
        super().__init__(z)
        self.pairs = self.allowed()

    def next_states(self, choices):
        return {(s, i): {t for a, _ in row for t in self.to[s, a]} for i, (s, row) in enumerate(choices)}

    def quiet(self, choices, signals):
        """The states at which choices without these signals lead to such states alone: there a run has ended."""
        silent = [(s, row) for s, row in choices if not any(h[s][a] for h in signals for a, _ in row)]
        return {s for s, _ in stay(self.next_states(silent))}

    def is_silent(self, choices, k):
        """Whether no run by these choices meets signal k."""
        return {s for s, _ in choices} == self.quiet(choices, [self.h[k]])

    def policy_bounds(self, tables, V):
        every = [choice for step in self.reach(tables) for choice in step]
        found = super().policy_bounds(tables, V)
        return [[Fraction(0)] * 2 if self.is_silent(every, k) else x for k, x in enumerate(found)]

    def allowed(self):
        """The pairs that a policy may use if it meets the limits of 0."""
        zero = [g for g, b in zip(self.h[1:], self.b, strict=True) if b == 0 >= max(map(max, g))]
        return stay({(s, a): to for (s, a), to in self.to.items() if not any(g[s][a] for g in zero)})

    def dual_bound(self, reward, lam, V):
        if any(p for s, p in enumerate(self.rho) if s not in {s for s, _ in self.pairs}):
            return -LOST  # no policy avoids a cost with the limit 0
        return super().dual_bound(reward, lam, V)


class Horizon(Discounted):
    gamma_most = 2

    def __init__(self, z):
        self.H = z["horizon"]
        super().__init__(z)

    def allowed(self):
        return self.to

    def bounds(self, steps, weights, V, c):
        after = [*V[1:], [0] * self.S]
        found = [[0, *self.over(x, weights, y, v)] for x, y, v in zip(steps, after, V, strict=True)]
        sums = [sum(side(x) * (self.gamma * c) ** t for t, x in enumerate(found)) for side in (min, max)]
        return [dot(self.rho, V[0]) + sum(map(Fraction, self.rho)) * x for x in sums]


class Undiscounted(Discounted):
    gamma_most = 2

    def read_row(self, z, s, a):
        row = super().read_row(z, s, a)
        total = sum(p for _, p in row)
        check_distributions("P", [[p for _, p in row]] if row else [])
        return [(t, p / total) for t, p in row]

    def read_tables(self, pi):
        tables = super().read_tables(pi)
        return [{s: [(a, p / sum(q for _, q in row)) for a, p in row] for s, row in x.items()} for x in tables]


class Average(Undiscounted):
    def is_silent(self, choices, k):
        """Whether no run by these choices meets signal k for ever."""
        ends = self.quiet(choices, [self.h[k]])
        return {s for s, _ in choices} == {s for s, _ in stay(self.next_states(choices), ends)}

    def allowed(self):
        return self.to  # a long-run mean of 0 allows costs on the way

    def bounds(self, steps, weights, V, c):
        found, none = [], [0] * len(self.h)
        for sign, (g, v) in ((-1, V[:2]), (1, V[-2:])):
            both = [Fraction(x) + Fraction(y) for x, y in zip(g, v, strict=True)]
            wrong = self.over(steps[0], none, g, g) + self.over(steps[0], weights, v, both)
            found.append(dot(self.rho, g) if all(sign * x <= 0 for x in wrong) else sign * LOST)
        return found


class Total(Undiscounted):
    def allowed(self):
        """Without pairs from which a run may never end: there it earns nothing, or has no total."""
        pairs = super().allowed()
        return stay(pairs, self.quiet([(s, [(a, 1)]) for s, a in pairs], self.h))

    def dual_bound(self, reward, lam, V):
        return super().dual_bound(reward, lam, [V, V, None])

    def bounds(self, steps, weights, V, c):
        lower, upper, w = V
        choices, none, found = steps[0], [0] * len(self.h), []
        ends = self.quiet(choices, self.h)
        for sign, g in ((-1, lower), (1, upper)):
            wrong = self.over(choices, weights, g, g) + [-Fraction(g[s]) for s in ends]
            found.append(dot(self.rho, g) if all(sign * x <= 0 for x in wrong) else sign * LOST)
        if w is None:  # of every policy, by pairs that end
            return found
        moving = [(s, row) for s, row in choices if s not in ends]
        late = self.over(moving, none, w, [Fraction(x) - 1 for x in w]) + [-x for x in w]
        return found if max(late) <= 0 else [-LOST, LOST]


MODELS = {"discounted": Discounted, "horizon": Horizon, "average": Average, "total": Total}
