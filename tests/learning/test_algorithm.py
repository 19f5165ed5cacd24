"""Algorithm 1: what it must converge to, and what must not change its result."""

from __future__ import annotations

import numpy as np
import pytest
from models import random_cmdp, with_limits

import clearance as cl
from clearance.core.random_streams import key_of
from clearance.finite.evaluation import evaluate, occupancy, values_from_occupancy
from clearance.learning.loop import _advance


@pytest.mark.parametrize("resets", [True, False])
@pytest.mark.parametrize("I", [pytest.param(0, marks=pytest.mark.slow), 1, 3])
def test_compiled_run_follows_the_readable_step(I: int, resets: bool) -> None:
    """Same streams, same walks: the traces agree to rounding, iteration by iteration."""
    cmdp = with_limits(random_cmdp(2, I=I), 0.5) if I else random_cmdp(2, I=0)
    policy = cl.linear_softmax(np.random.default_rng(0).normal(size=(6, 3, 4)))
    method = cl.CNPGPD(K=30, N=20, kappa=0.1)
    sampler = cl.Table(cmdp, policy, resets=resets)
    fast = cl.solve(cmdp, method, policy=policy, sampler=sampler, seed=3)
    state = method.init(policy.init(), cmdp.I)
    for k in range(method.K):
        before = state
        state, info = method.step(_key(3, k), sampler, state, fast.lam_max)
        assert fast.trace.theta[k] == pytest.approx(before.theta, abs=1e-9)
        assert fast.trace.lam[k] == pytest.approx(before.lam, abs=1e-9)
        assert fast.trace.J_hat[k] == pytest.approx(info.J_hat, abs=1e-9)
        assert fast.trace.omega_norm[k] == pytest.approx(info.omega_norm, abs=1e-9)
        assert fast.trace.steps[k] == info.steps
    assert fast.state.theta == pytest.approx(state.theta, abs=1e-9)


def _key(seed: int, k: int) -> np.uint64:
    from clearance.core.random_streams import fold

    return fold(key_of(seed), k)


def test_averaged_occupancy_policy_has_the_mean_of_the_iterates_values() -> None:
    """J(π̄) = mean_k J(π_k) = J(averaged-occupancy policy), to 1e-10."""
    cmdp, policy = cl.zoo.bai2023(), cl.zoo.bai2023_policy()
    solution = cl.solve(cmdp, cl.CNPGPD(K=600, N=50), policy=policy, seed=1)
    mean = solution.trace.J.mean(0)
    assert solution.mixture.J(cmdp) == pytest.approx(mean, abs=1e-10)
    assert pytest.approx(mean, abs=1e-10) == evaluate(cmdp, solution.average.pi[0]).J
    assert solution.mixture.stationary(cmdp).pi == pytest.approx(solution.average.pi, abs=1e-10)
    unrecorded = cl.solve(cmdp, cl.CNPGPD(K=600, N=50), policy=policy, seed=1, exact_J=False)
    assert len(unrecorded.trace.J) == 0
    assert unrecorded.average.pi == pytest.approx(solution.average.pi, abs=1e-10)


def test_trace_holds_exact_values_of_its_own_iterates() -> None:
    cmdp = with_limits(random_cmdp(5, I=2), 0.3)
    solution = cl.solve(cmdp, cl.CNPGPD(K=20, N=5))
    pi = solution.policy_class.pi(solution.trace.theta)
    assert pytest.approx(values_from_occupancy(cmdp, occupancy(cmdp, pi)), abs=1e-12) == solution.trace.J
    assert solution.trace.theta[0] == pytest.approx(0) and solution.trace.lam[0] == pytest.approx(0)


def test_same_seed_same_bits_alone_or_in_threads_and_in_any_chunks() -> None:
    cmdp, policy = cl.zoo.bai2023(), cl.zoo.bai2023_policy()
    method = cl.CNPGPD(K=300, N=20, kappa=0.0)

    def run(seed: int) -> cl.Solution:
        return cl.solve(cmdp, method, policy=policy, seed=seed)

    alone = [run(s) for s in range(4)]
    told: list[tuple[int, int]] = []
    together = cl.run_all(run, range(4), threads=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(i, 4) for i in range(1, 5)]
    for a, b in zip(alone, together, strict=True):
        assert np.array_equal(a.trace.theta, b.trace.theta) and np.array_equal(a.trace.J_hat, b.trace.J_hat)
    assert not np.array_equal(alone[0].trace.theta, alone[1].trace.theta)
    sampler, state = cl.Table(cmdp, policy), method.init(policy.init(), 1)
    for n in (1, 7, 292):  # as an interrupted and resumed run would go
        state, _ = _advance(sampler, method, key_of(2), state, n, alone[2].lam_max)
    assert np.array_equal(state.theta, alone[2].state.theta) and np.array_equal(state.lam, alone[2].lam)


def exact_run(cmdp: cl.CMDP, K: int, eta1: float, eta2: float, kappa: float = 0.0) -> cl.Solution:
    policy = cl.softmax(cmdp.S, cmdp.A)
    method = cl.CNPGPD(K=K, N=1, eta1=eta1, eta2=eta2, kappa=kappa, direction=cl.Tabular())
    return cl.solve(cmdp, method, policy=policy, sampler=cl.Exact(cmdp, policy))


def test_exact_algorithm_converges_to_the_linear_program() -> None:
    """Without noise the average iterate tends to the LP optimum; the error falls like 1/√K or faster."""
    Ks, error, binding = np.array([100, 400, 1600]), np.zeros(3), 0
    for seed in range(8):
        cmdp = with_limits(random_cmdp(seed, S=4, A=2, I=1, gamma=0.5), 0.2)
        best = cl.optimum(cmdp)
        if best.lam[0] < 0.01:
            continue  # the limit must bind for this to mean anything
        binding += 1
        for i, K in enumerate(Ks):
            J = exact_run(cmdp, int(K), eta1=0.3, eta2=4 / np.sqrt(K)).trace.J.mean(0)
            error[i] += max(0.0, best.J_r - J[0]) + best.lam[0] * max(0.0, cmdp.b[0] - J[1])
    assert np.polyfit(np.log(Ks), np.log(error), 1)[0] < -0.4
    assert binding >= 4 and error[-1] / binding < 0.05


def test_two_state_optimum_and_multiplier() -> None:
    solution = exact_run(cl.zoo.two_state(), 3000, eta1=0.5, eta2=0.05)
    assert solution.trace.J.mean(0) == pytest.approx([2 / 3, 1.0], abs=0.01)
    assert solution.trace.lam.mean(0) == pytest.approx([1.0], abs=0.05)


def test_kappa_moves_the_average_to_the_safe_side() -> None:
    """C-NPG-PD's point: κ > 0 buys J_g ≥ b for the average, at a small price in reward. Should be ≥ 0."""
    cmdp = cl.zoo.bai2023()
    plain, careful = (exact_run(cmdp, 500, 0.1, 0.1, kappa).trace.J.mean(0) for kappa in (0.0, 0.05))
    assert plain[1] < 0 <= careful[1]
    assert careful[0] > 0.97 * cl.optimum(cmdp).J_r


def test_several_constraints_and_one_that_does_not_bind() -> None:
    cmdp = cl.zoo.altman_queue_discounted()
    best = cl.optimum(cmdp)
    solution = exact_run(cmdp, 3000, eta1=0.2, eta2=0.02)
    assert solution.trace.J.mean(0)[0] == pytest.approx(best.J_r, abs=0.05)
    assert np.all(solution.trace.J.mean(0)[1:] > -0.05)
    loose = cmdp.replace(b=np.array([0.0, -100.0]))
    assert exact_run(loose, 500, 0.2, 0.02).trace.lam[:, 1].max() == 0, "a limit far away never gets a multiplier"


def test_without_constraints_it_is_plain_natural_policy_gradient() -> None:
    cmdp = random_cmdp(6, I=0)
    solution = exact_run(cmdp, 200, eta1=1.0, eta2=1.0)
    assert solution.trace.J[-1, 0] == pytest.approx(cl.optimum(cmdp).J_r, abs=1e-3)
    assert np.all(np.diff(solution.trace.J[:, 0]) > -1e-10), "exact natural gradient never steps back"


def test_infeasible_and_too_conservative_problems_are_told_before_time_is_spent() -> None:
    cmdp = cl.zoo.bai2023()
    with pytest.raises(cl.InfeasibleError, match=r"relax the limit by 0\.14196") as e:
        cl.solve(cmdp.replace(b=np.array([0.5])), cl.CNPGPD(K=10**9))
    assert e.value.slater == pytest.approx(0.3580401729 - 0.5, abs=1e-9)
    with pytest.raises(cl.InputError, match=r"kappa = 0\.5 is not below the Slater margin 0\.35804"):
        cl.solve(cmdp, cl.CNPGPD(K=10**9, kappa=0.5))
    with pytest.warns(cl.ConservatismWarning, match=r"kappa = 0.5 .* lam_max = 5"):
        solution = cl.solve(cmdp, cl.CNPGPD(K=200, N=5, kappa=0.5, lam_max=5.0))
    assert solution.lam[0] == 5.0 and solution.path_bound is None


def test_default_bound_of_multipliers_holds_lambda_star() -> None:
    for cmdp in (cl.zoo.bai2023(), cl.zoo.ding2020(), cl.zoo.altman_queue_discounted()):
        solution = cl.solve(cmdp, cl.CNPGPD(K=1, N=1))
        assert cl.optimum(cmdp).lam.sum() <= solution.lam_max / 2


def test_a_failing_job_ends_them_all_with_its_own_error() -> None:
    def job(n: int) -> int:
        if n == 3:
            raise ValueError("job 3")
        return n

    assert cl.run_all(job, range(3), threads=2) == [0, 1, 2]
    with pytest.raises(ValueError, match="job 3"):
        cl.run_all(job, range(50), threads=2)
