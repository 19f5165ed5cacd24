"""Environments in JAX with limits: a pendulum, a double integrator, navigation among hazards, CartPole, Acrobot."""

from clearance.simulator.zoo.balance import acrobot, cartpole
from clearance.simulator.zoo.motion import double_integrator, navigation, pendulum

__all__ = ["acrobot", "cartpole", "double_integrator", "navigation", "pendulum"]
