"""Policies in use: run them with NumPy alone, export them to other runtimes, and monitor their costs."""
