"""Simulators: Gymnasium and JAX environments, network policies and their samplers."""
