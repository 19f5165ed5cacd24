"""The linear program against the reference tables, weak duality and the KKT conditions."""

from __future__ import annotations

import numpy as np
import pytest
from models import random_cmdp, with_limits

import clearance as cl
from clearance import zoo
from clearance.exact.enclosure import dual_function
from clearance.exact.feasibility import Method
from clearance.finite.evaluation import occupancy, policy_from_occupancy, values_from_occupancy

BAI, CLASS = zoo.bai2023(), cl.class_model(zoo.bai2023(), zoo.bai2023_policy())

# Instance, Slater margin (max J_g − b), optimum, λ*: computed independently, to the digits printed.
REFERENCE = {
    "bai2023": (BAI, 0.3580401729, 3.4592363540, 0.7310566),
    "bai2023, d = 35 class": (CLASS, 0.0411263785, 2.8131583213, 3.1973065),
    "bai2023, κ = 0.1": (BAI.tightened(0.1), 0.2580401729, 3.3861307, None),
    "bai2023, κ = 0.2": (BAI.tightened(0.2), 0.1580401729, 3.2405089, 1.782),
    "bai2023, κ = 0.3": (BAI.tightened(0.3), 0.0580401729, 2.9853984, 3.030),
    "ding2020": (zoo.ding2020(), 1.5250274, 4.4624436, 0.2426697),
    "ding2023": (zoo.ding2023(), 5.5564583, 8.1638625, 0.2052229),
    "frozen lake": (zoo.frozen_lake(), 0.1, 0.45914706, 4.591471),
    "two states": (zoo.two_state(), 2 / 3, 2 / 3, 1.0),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_reference_values(name: str) -> None:
    cmdp, slater, J_r, lam = REFERENCE[name]
    best = cl.optimum(cmdp)
    assert best.status == "optimal"
    assert best.attained_margin == pytest.approx(slater, abs=1e-7)
    assert best.J_r == pytest.approx(J_r, abs=1e-7)
    if lam is not None:
        digits = 6 if lam != round(lam, 3) or lam == 1.0 else 3
        assert best.lam[0] == pytest.approx(lam, abs=0.6 * 10.0**-digits)


def test_unconstrained_values_of_the_tables() -> None:
    for cmdp, J_r, J_g in ((BAI, 3.7906958846, -0.8413669), (zoo.ding2020(), 4.5169236, 2.4175820)):
        free = cl.CMDP(cmdp.P, cmdp.r, rho=cmdp.rho, gamma=cmdp.gamma)
        best = cl.optimum(free)
        assert best.J_r == pytest.approx(J_r, abs=1e-7)
        assert best.attained_margin == np.inf
        assert cl.evaluate(cmdp, best.policy).J[1] == pytest.approx(J_g, abs=1e-7)
    lake = zoo.frozen_lake()
    free = cl.optimum(cl.CMDP(lake.P, lake.r, rho=lake.rho, gamma=lake.gamma))
    assert free.J_r == pytest.approx(0.54202593, abs=1e-7)
    assert -cl.evaluate(lake, free.policy).J[1] == pytest.approx(0.11805, abs=1e-5)


@pytest.mark.parametrize("kappa", [0.4, 0.5, 1.0])
def test_the_papers_kappas_are_infeasible_on_its_own_instance(kappa: float) -> None:
    best = cl.optimum(BAI.tightened(kappa))
    assert best.status == "infeasible"
    assert best.attained_margin == pytest.approx(0.3580401729 - kappa, abs=1e-9)


def random_model(seed: int, I: int) -> cl.CMDP:
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(2, 12)), int(rng.integers(1, 6))
    P = rng.dirichlet(np.full(S, 0.3), size=(S, A))
    g = rng.uniform(-1, 1, (I, S, A))
    gamma = float(rng.choice([0.5, 0.9, 0.99]))
    free = cl.CMDP(P, rng.normal(size=(S, A)), g, -1e3, gamma=gamma, rho=rng.dirichlet(np.ones(S)))
    if I == 0:
        return free
    start = cl.slater_margin(free.replace(b=np.zeros(I)))[0]
    return free.replace(b=np.full(I, start - rng.uniform(0.01, 0.5)))  # feasible, with a margin


@pytest.mark.parametrize("I", [0, 1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_kkt_weak_duality_and_feasibility(seed: int, I: int) -> None:
    cmdp = random_model(seed, I)
    best = cl.optimum(cmdp)
    scale = np.abs(cmdp.h).max() / (1 - cmdp.gamma)
    assert np.all(best.slack >= 0), "the limits hold after rounding, not to ±1e-15"
    assert np.all(best.lam >= 0)
    assert best.complementarity == pytest.approx(np.zeros(I), abs=1e-6 * scale)
    assert -1e-12 * scale <= best.gap <= 1e-6 * scale
    rng = np.random.default_rng(seed)
    for lam in rng.exponential(size=(5, I)):  # weak duality: D(λ) bounds every feasible policy
        assert dual_function(cmdp, lam)[0] >= best.J_r - 1e-10 * scale
    mixtures = rng.dirichlet(np.ones(cmdp.A), size=(200, cmdp.S))
    J = values_from_occupancy(cmdp, occupancy(cmdp, mixtures))
    feasible = np.all(J[:, 1:] >= cmdp.b, axis=1)
    assert np.all(J[feasible, 0] <= best.bound + 1e-10 * scale)
    assert np.max(np.min(J[:, 1:] - cmdp.b, axis=1, initial=np.inf)) <= best.attained_margin + 1e-9 * scale


def test_stationarity_an_optimal_policy_acts_greedily_for_the_lagrangian() -> None:
    best = cl.optimum(BAI)
    A_L = cl.evaluate(BAI, best.policy).A
    A_L = A_L[0] + best.lam[0] * A_L[1]
    assert A_L[best.d > 1e-8] == pytest.approx(0.0, abs=1e-7)
    assert A_L.max() <= 1e-7


def test_sparse_and_dense_agree() -> None:
    from scipy import sparse

    dense = zoo.ding2023()
    thin = cl.CMDP(sparse.csr_array(dense.rows), dense.r, dense.g, dense.b, rho=dense.rho, gamma=dense.gamma)
    assert pytest.approx(cl.optimum(dense).J, abs=1e-8) == cl.optimum(thin).J


def test_at_most_I_randomised_states() -> None:
    for cmdp in (zoo.frozen_lake(), zoo.altman_queue_discounted(), BAI):
        pi = cl.optimum(cmdp).policy
        assert np.sum(pi.max(1) < 1 - 1e-9) <= cmdp.I


def test_policy_of_an_occupancy_gives_it_back() -> None:
    pi = np.random.default_rng(1).dirichlet(np.ones(5), size=10)
    assert policy_from_occupancy(occupancy(BAI, pi)) == pytest.approx(pi, abs=1e-12)


@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.999])
@pytest.mark.parametrize("seed", range(3))
def test_limits_on_the_border_of_the_feasible(seed: int, gamma: float) -> None:
    """Where the linear program is refused for rounding, column generation takes over; no proof is claimed."""
    cmdp = with_limits(random_cmdp(seed, S=30, I=3, gamma=gamma), 0.0)
    best = cl.optimum(cmdp)
    assert best.status in ("optimal", "borderline") and best.slack.min() >= -1e-10 / (1 - gamma)
    assert best.gap >= 0 and abs(best.bound - best.J_r) <= 1e-3 / (1 - gamma)


@pytest.mark.parametrize("method", ["lp", "columns"])
def test_a_signal_that_one_action_makes_constant_is_bounded_tightly(method: Method) -> None:
    """Policy iteration is done at V = 0 then; the bound, and with it the proof of infeasibility, must not be."""
    queue = zoo.queue_power()
    power = queue.replace(h=np.concatenate([0 * queue.h[:1], queue.g]))
    assert dual_function(power, np.ones(1))[0] == pytest.approx(4.6, abs=1e-9)
    assert cl.optimum(queue.replace(b=queue.b + 4.7), method=method).status == "infeasible"
