"""Adapters between the pipeline and the kinds of problems.

Each kind of problem has one adapter, which implements the protocol `World`.
"""
