"""The kind of problem that `cl.tabular` makes, without what it needs: dispatch loads no environment for it."""

from __future__ import annotations


class TableProblem:
    """A black box whose observations are the rows of a table."""
