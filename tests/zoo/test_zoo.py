"""The zoo: every model against its definition written a second time, its optimum against what theory knows of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import clearance as cl
from clearance import zoo
from clearance.core.errors import InputError, MissingExtraError
from clearance.finite.transition_rows import transitions
from clearance.zoo.grid_worlds import obstacles

# Optimum J_r*, multipliers λ*, Slater margin; from the linear program over occupancy measures.
KNOWN: dict[str, tuple[float, list[float], float]] = {
    "cliff": (-14.831109, [2.227513], 0.1),
    "grid-obstacles": (564.271632, [0.2104029], 4.978806),
    "harvesting": (-0.1060966, [0.02209523, 2.170457], 0.01),
    "harvesting-discounted": (-2.608189, [0.0769121, 2.479652], 0.2),
    "inventory": (67.666479, [4.725649], 1.65),
    "lazar": (0.582155, [0.01274656], 3.0),
    "lazar-discounted": (31.019777, [0.02593913], 150.0),
    "maintenance": (0.4006397, [6.513857], 0.01),
    "maintenance-discounted": (10.869951, [11.79914], 0.2),
    "queue-power": (-158.819828, [17.16248], 4.6),
    "streaming": (-0.4166667, [1.111111], 0.5),
    "streaming-discounted": (-11.850047, [0.6519962], 10.0),
    "sutton-barto": (12.836207, [0.831368, 5.202803, 0.6243364], 0.538072),
    "taxi": (5.397570, [4.451769], 0.3),
}
LARGE = ("grid-obstacles", "taxi")
SMALL = [name for name in KNOWN if name not in LARGE]


@cache
def model(name: str) -> cl.CMDP:
    return zoo.MODELS[name]()


@cache
def best_of(name: str) -> cl.Optimum:
    return cl.optimum(model(name))


def visited(name: str) -> np.ndarray:
    """States that matter: below this the linear program's own tolerance decides."""
    return best_of(name).d.sum(1) > 1e-8


def J_at(cmdp: cl.CMDP, b: np.ndarray) -> float:
    return cl.optimum(cmdp.replace(b=b)).J_r


# ------------------------------------------------------------------------------------------------- what all must have


@pytest.mark.parametrize("name", KNOWN)
def test_limits_bind_with_room_and_the_optimum_is_certified(name: str) -> None:
    cmdp, best = model(name), best_of(name)
    J_r, lam, slater = KNOWN[name]
    scale = np.abs(cmdp.h).max() * cmdp.length
    certificate = cl.certify(cmdp, best.policy, best=best)
    assert certificate.verdict == "CERTIFIED"
    assert certificate.gap is not None and 0 <= certificate.gap < 1e-7 * scale
    assert best.J_r == pytest.approx(J_r, rel=3e-7, abs=2e-8 * scale)
    assert best.lam == pytest.approx(lam, rel=1e-2 if name in LARGE else 1e-5)
    assert best.slack == pytest.approx(np.zeros(cmdp.I), abs=1e-6 * scale)
    assert cl.slater_margin(cmdp)[0] == pytest.approx(slater, rel=1e-5)
    assert cl.optimum(cmdp.replace(b=cmdp.b - 2 * scale)).J_r > best.J_r + 1e-5 * abs(best.J_r)


def test_the_page_shows_these_numbers() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/zoo.md").read_text(encoding="utf-8")
    rows = {
        name: cells.split("|")
        for name, cells in re.findall(r"^\| `(.+?)`(?: \(average\))? \| (.*) \|$", text, re.MULTILINE)
    }
    assert list(rows) == list(KNOWN)
    for name, cells in rows.items():
        S, A, J_r, lam, slater, free = ([float(x) for x in cell.split(",")] for cell in cells)
        cmdp = model(name)
        assert ([cmdp.S], [cmdp.A]) == (S, A) and ([KNOWN[name][0]], KNOWN[name][1], [KNOWN[name][2]]) == (
            J_r,
            lam,
            slater,
        )
        without = cl.optimum(cmdp.replace(h=cmdp.h[:1], b=[], names=[])).J_r
        assert without == pytest.approx(free[0], abs=1e-5) and without > J_r[0]


# In the long run, every policy of `streaming` that is slow at 0, fast half of the time and never full is as good. In
# `harvesting`, a state with a share of 2e-7 of the time is randomised too, within the gap of the optimum.
@pytest.mark.parametrize("name", [name for name in SMALL if name not in ("streaming", "harvesting")])
def test_at_most_one_randomised_state_per_limit(name: str) -> None:
    choices = (best_of(name).policy[visited(name)] > 1e-6).sum(1)
    assert 1 <= np.sum(choices - 1) <= model(name).I


@pytest.mark.parametrize("name", SMALL)
def test_multipliers_are_the_slope_of_the_optimum(name: str) -> None:
    """J_r*(b) is piecewise linear, so central differences are exact within a piece."""
    cmdp, best = model(name), best_of(name)
    step = 1e-4 * best.attained_margin
    for i, lam in enumerate(best.lam):
        e = step * np.eye(cmdp.I)[i]
        slope = (J_at(cmdp, cmdp.b - e) - J_at(cmdp, cmdp.b + e)) / (2 * step)
        assert slope == pytest.approx(lam, rel=1e-3)


@pytest.mark.parametrize("name", LARGE)
def test_multipliers_support_the_optimum_from_above(name: str) -> None:
    """J_r*(b') ≤ J_r*(b) − λ*·(b' − b) for every b', since J_r* is concave with slope −λ*."""
    cmdp, best = model(name), best_of(name)
    tol = best.gap + 1e-8 * np.abs(cmdp.h).max() * cmdp.length
    for x in (-0.2, 0.2):
        shift = x * np.abs(cmdp.b)
        assert J_at(cmdp, cmdp.b + shift) <= best.J_r - best.lam @ shift + tol


@pytest.mark.parametrize("name", SMALL)
def test_price_of_safety_rises_and_rises_faster(name: str) -> None:
    """J_r*(b) does not increase with b and is concave."""
    cmdp, best = model(name), best_of(name)
    J = np.array([J_at(cmdp, cmdp.b + x * best.attained_margin) for x in (-0.6, -0.3, 0.0, 0.3, 0.6)])
    tol = 1e-6 * np.abs(J).max()
    assert np.all(np.diff(J) <= tol) and np.all(np.diff(J, 2) <= tol)


# ------------------------------------------------------------------------------------- definitions, written once more
# Each yields (probability, next state, reward, cost, …) for one state and action, by the words of the docstring.

Outcomes = Iterator[tuple[float, int, *tuple[float, ...]]]


def inventory_outcomes(x: int, a: int) -> Outcomes:
    y = min(x + a, 5)
    spent = (4 + 2 * (y - x) if y > x else 0) + y
    for D, p in enumerate((0.3, 0.2, 0.2, 0.2, 0.05, 0.05)):
        yield p, max(y - D, 0), 8 * min(y, D) - spent, max(D - y, 0)


def queue_outcomes(x: int, a: int) -> Outcomes:
    q = (0.2, 0.4, 0.6, 0.8)[a]
    yield 0.2, min(x + 1, 50), -x, q**3
    yield q, max(x - 1, 0), -x, q**3
    yield 1 - 0.2 - q, x, -x, q**3


def lazar_outcomes(x: int, a: int) -> Outcomes:
    for came, served in product((0, 1), repeat=2):
        joins = came and a == 1 and x < 20
        p = (0.7 if came else 0.3) * (0.6 if served else 0.4)
        yield p, x + joins - (served and x > 0), float(joins), x


def streaming_outcomes(x: int, a: int) -> Outcomes:
    fast = (0.1, 0.9)[a]
    for arrived, played in product((0, 1), repeat=2):
        p = (fast if arrived else 1 - fast) * (0.8 if played else 0.2)
        yield p, min(max(x + arrived - played, 0), 9), -float(x == 0), a


def maintenance_outcomes(i: int, a: int) -> Outcomes:
    if i == 10 or a == 1:
        yield 1.0, 0, -10.0 if i == 10 else -5.0, 0.0
    else:
        breaks, income = (i + 1) ** 2 / 1000, 1 - i / 20
        yield breaks, 10, income, 1.0
        yield (1 - breaks) * 0.4, min(i + 1, 9), income, 0.0
        yield (1 - breaks) * 0.6, i, income, 0.0


def harvesting_outcomes(s: int, a: int) -> Outcomes:
    e, q, c, w = s // 36, s // 4 % 9, s // 2 % 2, s % 2
    u = min(a, q)
    need = (0, 1, 3)[u] * (1 if c == 1 else 2)
    for (n, p), flip_c, flip_w in product(enumerate((0.5, 0.3, 0.2)), (0, 1), (0, 1)):
        e2, q2 = min(max(e - need, 0) + 2 * w, 8), min(q - u + n, 8)
        p = p * (0.2 if flip_c else 0.8) * (0.2 if flip_w else 0.8)
        yield p, e2 * 36 + q2 * 4 + (c ^ flip_c) * 2 + (w ^ flip_w), -max(need - e, 0), q, max(q - u + n - 8, 0)


@cache
def cached_obstacles(size: int) -> np.ndarray:
    return obstacles(size, 0.3, 0)


def grid_outcomes(s: int, a: int, size: int = 25) -> Outcomes:
    if s == size - 1:
        yield 1.0, s, 0.0, 0.0
        return
    blocked = cached_obstacles(size)
    for m, (dy, dx) in enumerate(((-1, 0), (0, 1), (1, 0), (0, -1))):
        y, x = s // size + dy, s % size + dx
        n = y * size + x if 0 <= y < size and 0 <= x < size else s
        yield (0.95 if m == a else 0.05 / 3), n, -1 + 1000 * (n == size - 1), blocked[n]


OUTCOMES: dict[str, Callable[[int, int], Outcomes]] = {
    "grid-obstacles": grid_outcomes,
    "harvesting": harvesting_outcomes,
    "harvesting-discounted": harvesting_outcomes,
    "inventory": inventory_outcomes,
    "lazar": lazar_outcomes,
    "lazar-discounted": lazar_outcomes,
    "maintenance": maintenance_outcomes,
    "maintenance-discounted": maintenance_outcomes,
    "queue-power": queue_outcomes,
    "streaming": streaming_outcomes,
    "streaming-discounted": streaming_outcomes,
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_model_is_what_its_definition_says(name: str) -> None:
    cmdp = model(name)
    P = np.zeros((cmdp.S * cmdp.A, cmdp.S))
    h = np.zeros((1 + cmdp.I, cmdp.S * cmdp.A))
    for row, (s, a) in enumerate(product(range(cmdp.S), range(cmdp.A))):
        for p, s_next, reward, *cost in OUTCOMES[name](s, a):
            P[row, s_next] += p
            h[:, row] += p * reward, *(-p * c for c in cost)
    rows = cmdp.rows.toarray() if cmdp.is_sparse else cmdp.rows
    assert np.abs(rows - P).max() < 1e-14 and np.abs(cmdp.h.reshape(h.shape) - h).max() < 1e-12


def test_limits_are_shares_of_the_discounted_total() -> None:
    """b = −share/(1−γ) of what is counted per step; the fill rate is a share of a demand that no policy changes."""
    assert model("queue-power").b == pytest.approx([-0.1 / 0.02])
    assert model("lazar-discounted").b == pytest.approx([-3 / 0.02])
    assert model("streaming-discounted").b == pytest.approx([-0.5 / 0.05])
    assert model("maintenance-discounted").b == pytest.approx([-0.01 / 0.05])
    assert [model(name).b[0] for name in ("lazar", "streaming", "maintenance")] == [-3.0, -0.5, -0.01]  # averages
    assert model("harvesting-discounted").b == pytest.approx([-3 / 0.05, -0.01 / 0.05])
    assert model("harvesting").b.tolist() == [-3.0, -0.01]
    cmdp, mean = model("inventory"), 1.65
    nothing = np.eye(6)[np.zeros(6, int)]
    assert -cl.evaluate(cmdp, nothing).J[1] == pytest.approx(mean / 0.05)  # never ordering loses all of it
    assert cmdp.b == pytest.approx([-0.05 * mean / 0.05])


# ---------------------------------------------------------------------------------------------------------- structure


def test_inventory_mixes_two_policies_of_type_s_S() -> None:
    """Below s order up to one level S, from s on nothing; two such policies differ in one state."""
    pi = best_of("inventory").policy
    levels = [[min(x + a, 5) for a in np.flatnonzero(pi[x] > 1e-9)] for x in range(6)]
    for pick in (min, max):
        y = [pick(level) for level in levels]
        orders = [y[x] > x for x in range(6)]
        assert orders == sorted(orders, reverse=True), "orders below s only"
        assert len({y[x] for x in range(6) if orders[x]}) == 1, "up to one level"


def test_service_rate_does_not_decrease_with_the_queue() -> None:
    mean_rate = best_of("queue-power").policy @ [0.2, 0.4, 0.6, 0.8]
    assert np.all(np.diff(mean_rate) >= -1e-9) and len(np.unique(mean_rate.round(6))) >= 4


def test_a_long_buffer_changes_nothing_and_is_sparse() -> None:
    """Nobody gets that far: the optimum of 600 places is that of 50, up to the start's tail."""
    cmdp = zoo.queue_power(600)
    assert cmdp.is_sparse and cmdp.S == 601
    assert cl.optimum(cmdp).J_r == pytest.approx(cl.optimum(zoo.queue_power(200)).J_r, rel=1e-5)


@pytest.mark.parametrize("name", ["lazar", "lazar-discounted"])
def test_lazar_admits_below_one_threshold(name: str) -> None:
    best = best_of(name)
    admit = best.policy[visited(name), 1]
    assert np.all(np.diff(admit) <= 1e-9) and admit[0] == 1 and admit[-1] < 1
    everybody = np.eye(2)[np.ones(21, int)]
    J = cl.evaluate(model(name), everybody).J
    assert J[1] < model(name).b[0] and best.slack[0] == pytest.approx(0, abs=1e-6), "tight, since it can be broken"


def test_streaming_in_the_long_run_is_a_balance_of_packets() -> None:
    """Half of the time fast, .5 packets arrive per step, of .8 that are to be played; the rest stalls at an empty
    buffer, where the slow server lets a packet be missing with probability .9: (1 − .5/.8)/.9 of the time.
    """
    best = best_of("streaming")
    assert best.J_r == pytest.approx(-(1 - 0.5 / 0.8) / 0.9, abs=1e-7) and best.policy[0, 0] == 1
    assert best.lam == pytest.approx([1 / 0.9], rel=1e-5)


@pytest.mark.parametrize(("name", "mean"), [("lazar", 3.592), ("maintenance", 0.01147), ("streaming", 0.7769)])
def test_discounted_limits_are_not_limits_on_the_mean(name: str, mean: float) -> None:
    policy = best_of(f"{name}-discounted").policy
    assert -cl.evaluate(model(name), policy).J[1] == pytest.approx(mean, rel=1e-3) and mean > -model(name).b[0]


def test_discounted_streaming_is_fast_in_a_band() -> None:
    fast = best_of("streaming-discounted").policy[visited("streaming-discounted"), 1]
    assert set(np.flatnonzero(fast == 1)) == {1, 2, 3} and 0 < fast[0] < 1 and np.all(fast[4:] == 0)


@pytest.mark.parametrize("name", ["maintenance", "maintenance-discounted"])
def test_machine_is_replaced_from_a_control_limit_on(name: str) -> None:
    run = best_of(name).policy[:10, 0][visited(name)[:10]]
    assert np.all(np.diff(run) <= 1e-9) and run[0] == 1 and run[-1] == 0


@pytest.mark.parametrize("name", ["harvesting", "harvesting-discounted"])
def test_transmitter_sends_more_with_more_to_send_and_more_to_spend(name: str) -> None:
    packets = np.arange(model(name).S) // 4 % 9
    sent = np.sum(best_of(name).policy * np.minimum(np.arange(3), packets[:, None]), axis=1).reshape(9, 9, 2, 2)
    assert np.all(np.diff(sent, axis=1) >= -1e-6), "queue"
    assert np.all(np.diff(sent, axis=0) >= -1e-6), "battery"
    assert np.all(np.diff(sent, axis=2) >= -1e-6), "channel"


def test_sutton_barto_has_the_values_of_the_book() -> None:
    cmdp = model("sutton-barto")
    free = cl.optimum(cl.CMDP(cmdp.P, cmdp.r, gamma=0.9))
    book = [[22.0, 24.4, 22.0, 19.4, 17.5], [19.8, 22.0, 19.8, 17.8, 16.0], [17.8, 19.8, 17.8, 16.0, 14.4],
            [16.0, 17.8, 16.0, 14.4, 13.0], [14.4, 16.0, 14.4, 13.0, 11.7]]  # fmt: skip
    assert cl.evaluate(cmdp, free.policy).V[0].reshape(5, 5) == pytest.approx(np.array(book), abs=0.0501)


# --------------------------------------------------------------------------------------------------------------- grid


def test_grid_without_slip_is_a_shortest_path() -> None:
    """T = 2(n−1) steps, the last of them into the goal: J = 1000 γ^(T−1) − (1−γ^T)/(1−γ)."""
    cmdp = zoo.grid_obstacles(8, slip=0.0, limit=1e3)
    assert cl.optimum(cmdp).J_r == pytest.approx(1000 * 0.99**13 - (1 - 0.99**14) / 0.01)


def test_grid_is_sparse_at_any_size() -> None:
    """A dense P of this one would take 205 GB."""
    cmdp = zoo.grid_obstacles(200)
    assert cmdp.is_sparse and cmdp.S == 40_000 and cmdp.rows.nnz <= 16 * cmdp.S
    assert np.asarray(cmdp.rows.sum(1)) == pytest.approx(np.ones(4 * cmdp.S))
    assert obstacles(200, 0.3, 0).mean() == pytest.approx(0.3, abs=0.01)


def test_sparse_and_dense_rows_are_the_same_model() -> None:
    s, a, s_next, prob = [0, 0, 0, 1, 1], [0, 0, 1, 0, 1], [0, 1, 1, 0, 0], [0.25, 0.75, 1.0, 1.0, 1.0]
    dense, thin = (transitions(2, 2, s, a, s_next, prob, dense=d) for d in (True, False))
    assert sparse.issparse(thin) and dense.tolist() == [[[0.25, 0.75], [0, 1]], [[1, 0], [1, 0]]]
    assert thin.toarray().reshape(2, 2, 2).tolist() == dense.tolist()


# ------------------------------------------------------------------------------------------------ Gymnasium's tables


def make(env_id: str, **kwargs: Any) -> Any:
    gymnasium = pytest.importorskip("gymnasium")
    version = max(spec.version for spec in gymnasium.registry.values() if spec.name == env_id)
    return gymnasium.make(f"{env_id}-v{version}", **kwargs)


def rows_of(P: Any, A: int) -> np.ndarray:
    return P.toarray() if sparse.issparse(P) else P.reshape(-1, P.shape[-1])


@pytest.mark.parametrize("env_id", ["Taxi", "CliffWalking"])
def test_deterministic_tables_step_as_the_environment_does(env_id: str) -> None:
    env = make(env_id).unwrapped
    P, r, rho = zoo.gymnasium_table(env)
    rows, (S, A) = rows_of(P, r.shape[1]), r.shape
    ends = {s for s in range(S) if all(rows[s * A + a, s] == 1 and r[s, a] == 0 for a in range(A))}
    env.reset(seed=0)
    for s, a in product(range(len(env.P)), range(A)):
        if s in ends:
            continue
        env.s = s
        s_next, reward, terminated, *_ = env.step(a)
        n = int(np.argmax(rows[s * A + a]))
        assert rows[s * A + a, n] == 1 and r[s, a] == reward
        assert n in ends if terminated else n == s_next
    assert rho.sum() == pytest.approx(1) and not any(rho[s] for s in ends)


@pytest.mark.parametrize("env_id,kwargs", [("FrozenLake", {}), ("CliffWalking", {"is_slippery": True})])
def test_random_tables_against_samples_of_the_environment(env_id: str, kwargs: dict[str, Any]) -> None:
    """Counts of next states, and rewards, of a few pairs (s, a): z-scores below 4.5."""
    env = make(env_id, **kwargs).unwrapped
    P, r, _ = zoo.gymnasium_table(env)
    env.reset(seed=1)
    rng, n = np.random.default_rng(0), 500
    live = np.flatnonzero([P[s, 0, s] < 1 or r[s, 0] != 0 for s in range(len(r))])
    for s, a in zip(rng.choice(live, 12), rng.integers(4, size=12), strict=True):
        count, total = np.zeros(len(r)), []
        for _ in range(n):
            env.s = int(s)
            s_next, reward, *_ = env.step(int(a))
            count[s_next] += 1
            total.append(reward)
        p = P[s, a]
        assert np.all(np.abs(count - n * p) <= 4.5 * np.sqrt(n * p * (1 - p)) + 1e-9)
        assert abs(np.mean(total) - r[s, a]) <= 4.5 * np.std(total) / np.sqrt(n) + 0.01 * abs(r[s, a])


def returns(env: Any, pi: np.ndarray, gamma: float, cost: Callable[..., float], n: int) -> np.ndarray:
    """Discounted sums of reward and cost of n episodes [n, 2]."""
    rng, out = np.random.default_rng(0), np.zeros((n, 2))
    choose = np.cumsum(pi, 1)
    for k in range(n):
        s, over, weight = env.reset(seed=k)[0], False, 1.0
        while not over and weight > 1e-4:
            a = int(np.searchsorted(choose[s], rng.random()))
            s_next, reward, over, *_ = env.step(min(a, pi.shape[1] - 1))
            out[k] += weight * reward, weight * cost(s, s_next, reward)
            s, weight = s_next, weight * gamma
    return out


def test_taxi_model_against_episodes_of_the_environment() -> None:
    env = make("Taxi").unwrapped
    cmdp = model("taxi")
    pi = 0.9 * best_of("taxi").policy + 0.1 / 6
    cell = [tuple(env.decode(s))[:2] for s in range(500)]
    sample = returns(env, pi, 0.99, lambda s, n, _: float(cell[n] == (2, 3) != cell[s]), 800)
    J = cl.evaluate(cmdp, pi).J
    z = (sample.mean(0) - [J[0], -J[1]]) / (sample.std(0) / np.sqrt(800))
    assert np.all(np.abs(z) < 4) and cmdp.S == 501 and cmdp.is_sparse


def test_cliff_model_against_episodes_of_the_slippery_environment() -> None:
    """At slip 2/3 the model is Gymnasium's own slippery cliff, with the penalty split from the steps."""
    env = make("CliffWalking", is_slippery=True).unwrapped
    cmdp = zoo.cliff(slip=2 / 3)
    P, r, _ = zoo.gymnasium_table(env)
    assert pytest.approx(P, abs=1e-14) == cmdp.P
    assert cmdp.r + 99 * cmdp.g[0] == pytest.approx(r)
    pi = np.full((48, 4), 0.1) + 0.6 * np.eye(4)[cl.optimum(cmdp).policy.argmax(1)]
    sample = returns(env, pi, 0.99, lambda s, n, reward: float(reward == -100), 300)
    J = cl.evaluate(cmdp, pi).J
    z = (sample.mean(0) - [J[0] + 99 * J[1], -J[1]]) / (sample.std(0) / np.sqrt(300))
    assert np.all(np.abs(z) < 4)


def test_cliff_limit_moves_the_way_from_the_edge() -> None:
    cmdp = model("cliff")
    free = cl.optimum(cmdp.replace(b=cmdp.b - 10))
    edge = slice(25, 35)  # the cells above the cliff
    assert free.d[edge].sum() > 1.5 * best_of("cliff").d[edge].sum()


def table_env(P: dict[int, dict[int, list[tuple[float, int, float, bool]]]], rho: list[float] | None = None) -> Any:
    env = SimpleNamespace(P=P)
    if rho is not None:
        env.initial_state_distrib = np.array(rho)
    return env


def test_an_end_that_is_entered_only_by_ending_is_absorbing() -> None:
    """Its own rows, which here would go on for ever with reward, are never used."""
    env = table_env({0: {0: [(0.5, 0, 1.0, False), (0.5, 1, 3.0, True)]}, 1: {0: [(1.0, 0, 7.0, False)]}}, [1, 0])
    P, r, rho = zoo.gymnasium_table(env)
    assert P.tolist() == [[[0.5, 0.5]], [[0.0, 1.0]]] and r.tolist() == [[2.0], [0.0]] and rho.tolist() == [1, 0]


@pytest.mark.parametrize("way_in", ["a transition", "the start"])
def test_an_end_that_can_be_left_again_gets_an_extra_state(way_in: str) -> None:
    """State 1 ends an episode when entered by action 0, but not when entered by action 1 (or when begun in)."""
    other = (1.0, 1, 2.0, False) if way_in == "a transition" else (1.0, 0, 2.0, False)
    rho = [1.0, 0.0] if way_in == "a transition" else [0.5, 0.5]
    leave = {0: [(1.0, 0, 5.0, False)], 1: [(1.0, 1, 0.0, False)]}
    env = table_env({0: {0: [(1.0, 1, 1.0, True)], 1: [other]}, 1: leave}, rho)
    P, r, rho_ = zoo.gymnasium_table(env)
    assert P.shape == (3, 2, 3) and rho_.tolist() == [*rho, 0.0]
    assert P[0, 0].tolist() == [0, 0, 1] and P[2].tolist() == [[0, 0, 1], [0, 0, 1]] and r[2].tolist() == [0, 0]
    assert r[:2].tolist() == [[1.0, 2.0], [5.0, 0.0]] and P[1, 0].tolist() == [1, 0, 0]
    entering = zoo.gymnasium_signal(env, lambda s, a, s_next, reward, over: float(s_next == 1 and over))
    assert entering.tolist() == [[1, 0], [0, 0], [0, 0]]


def test_tables_without_a_start_begin_anywhere_but_at_an_end() -> None:
    env = table_env({0: {0: [(1.0, 1, 0.0, False)]}, 1: {0: [(1.0, 2, 1.0, True)]}, 2: {0: [(1.0, 2, 0.0, True)]}})
    P, _, rho = zoo.gymnasium_table(env, dense=False)
    assert rho.tolist() == [0.5, 0.5, 0.0] and sparse.issparse(P)
    with pytest.raises(InputError, match="no transition table"):
        zoo.gymnasium_table(SimpleNamespace())


def test_only_models_that_need_gymnasium_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    for name, build in zoo.MODELS.items():
        if name in ("cliff", "taxi", "frozen-lake", "frozen-lake-8x8"):
            with pytest.raises(MissingExtraError):
                build()
        else:
            build()
