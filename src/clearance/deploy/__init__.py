"""Policies in use: run with NumPy alone, exported to other runtimes, watched while they run."""
