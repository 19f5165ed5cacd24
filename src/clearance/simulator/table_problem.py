"""The base class of problems made by `cl.tabular`, in its own module so that dispatch need not import Gymnasium."""

from __future__ import annotations


class TableProblem:
    """A black-box environment whose observations are numbered as rows of a table."""
