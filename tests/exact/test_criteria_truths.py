"""Models with a known answer under each criterion: queues, a disk drive, and a model checker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.exact.never import never_words
from clearance.finite.evaluation import evaluate
from tests.support.criterion_truths import average_optimum, random_model


def admission(**criterion: Any) -> cl.CMDP:
    """M/M/1/20, uniformised: arrivals .45, service .5; admit (reward 1 per arrival) while on average 3 wait."""
    S, arrive, serve = 21, 0.45, 0.5
    P = np.zeros((S, 2, S))
    for x, a in np.ndindex(S, 2):
        up, down = arrive * a * (x < S - 1), serve * (x > 0)
        P[x, a, min(x + 1, S - 1)] += up
        P[x, a, max(x - 1, 0)] += down
        P[x, a, x] += 1 - up - down
    r, cost = np.tile([0.0, arrive], (S, 1)), np.repeat(np.arange(S, dtype=float)[:, None], 2, 1)
    r[-1] = 0
    limit = 3.0 if "criterion" in criterion else 3.0 / (1 - criterion["gamma"])
    return cl.CMDP(P, r, cost=cost, limit=limit, rho=np.eye(S)[0], **criterion)


def test_admission_control_in_the_long_run() -> None:
    queue = admission(criterion="average")
    best = cl.optimum(queue)
    assert best.J_r == pytest.approx(average_optimum(queue), rel=1e-7)
    assert np.sum((best.policy[:, 1] > 1e-6) & (best.policy[:, 1] < 1 - 1e-6)) <= 1
    gamma = 1 - 1e-6
    assert (1 - gamma) * cl.optimum(admission(gamma=gamma)).J_r == pytest.approx(best.J_r, abs=1e-5)


def disk(limit: float) -> cl.CMDP:
    """The disk of Qiu, Wu and Pedram 1999, uniformised: sleeping, idle or busy with 0..20 requests; least mean power.

    Arrivals 1/0.72, service 125, waking 10/16, falling asleep 100/67 per second; .13, .95 and 2.15 W, 7 J to wake and
    .067 J to fall asleep. It wakes when the queue is full. Actions: stay, or change between sleep and idle.
    """
    arrive, serve, wake, doze, N = 1 / 0.72, 125.0, 10 / 16, 100 / 67, 20
    rate = arrive + serve + wake + doze
    states = [(mode, q) for mode in ("sleep", "awake") for q in range(N + 1)]
    S = len(states)
    P, power, queue = np.zeros((S, 2, S)), np.zeros((S, 2)), np.zeros((S, 2))
    for s, (mode, q) in enumerate(states):
        for a in range(2):
            moves = {(mode, min(q + 1, N)): arrive}
            queue[s, a] = q
            if mode == "sleep":
                wakes = wake * (a == 1 or q == N)
                moves[("awake", q)] = wakes
                power[s, a] = 0.13 + 7.0 * wakes
            else:
                moves[("awake", max(q - 1, 0))] = moves.get(("awake", max(q - 1, 0)), 0.0) + serve * (q > 0)
                dozes = doze * (a == 1 and q == 0)
                moves[("sleep", q)] = dozes
                power[s, a] = (2.15 if q else 0.95) + 0.067 * dozes
            for target, speed in moves.items():
                P[s, a, states.index(target)] += speed / rate
            P[s, a, s] += 1 - P[s, a].sum()
    return cl.CMDP(P, -power, cost=queue, limit=limit, rho=np.eye(S)[0], criterion="average", names=["queue"])


@pytest.mark.parametrize("limit", [0.5, 1.0, 2.0])
def test_disk_drive_with_the_least_power(limit: float) -> None:
    drive = disk(limit)
    best = cl.optimum(drive)
    assert best.status == "optimal" and best.J_r == pytest.approx(average_optimum(drive), rel=1e-7)
    assert cl.certify(drive, best, best=best).verdict == "CERTIFIED"


def test_a_certified_mean_is_the_stationary_one() -> None:
    """The queue of the tutorial: by its stationary distribution, an eigenvector, at most two customers wait."""
    room, arrive, finish = 10, 0.3, (0.25, 0.6)
    P = np.zeros((room + 1, 2, room + 1))
    for s, (a, q) in ((s, x) for s in range(room + 1) for x in enumerate(finish)):
        done, came = (q if s > 0 else 0.0), (arrive if s < room else 0.0)
        P[s, a, min(s + 1, room)] += came * (1 - done)
        P[s, a, max(s - 1, 0)] += done * (1 - came)
        P[s, a, s] += done * came + (1 - done) * (1 - came)
    waiting = np.repeat(np.arange(room + 1.0)[:, None], 2, 1)
    model = cl.CMDP(
        P, -np.tile([1.0, 4.0], (room + 1, 1)), cost=waiting, limit=2, rho=np.eye(11)[0], criterion="average"
    )
    best = cl.optimum(model)
    assert cl.certify(model, best).verdict == "CERTIFIED"
    values, vectors = np.linalg.eig(np.einsum("sa,sat->ts", best.policy, P))
    share = np.real(vectors[:, np.argmax(np.real(values))])
    assert share @ np.arange(room + 1) / share.sum() <= 2 + 1e-9
    discounted = cl.optimum(model.replace(criterion="discounted", gamma=0.95, limit=40.0)).policy
    assert -evaluate(model, discounted).J[1] > 6, "what the discounted limit 2/(1 − γ) allows in the long run"


def test_never_on_the_frozen_lake() -> None:
    lake = cl.zoo.frozen_lake(8).replace(limit=0.0, criterion="total")
    best = cl.optimum(lake)
    sure = cl.certify(lake, best, best=best)
    assert sure.verdict == "CERTIFIED" and "no run can have holes" in sure.message and sure.J_upper[1] == 0
    assert best.J_r == pytest.approx(1.0, abs=1e-9), "the goal is reached surely"


@pytest.mark.slow
def test_storm_agrees(tmp_path: Path) -> None:
    """Sums until absorption, over a horizon and long-run means under a limit; Storm's own precision is 1e-4."""
    stormpy = pytest.importorskip("stormpy")
    lake, queue = cl.zoo.frozen_lake(4), cl.zoo.lazar()
    cases = [
        (lake.replace(criterion="total"), 'multi(R{"reward"}max=? [C], R{"holes"}<=0.1 [C])'),
        (lake.replace(horizon=40), 'multi(R{"reward"}max=? [C<=40], R{"holes"}<=0.1 [C<=40])'),
        (queue, 'multi(R{"reward"}max=? [LRA], R{"holding"}<=3 [LRA])'),
    ]
    for n, (model, text) in enumerate(cases):
        cl.save_model(model, tmp_path / f"{n}.drn")
        told = stormpy.build_model_from_drn(str(tmp_path / f"{n}.drn"))
        found = stormpy.model_checking(told, stormpy.parse_properties(text)[0])  # one number, for the initial state
        assert float(str(found)) == pytest.approx(cl.optimum(model).J_r, abs=2e-4), text


@pytest.mark.slow
def test_storm_agrees_on_never(tmp_path: Path) -> None:
    """Storm does not end with the limit 0 itself; it gets the model without the pairs that can lead into a hole."""
    stormpy = pytest.importorskip("stormpy")
    lake = cl.zoo.frozen_lake(8).replace(criterion="total", limit=0.0)
    P = np.asarray(lake.rows.toarray() if lake.is_sparse else lake.rows).reshape(lake.S, lake.A, lake.S)
    kept, before = lake.available & (lake.g[0] == 0), lake.available
    while not np.array_equal(kept, before):
        before, kept = kept, kept & (P[:, :, ~kept.any(axis=1)].sum(-1) == 0)
    kept = np.where(kept.any(axis=1, keepdims=True), kept, lake.available)  # of states that are not entered any more
    part = cl.CMDP(P, lake.r, rho=lake.rho, criterion="total", available=kept)
    cl.save_model(part, tmp_path / "lake.drn")
    told = stormpy.build_model_from_drn(str(tmp_path / "lake.drn"))
    found = stormpy.model_checking(told, stormpy.parse_properties('R{"reward"}max=? [C]')[0])
    best = cl.optimum(lake)
    assert found.get_value(told.initial_states[0]) == pytest.approx(best.J_r, abs=2e-4)
    assert cl.certify(lake, best, best=best).verdict == "CERTIFIED"


def rooms_with_costly_doors() -> cl.CMDP:
    """Door 0 leads to rooms 1 to 3, where a run may stay or go back; every door is paid for, and so is staying in 3."""
    P, r, cost = np.zeros((4, 3, 4)), np.zeros((4, 3)), np.zeros((2, 4, 3))
    P[0, [0, 1, 2], [1, 2, 3]] = 1
    cost[0, 0] = 1.0
    for s in (1, 2, 3):
        P[s, 0, s], P[s, 1:, 0] = 1, 1
        cost[0, s, 1:] = 0.5
    r[0], r[1:, 0] = 2.0, (1.0, 0.5, 5.0)
    cost[1, 1, 0], cost[0, 3, 0] = 1.0, 0.001
    labels: Any = {"names": ["damage", "energy"], "criterion": "average"}
    return cl.CMDP(P, r, cost=cost, limit=[0.0, 0.5], rho=[1.0, 0, 0, 0], **labels)


def test_a_mean_of_zero_beside_another_limit_allows_costs_on_the_way() -> None:
    """Half of the runs stay in room 1 and half in room 2: .75. All else pays damage for ever, or too much energy."""
    cmdp = rooms_with_costly_doors()
    best = cl.optimum(cmdp)
    assert best.status == "optimal" and best.J_r == pytest.approx(0.75, abs=1e-7) and best.gap < 1e-7
    found = cl.certify(cmdp, best, best=best)
    assert found.verdict == "CERTIFIED" and found.J_g_lower[0] == 0.0


def test_a_mean_of_zero_that_is_impossible_names_the_states() -> None:
    cmdp = rooms_with_costly_doors()
    h = cmdp.h.copy()
    h[1, 1:, 0] = -0.1
    assert cl.optimum(cmdp.replace(h=h)).status == "infeasible"
    words = never_words(cmdp.replace(h=h))
    assert words == "damage in the long run cannot be avoided from states 0, 1, 2, 3"


@pytest.mark.parametrize("seed", range(12))
def test_means_of_zero_are_those_of_the_linear_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cmdp = random_model(seed, criterion="average")
    cost = np.where(rng.random((cmdp.S, cmdp.A)) < 0.4, rng.random((cmdp.S, cmdp.A)), 0.0)
    cmdp = cmdp.replace(h=np.stack([cmdp.r, -cost]), b=[0.0], names=["damage"])
    truth, best = average_optimum(cmdp), cl.optimum(cmdp)
    assert (truth is None) == (best.status == "infeasible")
    if truth is not None:
        assert best.status == "optimal" and best.J_r == pytest.approx(truth, rel=1e-6, abs=1e-6)
        assert best.bound >= truth - 1e-7 and cl.certify(cmdp, best, best=best).verdict == "CERTIFIED"
