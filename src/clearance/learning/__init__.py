"""Algorithm 1 and related algorithms: direction, dual step, loop and trace.

They know problems only through protocols.
"""
