"""Random words become cells, coins and sums without favour: counted exactly or against rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.core.compiled import alias_tables, walks
from clearance.core.compiled.compilation import kernel
from clearance.core.random_streams import fold, key_of
from clearance.finite.samplers.finite_episodes import MixtureEpisodes
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Normaliser
from clearance.simulator.samplers.simulator_episodes import NetworkEpisodes

U, WORDS = np.uint64, 2**32
below, even, wins = (kernel(getattr(alias_tables, name).py_func) for name in ("below", "even", "wins"))
alias_mask = kernel(alias_tables.alias_mask.py_func)
look_evenly = kernel(walks.look_evenly.py_func)


def is_kept(high: int, n: int) -> bool:
    """Whether a word with this high half is used as it is."""
    word = U((high << 32) | 12345)
    return even(word, n) == word


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 1000, 65_537, 1_000_003, 8_581_353, 3 * 10**8, 2**31 + 1, 2**32 - 1])
def test_every_cell_has_the_same_number_of_words(n: int) -> None:
    """The high halves of a cell are an interval: its ends are found in integers and shown to the kernels."""
    surplus, each = WORDS % n, WORDS // n
    chosen = {0, n - 1, *np.random.default_rng(n).integers(n, size=200).tolist()}
    for cell in chosen:
        first, last = -(-(cell * WORDS + surplus) // n), -(-((cell + 1) * WORDS) // n) - 1
        assert last - first + 1 == each, "as many as every other cell"
        for high in (first, (first + last) // 2, last):
            assert is_kept(high, n) and below(U(high << 32), n) == cell
        if first > 0 and below(U((first - 1) << 32), n) == cell:
            assert not is_kept(first - 1, n)
        assert last + 1 == WORDS or below(U((last + 1) << 32), n) == cell + 1


@pytest.mark.parametrize("n", [8_581_353, 2**31 + 1, 3 * 2**30 + 7])
def test_words_that_are_replaced_become_even(n: int) -> None:
    words = [U(even(fold(key_of(2), i), n)) for i in range(3000)]
    assert all(((int(w) >> 32) * n) % WORDS >= WORDS % n for w in words)
    cells = np.array([below(w, n) for w in words]) / n
    assert abs(cells.mean() - 0.5) < 5 / np.sqrt(12 * 3000)


def test_the_lanes_of_a_walk_look_evenly() -> None:
    """Half of all words are uneven with 2³¹ + 1 cells; every lane takes the cell and the coin of its even word."""
    n, width = 500, 2**31 + 1
    x = np.array([fold(key_of(4), i) for i in range(n)])
    cell, coin, at = np.zeros(n, np.int64), np.zeros(n, np.uint64), np.zeros(n, np.int64)
    look_evenly(cell, coin, x, at, n, np.zeros(2, np.int64), width)
    mix = kernel(alias_tables.mix.py_func)
    words = [U(even(U(mix(key)), width)) for key in x]
    assert cell.tolist() == [below(w, width) for w in words]
    assert coin.tolist() == [int(w) % WORDS for w in words]
    assert sum(int(w) != mix(key) for w, key in zip(words, x, strict=True)) > 150


@pytest.mark.parametrize("fine", [0, 2**20, 2**30, 2**31, WORDS - 1])
def test_ties_of_the_coin_are_decided_by_more_bits(fine: int) -> None:
    threshold, n = 12345, 4000
    words = [U((int(fold(key_of(3), i)) >> 32 << 32) | threshold) for i in range(n)]
    share, p = np.mean([wins(w, U(threshold), U(fine)) for w in words]), fine / WORDS
    assert abs(share - p) <= 5 * np.sqrt(p * (1 - p) / n)
    assert wins(U(threshold - 1), U(threshold), U(fine)) and not wins(U(threshold + 1), U(threshold), U(fine))


def held_by_cells(p: np.ndarray, width: int) -> list[Fraction]:
    """What alias cells draw, exactly."""
    cells = alias_tables.alias_cells(np.array([0, len(p)]), np.arange(len(p)), p, width).tolist()
    held = [Fraction(0)] * len(p)
    for threshold, own, alias, fine in cells:
        chance = Fraction(threshold, WORDS) + Fraction(fine, WORDS**2)
        held[own] += chance / len(cells)
        held[alias] += (1 - chance) / len(cells)
    return held


def held_by_pack(p: np.ndarray) -> list[Fraction]:
    """What the packed table of a policy draws, exactly."""
    mask, A = int(alias_mask(len(p))), len(p)
    held = [Fraction(0)] * A
    for own, word in enumerate(alias_tables.pack(p[None]).tolist()):
        chance = Fraction(word & ~mask, WORDS**2)
        held[own] += chance / A
        held[word & mask] += (1 - chance) / A
    return held


def hard_weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    heavy = np.append(np.full(1500, 1e-9), 1 - 1500e-9)
    return {
        "2^-40": np.array([2.0**-40, 1 - 2.0**-40]),
        "2^-52": np.array([2.0**-52, 1 - 2.0**-52]),
        "1e-300": np.array([1e-300, 0.25, 0.75]),
        "thirds": np.full(3, 1 / 3),
        "sevenths": np.full(7, 1 / 7),
        "off by 1e-14": np.array([0.1, 0.2, 0.7 - 1e-14]),
        "spread": rng.dirichlet(np.full(300, 0.02)),
        "heavy": heavy,
        "many": rng.dirichlet(np.ones(2000)),
        "alone": np.ones(1),
    }


@pytest.mark.parametrize("name", hard_weights())
@pytest.mark.parametrize("kind", ["cells", "padded", "packed"])
def test_tables_hold_the_stored_chances_within_the_error_that_is_charged(name: str, kind: str) -> None:
    p = hard_weights()[name]
    held = held_by_pack(p) if kind == "packed" else held_by_cells(p, len(p) + 2 if kind == "padded" else 0)
    stored = [Fraction(x) for x in p.tolist()]
    apart = sum(abs(a - b) for a, b in zip(held, stored, strict=True)) / 2
    assert apart <= alias_tables.draw_error(p.sum(), len(p) + 2)
    assert sum(held) == 1
    if name in ("2^-40", "2^-52"):
        assert abs(held[0] / stored[0] - 1) < 1e-3, "32 bits had made it impossible"


def test_large_tables_are_charged_little() -> None:
    assert alias_tables.draw_error(np.ones(1), 8_581_353) < 1e-8
    assert alias_tables.draw_error(np.ones(1), 10) < 1e-14


@pytest.mark.parametrize("gamma", [0.3, 0.9, 0.999])
def test_the_bias_of_a_finite_model_is_small_against_its_range(gamma: float) -> None:
    cmdp = cl.CMDP([[[0.5, 0.5]], [[1, 0]]], [[1.0], [0.0]], cost=[[[1.0], [0.2]]], limit=1.0, gamma=gamma)
    source = MixtureEpisodes(cmdp, cl.Mixture.single(np.ones((2, 1))))
    low, high = source.bounds
    assert np.all(source.bias > 0) and np.all(source.bias < 1e-9 * (high - low))


# ------------------------------------------------------------------------------------- sums of JAX environments


def jax_source(cost: Any, horizon: int | None, gamma: float, ends: int = 10**9) -> NetworkEpisodes:
    """Episodes of an environment that counts its steps; cost(t) is a float32, and it terminates after `ends` steps."""
    import jax.numpy as jnp

    def step(key: Any, t: Any, a: Any) -> Any:
        return t + 1, (0.0, cost(jnp, t)), t + 1 >= ends

    env = cl.environment(
        lambda key: jnp.zeros((), jnp.int32),
        step,
        lambda t: jnp.zeros(1),
        action=cl.Discrete(2),
        gamma=gamma,
        horizon=horizon,
        limits=1.0,
        bounds=([0, -2e6], [0, 2e6]),
        lanes=3,
    )
    policy = cl.categorical(()).fitted(env.obs_shape, env.action)
    return NetworkEpisodes(env, NetworkMixture.single(policy, policy.init(), Normaliser.identity(policy.inputs)))


SIGNALS: dict[str, Any] = {
    "constant": lambda np, t: np.float32(1.0004785),
    "tenth": lambda np, t: np.float32(0.1),
    "ramp": lambda np, t: np.float32(0.1) + t.astype(np.float32),
    "cancelling": lambda np, t: np.where(t % 2 == 0, np.float32(1e6), np.float32(-1e6 + 0.0625)),
}


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize(("horizon", "gamma", "ends"), [(16384, 1.0, 10**9), (700, 0.999, 10**9), (1000, 1.0, 300)])
def test_sums_of_float32_signals_are_exact(name: str, horizon: int, gamma: float, ends: int) -> None:
    """Against rational arithmetic with the float32 costs as they are, over more chunks than one, within the bias."""
    source = jax_source(SIGNALS[name], horizon, gamma, ends)
    t = np.arange(min(horizon, ends))
    costs = np.broadcast_to(SIGNALS[name](np, t), t.shape).astype(float).tolist()
    if gamma == 1:
        true = sum((Fraction(c) for c in costs), Fraction(0))
    else:
        true = sum((Fraction(c) * Fraction(gamma) ** i for i, c in enumerate(costs[:40])), Fraction(0))
        true += Fraction(float(np.sum(np.longdouble(gamma) ** t[40:] * np.array(costs[40:], np.longdouble))))
    X, _, steps = source.draw(key_of(1), 0, 3)
    assert steps == 3 * len(t) and np.ptp(X, axis=0).max() == 0
    assert abs(Fraction(float(-X[0, 1])) - true) <= Fraction(float(source.bias[1]))
    assert source.bias[1] < 1e-10 * (source.bounds[1][1] - source.bounds[0][1])


def test_a_certificate_knows_the_true_sum() -> None:
    """Summed in float32 the mean of the costs was 16,388.0, and a limit of 16,391.648 was certified."""
    source = jax_source(SIGNALS["constant"], 16384, 1.0)
    X, _, _ = source.draw(key_of(1), 0, 3)
    assert np.all(-X[:, 1] + source.bias[1] >= 16384 * float(np.float32(1.0004785)))
