"""Simulators and certificates by many: the same bits, whoever does it and whoever dies."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import carts
import numpy as np
import pytest
from rays import add_node, wait_for

import clearance as cl
from clearance.certificates.episode_source import blocks
from clearance.simulator.policies.network_policy import Normaliser
from clearance.simulator.remote_lanes import Acting, map_jobs, streams, walk

pytest.importorskip("ray")


SLOW = pytest.mark.slow


def on(pair: Any, **how: Any) -> cl.Ray:
    return cl.Ray(pair[0].address, **how)


# ------------------------------------------------------------------------------------------------ certificates


@pytest.mark.parametrize("policy", ["certified", pytest.param("undecided", marks=SLOW)])
def test_a_certificate_of_a_model_by_many(policy: str, pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the evidence: verdict, bounds, episodes and steps, in blocks that do not divide the looks."""
    monkeypatch.setattr("clearance.certificates.distributed_episodes.BLOCK", 1000)
    cmdp = cl.zoo.altman_queue_discounted()
    pi = cl.optimum(cmdp.tightened(0.2 if policy == "certified" else 1e-6)).policy
    how: dict[str, Any] = {"evidence": "samples", "budget": 3e5, "seed": 7}
    here = cl.certify(cmdp, pi, **how)
    assert here.verdict == policy.upper() and here.episodes > 300
    assert cl.certify(cmdp, pi, **how, executor=on(pair, workers=2)) == here
    assert cl.certify(cmdp, pi, **how, executor=cl.Local()) == here


def test_blocks() -> None:
    assert blocks(5, 7, 3) == [(5, 3), (8, 3), (11, 1)] and blocks(0, 6, 3) == [(0, 3), (3, 3)]


def test_a_rule_is_asked_here() -> None:
    with pytest.raises(cl.InputError, match="is asked in this process: leave out executor"):
        cl.certify(cl.zoo.two_state(), lambda s: 0, executor=cl.Local())


# ------------------------------------------------------------------------------------------------ groups of lanes


def walked(simulator: Any, groups: int = 6) -> list[bytes]:
    """Groups of lanes of one iteration, bit by bit."""
    policy = cl.categorical((8,)).fitted(simulator.obs_shape, simulator.action)
    acting = Acting(policy, policy.init() + 0.1, Normaliser.identity(policy.inputs), carts.LENGTH)
    found = map_jobs(simulator, walk, acting, streams(np.uint64(5), groups))
    return [np.asarray(x).tobytes() for steps, latent in found for x in (*steps, latent)]


@pytest.mark.parametrize("workers", [pytest.param(1, marks=SLOW), 2])
def test_the_same_bits_for_any_number_of_workers(workers: int, pair: Any) -> None:
    calm = walked(carts.cart())
    with cl.Fleet(carts.cart(), on(pair, workers=workers)) as fleet:
        assert walked(fleet) == calm == walked(carts.cart())
    assert len(set(calm)) > len(calm) / 2  # groups are not copies of each other


@pytest.fixture
def how(tmp_path: Path) -> Path:
    """What befalls workers; nothing as yet."""
    (tmp_path / "how").write_text("none 0 0")
    return tmp_path / "how"


@pytest.mark.parametrize(
    "what", ["kill 1 30", *(pytest.param(x, marks=SLOW) for x in ("kill 3 30", "hang 1 30", "raise 1 30"))]
)
def test_workers_that_die_hang_or_fail_once(what: str, pair: Any, how: Path) -> None:
    """A worker is replaced, and its group repeated with the same streams."""
    calm, sim = walked(carts.cart()), carts.cart(str(how))
    how.write_text(what)
    with cl.Fleet(sim, on(pair, workers=2, patience=4.0)) as fleet:
        assert walked(fleet) == calm
        assert fleet.pool.lost == int(what.split()[1])  # type: ignore[attr-defined]
    assert len(list(how.parent.glob("suffered*"))) == int(what.split()[1])


@SLOW
def test_a_node_that_dies_among_groups(pair: Any) -> None:
    nodes, _ = pair
    doomed = add_node(nodes)
    calm, ended = walked(carts.cart(), 400), []
    with cl.Fleet(carts.cart(), on(pair, workers=3)) as fleet:
        wait_for(lambda: _all_there(fleet))
        thread = threading.Thread(target=lambda: ended.append(walked(fleet, 400)))
        thread.start()
        wait_for(lambda: fleet.pool._busy)  # type: ignore[attr-defined]
        nodes.remove_node(doomed, allow_graceful=False)
        thread.join(timeout=120)
        assert ended == [calm] and fleet.pool.lost >= 1  # type: ignore[attr-defined]


def _all_there(fleet: Any) -> bool:
    """One job each, and none is still starting."""
    walked(fleet)
    return not fleet.pool._starting


@SLOW
@pytest.mark.parametrize("what, said", [("raise 99 10", "the pole is made of glass"), ("kill 99 10", "the worker")])
def test_an_environment_that_keeps_failing(what: str, said: str, pair: Any, how: Path) -> None:
    sim = carts.cart(str(how))
    how.write_text(what)
    with cl.Fleet(sim, on(pair, workers=1)) as fleet:
        with pytest.raises(cl.EnvironmentFault, match=said):
            walked(fleet)
        how.write_text("none 0 0")
        assert fleet.map(lambda sim, shared, job: shared + job, 1, [1, 2]) == [2, 3]  # the crew is whole again


def test_what_no_worker_can_make_again() -> None:
    import gymnasium

    made = cl.gymnasium(gymnasium.make("CartPole-v1"), limits=[], horizon=10)
    with pytest.raises(cl.InputError, match="cannot be made again by a worker: give its id, or a factory"):
        cl.Fleet(made, cl.Local())


# ------------------------------------------------------------------------------------------------ learning


@SLOW
def test_learning_with_workers_that_die(pair: Any, how: Path) -> None:
    """Learning, choice and certificate: the same bits as alone, undisturbed."""
    calm, sim = carts.bits(carts.learned(carts.cart())), carts.cart(str(how))
    how.write_text("kill 2 60")
    with cl.Fleet(sim, on(pair, workers=2)) as fleet:
        assert carts.bits(carts.learned(fleet)) == calm
    assert len(list(how.parent.glob("suffered*"))) == 2


@SLOW
def test_what_was_learned_is_kept_when_an_environment_keeps_failing(pair: Any, how: Path) -> None:
    sim = carts.cart(str(how))
    with cl.Fleet(sim, on(pair, workers=1)) as fleet:

        def later(part: Any, state: Any, K: int) -> None:
            how.write_text("raise 99 10")

        with pytest.raises(cl.EnvironmentFault, match="the pole is made of glass") as e:
            carts.learned(fleet, progress=later)
        assert e.value.learned is not None


@SLOW
def test_a_jax_environment_in_groups(pair: Any) -> None:
    from clearance.zoo.simulated.model_environment import of_model

    def found(executor: Any) -> Any:
        method, budget = cl.PracticalCNPGPD(K=3, N=1000), 1e4
        with cl.Fleet(of_model(cl.zoo.two_state()), executor) as fleet:
            return carts.bits(cl.solve(fleet, method, budget=budget, policy=cl.categorical(()), seed=1))

    assert found(on(pair, workers=2)) == found(cl.Local())
