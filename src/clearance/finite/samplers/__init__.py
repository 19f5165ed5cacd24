"""Samplers of finite models: Algorithm 2, critics, a single trajectory, a generative model, and exact draws."""
