"""Environments written in JAX as constrained problems."""
