"""“No policy meets the limits” is said with a proof, or not at all."""

from __future__ import annotations

from fractions import Fraction

import check_certificate
import numpy as np
import pytest
from models import random_cmdp, with_limits

import clearance as cl
from clearance.exact.feasibility import decide_feasibility, prove_infeasible
from clearance.runs.worlds.finite_margin import exact_margin


def near_the_border(seed: int, scales: tuple[float, ...], sign: float = 1.0) -> tuple[cl.CMDP, np.ndarray]:
    """Costs of these scales whose limits leave 1e-11 to 1e-3 of room below a policy that is safest in one direction (or
    miss it by as much); and that policy.
    """
    rng = np.random.default_rng([7, seed])
    S, A, I = int(rng.integers(2, 9)), int(rng.integers(2, 5)), len(scales)
    gamma = float(rng.choice([0.5, 0.9, 0.99]))
    P, cost = rng.dirichlet(np.full(S, 0.4), size=(S, A)), rng.random((I, S, A)) * np.array(scales)[:, None, None]
    rho = rng.dirichlet(np.ones(S))
    free = cl.CMDP(P, rng.random((S, A)), cost=cost, limit=np.zeros(I), gamma=gamma, rho=rho)
    pi = cl.slater_margin(free.replace(b=cl.evaluate(free, np.full((S, A), 1 / A)).J[1:]))[1]
    J = cl.evaluate(free, pi).J[1:]
    return free.replace(b=J - sign * np.abs(J) * 10 ** rng.uniform(-11, -3, I)), pi


def tabular(cmdp: cl.CMDP):
    return cl.softmax(cmdp.S, cmdp.A, cmdp.available)


# Seeds at which a margin in the units of the smallest constraint was called a proof, and others.
@pytest.mark.parametrize("seed", [56, 57, 175, 254, 302, 314, 340, 440, 471, 590, *range(8)])
@pytest.mark.parametrize("scales", [(1e-4, 1e8), (1e8, 1e-8, 1.0)])
def test_a_policy_that_is_certified_excludes_infeasible(seed: int, scales: tuple[float, ...]) -> None:
    cmdp, pi = near_the_border(seed, scales)
    assert cl.certify(cmdp, pi, compare=False).verdict == "CERTIFIED"
    assert exact_margin(cmdp, tabular(cmdp)).slater != np.inf  # and nothing is raised
    assert cl.optimum(cmdp).status != "infeasible" and decide_feasibility(cmdp).verdict != "infeasible"
    with pytest.raises(cl.InputError, match="nothing to diagnose"):
        cl.diagnose(cmdp)


@pytest.mark.parametrize("seed", [340, 471])
def test_solve_learns_where_costs_are_of_scales_far_apart(seed: int) -> None:
    """What was refused as infeasible, with 1e-4 of room in each: solved, and what comes back is certified."""
    cmdp, pi = near_the_border(seed, (1e-4, 1e8))
    J = cl.evaluate(cmdp, pi).J[1:]
    roomy = cmdp.replace(b=J - 1e-4 * np.abs(J))
    assert cl.solve(roomy, budget=2e4).certificate.verdict == "CERTIFIED"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scales", [(1.0,), (1e-4, 1e8), (1e-6, 1.0, 1e6)])
def test_what_is_called_infeasible_is_proven_and_diagnosed(seed: int, scales: tuple[float, ...], tmp_path) -> None:
    """λ ≥ 0 with max_π Σ λ_i (J_gi − b_i) < 0, checked in rational arithmetic by code that is not the library's."""
    cmdp = near_the_border(seed, scales)[0]
    best = cl.slater_margin(cmdp.replace(b=np.zeros(cmdp.I)))[1]
    J = cl.evaluate(cmdp, best).J[1:]
    cmdp = cmdp.replace(b=J + 10.0 ** -np.random.default_rng(seed).uniform(1, 6) * np.abs(J))
    found = decide_feasibility(cmdp)
    if found.proof is None:  # the safest policy of all limits together may leave one of them room
        assert cl.optimum(cmdp).status != "infeasible" and cmdp.I > 1
        return
    with pytest.raises(cl.InfeasibleError) as e:
        exact_margin(cmdp, tabular(cmdp))
    assert e.value.proven and e.value.diagnosis.bound < 0 and cl.optimum(cmdp).status == "infeasible"
    cmdp.save(tmp_path / "model.npz")
    model = check_certificate.Model(check_certificate.read_npz(tmp_path / "model.npz"))
    assert np.all(found.proof.lam >= 0)
    assert model.dual_bound(0, found.proof.lam.tolist(), found.proof.V.tolist()) <= Fraction(found.proof.bound) < 0


def test_multipliers_of_one_who_lies_prove_nothing() -> None:
    """Whatever λ is offered, a model that can be met is never proven infeasible."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        cmdp = with_limits(random_cmdp(seed, I=2), 1e-9)
        assert prove_infeasible(cmdp, rng.dirichlet([0.3, 0.3])) is None


@pytest.mark.parametrize("b, verdict", [(5 / 3, "UNDECIDED"), (np.nextafter(5 / 3, 0), "FEASIBLE")])
def test_a_limit_on_the_border_is_no_proof(b: float, verdict: str) -> None:
    """max J_g = 5/3, which no float is: neither neighbour is infeasible by the word of a solver."""
    cmdp = cl.zoo.two_state().replace(b=[b])
    assert exact_margin(cmdp, tabular(cmdp)).verdict == verdict
    with pytest.raises(cl.InputError, match="the limits leave no room beyond rounding"):
        cl.solve(cmdp, budget=1e4)


# ------------------------------------------------------------------------------------------------------ policy classes


def blind(cmdp: cl.CMDP):
    """Softmax over features that are 0 everywhere: the uniform policy alone."""
    return cl.linear_softmax(np.zeros((cmdp.S, cmdp.A, 1)))


def test_what_no_policy_of_a_class_meets_is_said_of_the_class() -> None:
    """J_g = 5/3 − 4p/3 is 1 at the uniform policy: 1.5 is out of reach for it, not for all."""
    cmdp = cl.zoo.two_state().replace(b=[1.5])
    with pytest.raises(cl.InfeasibleError, match="no policy of this class meets"):
        exact_margin(cmdp, blind(cmdp))
    assert exact_margin(cmdp, tabular(cmdp)).verdict == "FEASIBLE"


def test_rounding_of_a_class_is_not_taken_for_a_proof() -> None:
    """Three actions with J_g = 0, 1, 2 (1 − γ = 1/2): the uniform policy has 1 exactly, its rounded average may not."""
    g = [[[0.0, 0.5, 1.0]]]
    for b in (1.0, np.nextafter(1.0, 2)):
        cmdp = cl.CMDP(np.ones((1, 3, 1)), [[0.0, 0.0, 0.0]], g, b, gamma=0.5)
        assert exact_margin(cmdp, blind(cmdp)).verdict != "INFEASIBLE"  # and nothing is raised


def test_of_networks_only_what_holds_for_all_policies_is_proven() -> None:
    cmdp = cl.zoo.two_state()
    network = cl.two_layer(2, 2, 4)
    assert exact_margin(cmdp.replace(b=[1.6]), network).policy is None, "not known to be in the class"
    with pytest.raises(cl.InfeasibleError, match="no policy meets"):
        exact_margin(cmdp.replace(b=[1.7]), network)
