"""What `solve` is given is what it runs, or it is refused in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from learners import pole

import clearance as cl
from clearance.learning.state import Info, State


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"evidence": "exact"}, "evidence of pole is 'samples', got 'exact': leave it out"),
        ({"exact_J": True}, "exact_J is for finite models: leave it out"),
        ({"method": cl.RegularisedCNPGPD()}, "method RegularisedCNPGPD is for finite models; simulators take"),
        ({"sampler": 3}, "sampler int is for finite models"),
    ],
)
def test_a_simulator_refuses_what_it_would_ignore(how: dict[str, Any], says: str) -> None:
    with pytest.raises(cl.InputError, match=says):
        cl.solve(pole(), **how)


@pytest.mark.parametrize("method", [cl.PracticalCNPGPD(), cl.PracticalCRPO()])
def test_a_model_refuses_the_methods_of_simulators(method: Any) -> None:
    with pytest.raises(cl.InputError, match=f"method {type(method).__name__} is for simulators"):
        cl.solve(cl.zoo.two_state(), method)


@dataclass(frozen=True)
class Still(cl.CNPGPD):
    """A user's method, derived from Algorithm 1, that never moves."""

    def step(self, key: np.uint64, sampler: Any, state: State, lam_max: float) -> tuple[State, Info]:
        _, J_hat, memory, steps = sampler.batch(key, state.sampler_memory, state.theta, self.N)
        return state._replace(k=state.k + 1, sampler_memory=memory), Info(J_hat, 0.0, steps)


def test_a_subclass_runs_its_own_step() -> None:
    """And not the compiled steps of the class that it is derived from."""
    sol = cl.solve(cl.zoo.two_state(), Still(K=5, N=4))
    assert not sol.trace.theta.any() and not sol.trace.omega_norm.any()
    assert cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=5, N=4)).trace.omega_norm.all()


def test_a_margin_within_rounding_is_not_called_too_small() -> None:
    """A model whose limits can be met, but by less than rounding: the message does not say that none can meet them."""
    two = cl.zoo.two_state()
    slater, _ = cl.slater_margin(two)
    barely = two.replace(b=two.b + slater - 1e-11)
    with pytest.raises(cl.InputError, match=r"which is below the rounding error .* of J_g; relax the limits a little"):
        cl.solve(barely, cl.CNPGPD(K=2, kappa=2e-12))
    with pytest.raises(cl.InputError, match=r"is not below the Slater margin .* no policy keeps it; choose kappa <"):
        cl.solve(two, cl.CNPGPD(K=2, kappa=2 * slater))
