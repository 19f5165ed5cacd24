"""Search for false certificates: random environments, rules and statements whose true J is known.

    python benchmarks/adversary.py certified --trials 20000     policies that break a limit: none may be CERTIFIED
    python benchmarks/adversary.py violated --trials 20000      policies that keep every limit: none may be VIOLATED
    python benchmarks/adversary.py infeasible --trials 4000     feasible models: none may be called infeasible
    python benchmarks/adversary.py merge a.json b.json          what several processes wrote with --first and --write

A problem is a chain of a few states with random costs and random ends. Every rule is a table π_t(a | s), which gives
the true J by summation, and a way to draw from it that users have: a generator of their own, the global one, a counter
of steps, a network. The limit lies between 0.1 % and 20 % on the wrong side of J. A false verdict may occur with
probability δ; because a pooled rate would hide a kind that always lies, every kind of environment, rule, statement and
cost is judged by itself: a binomial test of `rate ≤ δ` each, with Holm's correction.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray
from scipy import stats

import clearance as cl
from clearance.simulator.policies.network_policy import Normaliser

DELTA = 0.01
LONGEST = 6  # the longest horizon
Array = NDArray[np.float64]


# ---------------------------------------------------------------------------------------------------- chains


class Chain(NamedTuple):
    """P [S, A, S], start rho [S], probability to end after a step [S, A], and the cost of a step: `size` [I, S, A] with
    probability `chance`, spread as `law` says.
    """

    P: Array
    rho: Array
    end: Array
    size: Array
    chance: Array
    law: str

    @property
    def mean(self) -> Array:
        return self.size * self.chance


def draw_chain(rng: np.random.Generator, I: int, law: str) -> Chain:
    S, A = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    chance = np.ones((I, S, A))
    if law == "Bernoulli":
        chance = rng.uniform(0.1, 0.9, (I, S, A))
    elif law == "rare":
        chance = 10 ** rng.uniform(-2.5, -1, (I, S, A))
    scale = 10.0 ** rng.integers(-3, 4)
    end = rng.choice([0.0, 0.3], p=[0.6, 0.4]) * rng.random((S, A))
    size = scale * rng.uniform(0.2, 1.0, (I, S, A))
    return Chain(rng.dirichlet(np.ones(S), (S, A)), rng.dirichlet(np.ones(S)), end, size, chance, law)


def draw_cost(chain: Chain, rng: np.random.Generator, s: int, a: int) -> Array:
    size = chain.size[:, s, a]
    if chain.law == "uniform":
        return size * rng.uniform(0.0, 2.0, len(size))
    return np.where(rng.random(len(size)) < chain.chance[:, s, a], size, 0.0)


def true_costs(chain: Chain, pi: Array, gamma: float, horizon: int | None) -> Array:
    """J of the costs [I] for π_t, pi [T, S, A], whose last row holds for all later steps."""
    d, J, t = chain.rho, np.zeros(len(chain.size)), 0
    while horizon is None or t < horizon:
        now = d[:, None] * pi[min(t, len(pi) - 1)]
        J += gamma**t * np.einsum("sa,isa->i", now, chain.mean)
        d = np.einsum("sa,sa,sat->t", now, 1 - chain.end, chain.P)
        t += 1
        if horizon is None and gamma**t < 1e-18:
            break
    return J


class ChainEnv(gymnasium.Env):
    """A chain as an environment; observations are one-hot, or the number of the state."""

    metadata: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, chain: Chain, one_hot: bool) -> None:
        S, A = chain.end.shape
        self.chain, self.one_hot, self.s = chain, one_hot, 0
        self.starts, self.moves, self.eye = np.cumsum(chain.rho), np.cumsum(chain.P, -1), np.eye(S)
        self.observation_space = Box(0.0, 1.0, (S,), np.float64) if one_hot else Discrete(S)
        self.action_space = Discrete(A)

    def _observe(self) -> Any:
        return self.eye[self.s].copy() if self.one_hot else self.s

    def _draw(self, cumulated: Array) -> int:
        return min(int(cumulated.searchsorted(self.np_random.random(), side="right")), len(cumulated) - 1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.s = self._draw(self.starts)
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        chain, rng, a = self.chain, self.np_random, int(action)
        cost, over = draw_cost(chain, rng, self.s, a), bool(rng.random() < chain.end[self.s, a])
        self.s = self._draw(self.moves[self.s, a])
        return self._observe(), 0.0, over, False, {"cost": cost}


class LanesAlike(SyncVectorEnv):
    """A vector environment that gives every lane the same seed."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        one = seed if seed is None or isinstance(seed, int) else next(iter(seed))
        return super().reset(seed=None if one is None else [one] * self.num_envs, options=options)


def vector_of(chain: Chain, one_hot: bool, mode: AutoresetMode, kind: type[SyncVectorEnv] = SyncVectorEnv) -> Any:
    return kind([lambda: ChainEnv(chain, one_hot)] * 4, autoreset_mode=mode)


ENVIRONMENTS: dict[str, Callable[[Chain, bool], tuple[Any, int | None]]] = {
    "object": lambda chain, hot: (ChainEnv(chain, hot), None),
    "factory, 1 lane": lambda chain, hot: (lambda: ChainEnv(chain, hot), 1),
    "factory, 8 lanes": lambda chain, hot: (lambda: ChainEnv(chain, hot), 8),
    "factory, 32 lanes": lambda chain, hot: (lambda: ChainEnv(chain, hot), 32),
    "vector, next step": lambda chain, hot: (vector_of(chain, hot, AutoresetMode.NEXT_STEP), None),
    "vector, same step": lambda chain, hot: (vector_of(chain, hot, AutoresetMode.SAME_STEP), None),
    "vector, lanes alike": lambda chain, hot: (vector_of(chain, hot, AutoresetMode.NEXT_STEP, LanesAlike), None),
}


# ---------------------------------------------------------------------------------------------------- rules


@dataclass
class TableRule:
    """A rule that draws from π_t with a random number in [0, 1) of its own making."""

    pi: Array  # [T, S, A]
    uniform: Callable[[], float]
    as_tuple: bool = False
    t: int = 0

    def __post_init__(self) -> None:
        self.cumulated = np.cumsum(self.pi, -1)

    def reset(self) -> None:
        self.t = 0

    def __call__(self, obs: Any) -> Any:
        s = int(np.argmax(obs)) if np.ndim(obs) else int(obs)
        row = self.cumulated[min(self.t, len(self.pi) - 1), s]
        self.t += 1
        a = min(int(row.searchsorted(self.uniform(), side="right")), len(row) - 1)
        return (a, None) if self.as_tuple else a


def _table(rng: np.random.Generator, chain: Chain, T: int = 1, concentration: float = 1.0) -> Array:
    S, A = chain.end.shape
    return rng.dirichlet(np.full(A, concentration), (T, S))


def _certain(rng: np.random.Generator, chain: Chain, T: int = 1) -> Array:
    S, A = chain.end.shape
    return np.eye(A)[rng.integers(A, size=(T, S))]


def _seeded(seed: int) -> Callable[[], float]:
    return random.Random(seed).random


def _global(seed: int) -> Callable[[], float]:
    np.random.seed(seed)  # noqa: NPY002 (what users do)
    return np.random.random


RULES: dict[str, Callable[[np.random.Generator, Chain, int], tuple[Array, Any]]] = {}


def _rule(name: str, table: Callable[..., Array], uniform: Callable[[int], Callable[[], float]], **more: Any) -> None:
    def make(rng: np.random.Generator, chain: Chain, seed: int) -> tuple[Array, Any]:
        pi = table(rng, chain)
        return pi, TableRule(pi, uniform(seed), **more)

    RULES[name] = make


_rule("deterministic", _certain, _seeded)
_rule("counts its steps", lambda rng, chain: _certain(rng, chain, LONGEST), _seeded)
_rule("random.Random", _table, _seeded)
_rule("NumPy generator", _table, lambda seed: np.random.default_rng(seed).random)
_rule("NumPy's global generator", _table, _global)
_rule("counts and draws", lambda rng, chain: _table(rng, chain, LONGEST), _seeded)
_rule("gives (action, state)", _table, _seeded, as_tuple=True)


def _network(rng: np.random.Generator, chain: Chain, seed: int) -> tuple[Array, Any]:
    """A linear softmax network on one-hot observations."""
    S, A = chain.end.shape
    policy = _policy(S, A)
    mixture = cl.NetworkMixture.single(policy, rng.normal(0, 1, policy.d), Normaliser.identity(S))
    return softmax_of(mixture, S)[None], mixture


def softmax_of(mixture: Any, S: int) -> Array:
    out = np.asarray(mixture.outs[0](np.eye(S)), float)
    p = np.exp(out - out.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


@cache
def _policy(S: int, A: int) -> Any:
    return cl.categorical(hidden=()).fitted((S,), cl.Discrete(A), 0)


RULES["network"] = _network

STATEMENTS: dict[str, tuple[bool, bool]] = {  # horizon, discounted
    "per episode": (True, False),
    "discounted over a horizon": (True, True),
    "discounted without end": (False, True),
}
LAWS = "certain", "Bernoulli", "rare", "uniform"


# ---------------------------------------------------------------------------------------------------- trials


class Kinds(NamedTuple):
    environment: str
    rule: str
    statement: str
    law: str
    limits: str


def trial(seed: int, sign: int) -> tuple[Kinds, str]:
    """The verdict on one policy that breaks a limit (sign 1) or keeps all of them (sign −1)."""
    rng = np.random.default_rng([seed, sign + 1])
    law, statement = str(rng.choice(LAWS)), str(rng.choice(list(STATEMENTS)))
    I, utilities = int(rng.integers(1, 3)), bool(rng.integers(2))
    chain = draw_chain(rng, I, law)
    if rng.random() < 0.15:
        return _on_a_model(rng, chain, statement, sign)
    name = str(rng.choice([*RULES, "network"]))
    kind = str(rng.choice(list(ENVIRONMENTS)))
    with_horizon, discounted = STATEMENTS[statement]
    horizon = int(rng.choice([1, 2, 3, LONGEST])) if with_horizon else None
    gamma = float(rng.choice([0.5, 0.8])) if discounted else 1.0
    pi, rule = RULES[name](rng, chain, int(rng.integers(2**31)))
    limits = _limits(rng, true_costs(chain, pi, gamma, horizon), sign)
    env, n = ENVIRONMENTS[kind](chain, name == "network" or bool(rng.integers(2)))
    most = (2.0 if law == "uniform" else 1.0) * chain.size.max() * rng.choice([1.0, 3.0])
    how: dict[str, Any] = {"gamma": gamma, "horizon": horizon, "num_envs": n, "bounds": (0.0, most), "limits": limits}
    if utilities:
        how |= {"constraints": lambda obs, a, after, info: -info["cost"], "b": -limits, "bounds": (-most, 0.0)}
        del how["limits"]
    kinds = Kinds(kind, name, statement, law, f"{I}, {'utilities' if utilities else 'costs'}")
    return kinds, _verdict(lambda: cl.gymnasium(env, **how), rule, rng)


def _limits(rng: np.random.Generator, J: Array, sign: int) -> Array:
    """Limits on the costs of which the first is broken (sign 1) by .1 to 20 %, or all are kept by as much."""
    off = 10 ** rng.uniform(-3, np.log10(0.2), len(J))
    limits = J * (1 + off)
    if sign > 0:
        broken = int(rng.integers(len(J)))
        limits[broken] = J[broken] / (1 + off[broken])
    return limits


def _verdict(make: Callable[[], Any], rule: Any, rng: np.random.Generator) -> str:
    try:
        with make() as problem:
            budget = float(10 ** rng.uniform(2.5, 3.5))
            return cl.certify(problem, rule, delta=DELTA, budget=budget, seed=int(rng.integers(2**31))).verdict
    except cl.InputError:
        return "refused"


def _on_a_model(rng: np.random.Generator, chain: Chain, statement: str, sign: int) -> tuple[Kinds, str]:
    """The same on finite models that are sampled: tables, mixtures, rules of the user's own."""
    I, S, A = chain.mean.shape
    gamma, name = float(rng.choice([0.5, 0.8, 0.95])), str(rng.choice(["table", "mixture", "NumPy generator"]))
    pi = _table(rng, chain)
    parts = np.concatenate([pi, _table(rng, chain)]) if name == "mixture" else pi
    w = rng.dirichlet(np.ones(len(parts)))
    whole = chain._replace(end=np.zeros((S, A)))
    J = sum(x * true_costs(whole, p[None], gamma, None) for x, p in zip(w, parts, strict=True))
    limits = _limits(rng, np.asarray(J), sign)
    model = cl.CMDP(chain.P, np.zeros((S, A)), -chain.mean, b=-limits, rho=chain.rho, gamma=gamma)
    policy: Any = cl.Mixture(w, parts)
    if name == "NumPy generator":
        policy = TableRule(pi, np.random.default_rng(int(rng.integers(2**31))).random)
    kinds = Kinds("finite model", name, "discounted without end", "certain", f"{I}, utilities")
    how: dict[str, Any] = {"evidence": "samples", "delta": DELTA, "seed": int(rng.integers(2**31))}
    try:
        return kinds, cl.certify(model, policy, budget=float(10 ** rng.uniform(3, 4.5)), **how).verdict
    except cl.InputError:
        return kinds, "refused"


def jax_trials(n: int, seed: int, sign: int) -> list[tuple[Kinds, str]]:
    """JAX environments: the limit stays; networks are moved until they break it, or keep it, by as much as drawn."""
    from clearance.zoo.simulated.model_environment import of_model

    found, rng = [], np.random.default_rng([seed, 77, sign + 1])
    for _ in range(max(n // 80, 1)):
        chain = draw_chain(rng, 1, "certain")
        S, A = chain.end.shape
        chain, gamma = chain._replace(end=np.zeros((S, A))), float(rng.choice([0.5, 0.8]))
        least, most = (true_costs(chain, _extreme(chain, gamma, end)[None], gamma, None)[0] for end in (-1, 1))
        limit = 0.6 * least + 0.4 * most
        model = cl.CMDP(chain.P, np.zeros((S, A)), -chain.mean, b=[-limit], rho=chain.rho, gamma=gamma)
        env = of_model(model, lanes=64)
        for _ in range(min(n, 80)):
            off = 10 ** rng.uniform(-3, np.log10(0.2))
            mixture = _network_at(rng, chain, gamma, limit * (1 + off) ** sign)
            kinds = Kinds("JAX", "network", "discounted without end", "certain", "1, utilities")
            if mixture is not None:
                how: dict[str, Any] = {
                    "delta": DELTA,
                    "seed": int(rng.integers(2**31)),
                    "budget": 10 ** rng.uniform(3, 4),
                }
                found.append((kinds, cl.certify(env, mixture, **how).verdict))
    return found


def _extreme(chain: Chain, gamma: float, sign: int) -> Array:
    """The deterministic policy with the largest (sign 1) or smallest cost, by value iteration."""
    Q = sign * chain.mean[0]
    for _ in range(200):
        Q = sign * chain.mean[0] + gamma * chain.P @ Q.max(1)
    return np.eye(Q.shape[1])[Q.argmax(1)]


def _network_at(rng: np.random.Generator, chain: Chain, gamma: float, J: float) -> Any:
    """A network between a random one and a cheap or dear one whose true cost is J; None where there is none."""
    S, A = chain.end.shape
    policy = _policy(S, A)
    ends = [np.log(_extreme(chain, gamma, sign) + 1e-4) for sign in (-1, 1)]
    noise = rng.normal(0, 1, (S, A))

    def at(x: float) -> tuple[Any, float]:
        logits = noise + (1 - x) * ends[0] + x * ends[1]
        theta = np.concatenate([logits.T.ravel(), np.zeros(A)])
        mixture = cl.NetworkMixture.single(policy, theta, Normaliser.identity(S))
        return mixture, float(true_costs(chain, softmax_of(mixture, S)[None], gamma, None)[0])

    low, high = 0.0, 1.0
    if not at(low)[1] < J < at(high)[1]:
        return None
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if at(middle)[1] < J else (low, middle)
    return at(low if at(low)[1] > J else high)[0]


def infeasible_trial(seed: int) -> tuple[Kinds, str]:
    """What `solve` says from samples of a feasible model: one policy keeps every limit by 0.1 % to 50 %.

    Where the search for such a policy fails, `solve` looks for a proof that there is none: the small slacks test that.
    """
    rng = np.random.default_rng([seed, 5])
    I = int(rng.integers(1, 4))
    chain = draw_chain(rng, I, "certain")._replace(end=np.zeros(1))
    S, A = chain.mean.shape[1:]
    gamma = float(rng.choice([0.5, 0.8]))
    pi = _certain(rng, chain._replace(end=np.zeros((S, A)))) if rng.integers(2) else _extreme(chain, gamma, -1)[None]
    J = true_costs(chain._replace(end=np.zeros((S, A))), pi, gamma, None)
    slack = 10 ** rng.uniform(-3, -0.3, I)
    limits = J * (1 + slack)
    near = "least slack " + ("below 1 %" if slack.min() < 0.01 else "1 to 10 %" if slack.min() < 0.1 else "above 10 %")
    model = cl.CMDP(chain.P, rng.random((S, A)), -chain.mean, b=-limits, rho=chain.rho, gamma=gamma)
    kinds = Kinds("finite model", "solve", "discounted without end", near, f"{I}, utilities")
    try:
        budget = float(10 ** rng.uniform(4.5, 6.3))
        return kinds, cl.solve(model, evidence="samples", budget=budget, delta=DELTA, seed=seed).certificate.verdict
    except cl.InfeasibleError as e:
        return kinds, "INFEASIBLE" if e.proven else "undecided margin"
    except cl.InputError:
        return kinds, "refused"


# ---------------------------------------------------------------------------------------------------- judgement


class Judged(NamedTuple):
    axis: str
    kind: str
    trials: int
    decided: int
    false: int
    p: float


def judge(found: list[tuple[Kinds, str]], false: str, delta: float = DELTA) -> tuple[list[Judged], list[str]]:
    """Return every kind with its count of false verdicts, and the kinds whose rate is above δ."""
    rows = []
    for axis in Kinds._fields:
        verdicts: dict[str, Counter[str]] = {}
        for kinds, verdict in found:
            verdicts.setdefault(getattr(kinds, axis), Counter())[verdict] += 1
        for kind, counts in sorted(verdicts.items()):
            n = counts.total() - counts["refused"]
            decided = n - counts["UNDECIDED"] - counts["undecided margin"]
            rows.append(judged(axis, kind, n, decided, counts[false], delta))
    return rows, lying(rows)


def judged(axis: str, kind: str, trials: int, decided: int, false: int, delta: float = DELTA) -> Judged:
    p = float(stats.binom.sf(false - 1, trials, delta)) if false else 1.0
    return Judged(axis, kind, trials, decided, false, p)


def lying(rows: list[Judged]) -> list[str]:
    """Return the kinds whose rate of false verdicts is above δ, by Holm's step-down test at 1 %."""
    found = []
    for rank, row in enumerate(sorted(rows, key=lambda row: row.p)):
        if row.p > 0.01 / (len(rows) - rank):
            break
        found.append(f"{row.axis}: {row.kind}")
    return found


def merge(paths: list[Path]) -> tuple[list[Judged], list[str]]:
    """Add up the tables that several processes wrote, and judge the sums."""
    sums: dict[tuple[str, str], Counter[str]] = {}
    for path in paths:
        for row in json.loads(path.read_text())["rows"]:
            counts = {name: row[name] for name in ("trials", "decided", "false")}
            sums.setdefault((row["axis"], row["kind"]), Counter()).update(counts)
    rows = [judged(*at, n["trials"], n["decided"], n["false"]) for at, n in sorted(sums.items())]
    return rows, lying(rows)


def show(rows: list[Judged]) -> None:
    for row in rows:
        counts = f"{row.trials:7} trials {row.decided:7} decided {row.false:5} false"
        print(f"{row.axis:12} {row.kind:28} {counts}  p {row.p:.2g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claim", choices=["certified", "violated", "infeasible", "merge"])
    parser.add_argument("tables", nargs="*", type=Path, help="for merge: what --write wrote, of different trials")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial, which is also its seed")
    parser.add_argument("--write", type=Path, help="write the table as JSON")
    given = parser.parse_args()
    if given.claim == "merge":
        rows, liars = merge(given.tables)
        show(rows)
        print(f"lying kinds: {liars or 'none'}")
        return
    began, seeds = time.perf_counter(), range(given.first, given.first + given.trials)
    if given.claim == "infeasible":
        found = [infeasible_trial(seed) for seed in seeds]
    else:
        sign = 1 if given.claim == "certified" else -1
        found = [trial(seed, sign) for seed in seeds] + jax_trials(max(given.trials // 40, 80), given.first, sign)
    rows, liars = judge(found, given.claim.upper())
    show(rows)
    print(
        f"{dict(Counter(v for _, v in found))} in {time.perf_counter() - began:.0f} s; lying kinds: {liars or 'none'}"
    )
    if given.write:
        table = {"claim": given.claim, "trials": len(found), "delta": DELTA, "rows": [r._asdict() for r in rows]}
        given.write.write_text(json.dumps(table | {"lying": liars}, indent=1) + "\n")


if __name__ == "__main__":
    main()
