"""Environments in JAX with limits: a pendulum, a double integrator, navigation among hazards, CartPole, Acrobot."""

from clearance.zoo.simulated.balance import acrobot, cartpole
from clearance.zoo.simulated.motion import double_integrator, navigation, pendulum

__all__ = ["acrobot", "cartpole", "double_integrator", "navigation", "pendulum"]
