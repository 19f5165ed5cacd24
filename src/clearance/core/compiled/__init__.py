"""Compiled kernels over plain arrays. They use NumPy and numba only, and no class of the other packages."""
