"""Compiled kernels over plain arrays (NumPy and numba only); they know no class of this library."""
