"""Samplers on simulators: actor-critic batches, and the unbiased draws of Algorithm 2."""
