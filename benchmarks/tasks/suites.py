"""The suites: which tasks there are, and how many environment steps each gets for everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import classics
import impossible
import moving
import operating
import unseen

from clearance.zoo import simulated


class Task(NamedTuple):
    """A task: what makes its problem, its budget, and what it is there for."""

    make: Callable[[], Any]
    budget: float
    kind: str


DEVELOPMENT = {
    "hazards": Task(moving.hazards, 5e5, "a detour, sparse cost, random start and goal"),
    "mountain-car": Task(moving.mountain_car, 5e5, "a reward that must be found, a resource"),
    "corridor": Task(moving.corridor, 2e5, "a sparse reward in two stages, a cost beside the way"),
    "launch": Task(moving.launch, 2e5, "safety at the start only"),
    "cruise": Task(moving.cruise, 5e5, "a long horizon, a cost that opposes the reward in places"),
    "bridge": Task(moving.bridge, 3e5, "discrete, a detour, sparse cost, tight limit"),
    "icy-road": Task(moving.icy_road, 3e5, "a rare catastrophe of a large cost"),
    "stock": Task(operating.stock, 3e5, "two limits that oppose each other, delays"),
    "heating": Task(operating.heating, 3e5, "discounted without end, a dense cost that opposes the reward"),
    "four-queues": Task(operating.four_queues, 4e5, "four limits, discrete, the first policy breaks them"),
    "bidding": Task(operating.bidding, 1e5, "ten steps, costs of 10⁴"),
    "reactor": Task(operating.reactor, 3e5, "discounted with a horizon, signals of 10⁻³ and 10⁻⁵"),
    "pendulum": Task(simulated.pendulum, 4e5, "a resource, an unstable optimum"),
    "cartpole": Task(simulated.cartpole, 5e5, "two limits, discrete, termination"),
    "acrobot": Task(simulated.acrobot, 5e5, "two limits, discrete, a reward that must be found"),
    "lunar": Task(classics.lunar, 5e5, "Box2D; a cost that opposes the reward"),
    "reacher": Task(classics.reacher, 3e5, "MuJoCo; a dense cost that opposes the reward"),
    "hopper": Task(classics.hopper, 4e5, "MuJoCo; a speed limit"),
}

HELD_OUT = {
    "two-rooms": Task(unseen.two_rooms, 4e5, "a narrow way, sparse cost"),
    "docking": Task(unseen.docking, 4e5, "two limits, a fuel budget"),
    "epidemic": Task(unseen.epidemic, 3e5, "discrete; a cost far behind its cause"),
    "crossing": Task(unseen.crossing, 3e5, "discounted; a cost that ends the episode"),
    "reservoir": Task(unseen.reservoir, 3e5, "discounted without end; two limits that oppose each other"),
    "pricing": Task(unseen.pricing, 2e5, "three limits that oppose the reward"),
    "scheduling": Task(unseen.scheduling, 3e5, "three limits, two discrete actions at once"),
    "field": Task(unseen.field, 3e5, "obstacles that are elsewhere in every episode"),
    "swing": Task(unseen.swing, 4e5, "Gymnasium's Pendulum; a limit on speed"),
    "cheetah": Task(unseen.cheetah, 4e5, "MuJoCo; a torque budget"),
}

IMPOSSIBLE = {
    "drift": Task(impossible.drift, 1e5, "nothing meets the limit"),
    "conflict": Task(impossible.conflict, 1e5, "two limits that cannot both be met"),
    "noise": Task(impossible.noise, 1e5, "a cost that no action changes"),
}

SUITES = {"development": DEVELOPMENT, "held-out": HELD_OUT, "impossible": IMPOSSIBLE}
