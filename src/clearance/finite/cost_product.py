"""Build a model whose states contain the costs so far, so that limits on an episode's cost become expected sums.

    (s, c)  --a-->  (s', min(c + cost(s, a), cap)),     signal of a limit: φ(c + cost(s, a)) − φ(c)

Here c is the cost so far, and φ is the function of an episode's cost whose expected value is limited
(`core.tail_limits`). All costs must be whole multiples of one unit, so that only finitely many sums occur. The count
stops at the cap. For a chance limit, an episode at the cap has exceeded the threshold. For a CVaR limit, φ grows from
there on in proportion to the cost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.tail_limits import Chance, CVaR, Rule, split_limits
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture

WHOLE = 1e-9  # how far a cost may lie from a multiple of the unit, in units
FINEST = 10**6  # the largest denominator of a unit
MOST = 2_000_000  # the largest number of states of the product, counted before unreachable states are removed
DENSE = 1_000_000  # the largest number of entries of P for which the product is a dense model


class Counter(NamedTuple):
    """The counter of the cost named `cost` in an episode.

    unit   all costs of a step are whole multiples of this number
    steps  the cost of each step [S, A] in units
    cap    the count, in units, at which counting stops
    """

    cost: str
    unit: float
    steps: NDArray[np.int64]
    cap: int

    def words(self, c: int) -> str:
        return f"{self.cost} {'≥ ' * (c == self.cap)}{c * self.unit:g}"


@dataclass(frozen=True, eq=False)
class CostProduct:
    """A model whose states contain the costs so far (`cmdp`), and the map between its states and those of `model`.

    `cmdp` is an ordinary model that every function of the library accepts.

    model     the original model, without the costs so far
    counters  the costs that are counted
    where     the index of the product state for (s, c_1, …, c_k), −1 if it cannot be reached
    """

    cmdp: CMDP
    model: CMDP
    counters: tuple[Counter, ...]
    where: NDArray[np.int64]

    def state(self, s: int, **cost_so_far: float) -> int:
        """Return the index of the product state for state s of the original model and costs so far, given by name."""
        unknown = set(cost_so_far) ^ {counter.cost for counter in self.counters}
        if unknown:
            names = ", ".join(f"{counter.cost}=…" for counter in self.counters)
            raise InputError(f"state: give the costs so far as {names}; see {min(unknown)!r}")
        at = [min(round(cost_so_far[x.cost] / x.unit), x.cap) for x in self.counters]
        found = int(self.where[(s, *at)])
        if found < 0:
            raise InputError(f"state {s} cannot be reached with {cost_so_far}")
        return found

    @property
    def base_states(self) -> NDArray[np.int64]:
        """The state of the original model for each state of the product [S']."""
        flat, found = self.where.reshape(self.model.S, -1), np.zeros(self.cmdp.S, np.int64)
        s, k = np.nonzero(flat >= 0)
        found[flat[s, k]] = s
        return found

    def lift(self, policy: Any) -> Mixture:
        """Turn a policy of the original model, which does not see the costs so far, into a policy of the product."""
        mixture = Mixture.of(policy)
        return Mixture(mixture.weights, mixture.pi[..., self.base_states, :])

    def actor(self, policy: Any, rng: np.random.Generator) -> CostActor:
        """Return an object that acts in the original model by a policy of the product, for one episode.

        The object counts the costs itself. `policy` is a table or a Mixture.
        """
        return CostActor(self, Mixture.of(policy).reset(rng))


class CostActor:
    """A policy of the product that acts in the original model. Each call of `act(s)` also counts the action's cost."""

    def __init__(self, product: CostProduct, actor: Any) -> None:
        self.product, self.actor, self.counts = product, actor, [0] * len(product.counters)

    def act(self, s: int) -> int:
        """Return an action at state s of the original model, and add its cost to the costs so far."""
        a = int(self.actor.act(int(self.product.where[(s, *self.counts)])))
        self.counts = [
            min(c + int(x.steps[s, a]), x.cap) for c, x in zip(self.counts, self.product.counters, strict=True)
        ]
        return a

    @property
    def cost_so_far(self) -> dict[str, float]:
        """The costs counted so far, by name; a cost that has reached its cap may be larger."""
        return {x.cost: c * x.unit for c, x in zip(self.counts, self.product.counters, strict=True)}


def cost_product(model: CMDP, limits: Mapping[str, Any]) -> CostProduct:
    """Return the model whose states contain the costs so far, with limits on the cost of single episodes.

    limits  one limit or several for each cost, by name, e.g. {"energy": Chance(…), "wear": [CVaR(…, at=8), 5.0]}.
            A number limits the mean. Constraints that are not named keep their limits on the mean

    CVaR(level=α, at_most=m, at=ν) becomes the constraint E(C − ν)₊/(1 − α) ≤ m − ν on the episode's cost C. The name of
    this constraint contains ν.
    """
    asked = _asked(model, limits)
    counters = tuple(_counter(model, name, [rule for x, rule in asked if x == name and isinstance(rule, Rule)])
                     for name in dict.fromkeys(x for x, rule in asked if isinstance(rule, Rule)))  # fmt: skip
    sizes = [x.cap + 1 for x in counters]
    if model.S * math.prod(sizes) > MOST:
        how = "choose a coarser unit of cost, or a smaller threshold"
        raise InputError(f"limits: {model.S * math.prod(sizes):,} states with the costs so far are too many: {how}")
    return _build(model, asked, counters, sizes)


def _asked(model: CMDP, limits: Mapping[str, Any]) -> list[tuple[str, float | Rule]]:
    """Return a list of pairs (constraint, limit) that covers all constraints of the model.

    A constraint without a new limit keeps its old limit. A constraint with several new limits has one pair for each.
    Raise InputError if a key of `limits` is not the name of a cost.
    """
    if not (model.kind == "total" or (model.kind == "horizon" and model.gamma == 1)):
        raise InputError("limits on single episodes are on undiscounted sums with an end: give horizon=H, or "
                         "criterion='total'")  # fmt: skip
    costs = [name for name, cost in zip(model.names, model.costs, strict=True) if cost]
    unknown = [name for name in limits if name not in costs]
    if unknown:
        raise InputError(f"limits: {unknown[0]!r} is no cost; there are: {', '.join(costs) or 'none'}")
    kept = {name: -b if cost else b for name, b, cost in zip(model.names, model.b.tolist(), model.costs, strict=True)}
    return split_limits({name: limits.get(name, kept[name]) for name in model.names})


def _counter(model: CMDP, name: str, rules: list[Rule]) -> Counter:
    """Return the `Counter` of the cost `name`: its unit, the cost of each step in units, and the cap.

    rules  the `Chance` and `CVaR` limits on this cost; the cap is large enough to decide all of them
    """
    refuse_means(model, name, rules[0])
    cost = np.where(model.available, -model.h[1 + model.names.index(name)], 0.0)
    if cost.min() < 0:
        raise InputError(f"limits: {name} has negative costs; sums so far are counted upwards: add a constant to it")
    unit = find_unit(name, cost)
    steps = np.rint(cost / unit).astype(np.int64)
    return Counter(name, unit, steps, max(_cap(name, rule, unit) for rule in rules))


def refuse_means(model: CMDP, name: str, rule: Rule) -> None:
    """Raise InputError if the model has only the mean of a step's cost `name`, which does not give the limit `rule`."""
    mask = None if model.averaged is None else model.averaged[1 + model.names.index(name)] & model.available
    if mask is None or not mask.any():
        return
    s, a = (int(x) for x in np.argwhere(mask)[0])
    state = f"state {s}" if model.states is None else repr(model.states[s])
    action = f"action {a}" if model.actions is None else repr(model.actions[a])
    why = f"the cost of {state}, {action} depends on what happens next, and the model keeps only its mean"
    raise InputError(f"{rule.label(name)}: {why}: put what happened into the state first")


def _cap(name: str, rule: Rule, unit: float) -> int:
    """Return the smallest count at which counting may stop, because the limit treats all larger counts alike.

    rule  the `Chance` or `CVaR` limit on the cost `name`
    unit  the cost that one count stands for
    """
    if isinstance(rule, Chance):
        return max(math.floor(rule.above / unit + WHOLE) + 1, 0)
    if rule.at is None:
        raise InputError(f"limits: {rule.words(name)} needs a level: give at=ν, or use limit_episodes, which finds it")
    return max(math.ceil(rule.at / unit - WHOLE), 0)


def find_unit(name: str, cost: Array) -> float:
    """Return the largest number such that every entry of `cost` [S, A] is a whole multiple of it.

    `name` is the name of the cost, used in error messages.
    """
    parts = [Fraction(float(x)).limit_denominator(FINEST) for x in np.unique(cost[cost > 0])]
    if not parts:
        return 1.0
    bottom = math.lcm(*(x.denominator for x in parts))
    unit = Fraction(math.gcd(*(int(x * bottom) for x in parts)), bottom)
    counts = cost / float(unit)
    if np.max(np.abs(counts - np.rint(counts))) > WHOLE * max(1.0, counts.max()) or counts.max() > MOST:
        raise InputError(f"limits: the costs {name} are no multiples of one unit: round them, e.g. to whole numbers")
    return float(unit)


def signal(rule: Rule, counter: Counter, c: NDArray[np.int64], k: NDArray[np.int64]) -> Array:
    """Return φ(c + k) − φ(c), the change of φ in one step, where E φ is what `rule` limits.

    c is the count before the step and k the cost of the step, both in units of the `counter`. A count at the cap may
    stand for any larger count.
    """
    if isinstance(rule, Chance):
        first = math.floor(rule.above / counter.unit + WHOLE) + 1  # the least count above
        return ((c < first) & (c + k >= first)).astype(float)
    assert isinstance(rule, CVaR) and rule.at is not None
    nu = rule.at / counter.unit
    excess = np.where(c == counter.cap, k, np.maximum(c + k - nu, 0.0) - np.maximum(c - nu, 0.0))
    return excess * counter.unit / (1 - rule.level)


def _build(model: CMDP, asked: list[Any], counters: tuple[Counter, ...], sizes: list[int]) -> CostProduct:
    counts = np.array(list(itertools.product(*(range(n) for n in sizes))), np.int64).reshape(-1, len(sizes))  # [K, k]
    K, S, A = len(counts), model.S, model.A
    steps = np.stack([x.steps for x in counters], -1)  # [S, A, k]
    after = np.minimum(counts[:, None, None] + steps, np.array(sizes) - 1)  # [K, S, A, k]
    follow = np.asarray(np.ravel_multi_index(tuple(np.moveaxis(after, -1, 0)), sizes))  # [K, S, A]
    P, starts = _transitions(sparse.csr_array(model.rows), follow, K, S, A), np.flatnonzero(model.rho)
    reached = _reachable(P, starts * K, A)
    s, k = np.divmod(reached, K)
    where = np.full(S * K, -1, np.int64)
    where[reached] = np.arange(len(reached))
    rho = np.zeros(len(reached))
    rho[where[starts * K]] = model.rho[starts]
    parts = [_constraint(model, name, rule, counters, s, counts[k]) for name, rule in asked]
    names, b, g = zip(*parts, strict=True)
    kept = P[(reached[:, None] * A + np.arange(A)).ravel()][:, reached]
    dense = len(reached) ** 2 * A <= DENSE
    found = CMDP(
        kept.toarray().reshape(len(reached), A, len(reached)) if dense else kept,
        model.h[0][s],
        np.stack(g),
        np.array(b),
        rho=rho,
        names=names,
        available=model.available[s],
        states=[_words(model, counters, *x) for x in zip(s, counts[k], strict=True)],
        actions=model.actions,
        order="state",
        criterion="total",
        horizon=model.horizon,
    )
    object.__setattr__(found, "costs", tuple(model.costs[model.names.index(name)] for name, _ in asked))
    if model.averaged is not None:
        known = [0, *(1 + model.names.index(name) for name, _ in asked)]
        limited = np.array([False, *(isinstance(rule, Rule) for _, rule in asked)])
        found = found.with_averaged(model.averaged[known][:, s] & ~limited[:, None, None])
    return CostProduct(found, model, counters, where.reshape(S, *sizes))


def _constraint(
    model: CMDP, name: str, rule: float | Rule, counters: tuple[Counter, ...], s: Any, counts: Any
) -> tuple[str, float, Array]:
    """Return (name, b, utility [S', A]) of one constraint in the product.

    name, rule  the constraint of the model, and its limit: a number, or a `Chance` or `CVaR`
    s, counts   the model's state [S'] and the counts [S', k] of each product state; k is the number of `counters`
    """
    j = model.names.index(name)
    if not isinstance(rule, Rule):
        return name, -rule if model.costs[j] else rule, model.h[1 + j][s]
    i = [x.cost for x in counters].index(name)
    g = -signal(rule, counters[i], counts[:, i][:, None], counters[i].steps[s])
    label = rule.label(name)
    return label if rule.offset == 0 else f"{label} − {rule.offset:g}", rule.offset - rule.at_most, g


def _transitions(rows: Any, follow: NDArray[np.int64], K: int, S: int, A: int) -> Any:
    """Return P of the whole product as CSR [(S·K)·A, S·K], with states s·K + k.

    k is the index of one of the K combinations of counts. `rows` is P of the model; `follow` [K, S, A] is the index of
    the combination after a step.
    """
    width = np.diff(rows.indptr)
    pair = np.repeat(np.arange(S * A), width)  # of each entry of the model
    s, a = np.divmod(pair, A)
    row = (s[None] * K + np.arange(K)[:, None]) * A + a[None]
    column = rows.indices[None] * K + follow[:, s, a]
    data = np.broadcast_to(rows.data, row.shape)
    return sparse.csr_array((data.ravel(), (row.ravel(), column.ravel())), shape=(S * K * A, S * K))


def _reachable(P: Any, first: NDArray[np.int64], A: int) -> NDArray[np.int64]:
    """Return the indices of the product states that some policy can reach from the states `first`, ascending."""
    seen = np.zeros(P.shape[1], bool)
    seen[first], new = True, first
    while len(new):
        rows = P[(new[:, None] * A + np.arange(A)).ravel()]
        found = np.unique(rows.indices[rows.data > 0])
        new = found[~seen[found]]
        seen[new] = True
    return np.flatnonzero(seen)


def _words(model: CMDP, counters: tuple[Counter, ...], s: int, counts: NDArray[np.int64]) -> str:
    state = f"state {s}" if model.states is None else model.states[s]
    return ", ".join([state, *(x.words(int(c)) for x, c in zip(counters, counts, strict=True))])
