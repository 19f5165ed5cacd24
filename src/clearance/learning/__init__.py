"""Algorithm 1 and related algorithms: update direction, dual step, loop and trace.

Algorithms access the problem only through protocols, so they do not depend on the kind of model or simulator.
"""
