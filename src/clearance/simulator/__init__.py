"""Simulators: Gymnasium and JAX environments, network policies, and the samplers that draw from them."""
