"""Adapters between the pipeline and the kinds of problems.

There is one for each kind, all with the protocol `World`.
"""
