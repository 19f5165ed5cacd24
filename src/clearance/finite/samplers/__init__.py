"""Samplers of finite models: Algorithm 2, a critic, a single trajectory, a generative model, exact draws."""
