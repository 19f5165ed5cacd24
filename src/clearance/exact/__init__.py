"""Exact results about finite models: the optimum, rigorous bounds, exact certificates, infeasibility and theory."""
