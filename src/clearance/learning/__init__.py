"""Algorithm 1 and related algorithms: update direction, dual step, loop and trace.

The algorithms know problems only through protocols.
"""
