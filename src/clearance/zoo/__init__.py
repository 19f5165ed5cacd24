"""Models with a known definition and, where the docstring says so, a known optimum."""

from clearance.zoo.random_cmdp import bai2023, bai2023_policy, ding2020, ding2023, random_cmdp
from clearance.zoo.small import altman_queue, two_state
from clearance.zoo.toy_text import frozen_lake, gymnasium_table

# What the command line calls a zoo name: a model that needs no arguments.
MODELS = {
    "altman-queue": altman_queue,
    "bai2023": bai2023,
    "ding2020": ding2020,
    "ding2023": ding2023,
    "frozen-lake": frozen_lake,
    "frozen-lake-8x8": lambda: frozen_lake(8),
    "two-state": two_state,
}

# Policy classes that come with a model.
POLICIES = {"bai2023": bai2023_policy}

__all__ = [
    "MODELS",
    "POLICIES",
    "altman_queue",
    "bai2023",
    "bai2023_policy",
    "ding2020",
    "ding2023",
    "frozen_lake",
    "gymnasium_table",
    "random_cmdp",
    "two_state",
]
