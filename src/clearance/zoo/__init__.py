"""Models with a known definition and, where the docstring says so, a known optimum."""

from collections.abc import Callable
from functools import partial
from typing import Any

from clearance.finite.gymnasium_tables import gymnasium_signal, gymnasium_table
from clearance.zoo.garnet import garnet
from clearance.zoo.grid_worlds import grid_obstacles, sutton_barto
from clearance.zoo.harvesting import harvesting
from clearance.zoo.inventory import inventory
from clearance.zoo.maintenance import maintenance
from clearance.zoo.queues import lazar, queue_power
from clearance.zoo.random_cmdp import bai2023, bai2023_policy, ding2020, ding2023, random_cmdp
from clearance.zoo.robots import ROBOTS, crpo_acrobot, crpo_cartpole, velocity
from clearance.zoo.small import altman_queue, two_state
from clearance.zoo.streaming import streaming
from clearance.zoo.toy_text import cliff, frozen_lake, taxi

# What the command line calls a zoo name: a model that needs no arguments.
MODELS = {
    "altman-queue": altman_queue,
    "bai2023": bai2023,
    "cliff": cliff,
    "ding2020": ding2020,
    "ding2023": ding2023,
    "frozen-lake": frozen_lake,
    "frozen-lake-8x8": lambda: frozen_lake(8),
    "grid-obstacles": grid_obstacles,
    "harvesting": harvesting,
    "inventory": inventory,
    "lazar": lazar,
    "maintenance": maintenance,
    "queue-power": queue_power,
    "streaming": streaming,
    "sutton-barto": sutton_barto,
    "taxi": taxi,
    "two-state": two_state,
}

# Simulators that need no arguments, by the name that the command line gives them.
SIMULATORS: dict[str, Callable[[], Any]] = {
    "crpo-acrobot": crpo_acrobot,
    "crpo-cartpole": crpo_cartpole,
    **{f"velocity-{robot}": partial(velocity, robot) for robot in ROBOTS},
}

# Policy classes that come with a model.
POLICIES = {"bai2023": bai2023_policy}

__all__ = [
    "MODELS",
    "POLICIES",
    "SIMULATORS",
    "altman_queue",
    "bai2023",
    "bai2023_policy",
    "cliff",
    "crpo_acrobot",
    "crpo_cartpole",
    "ding2020",
    "ding2023",
    "frozen_lake",
    "garnet",
    "grid_obstacles",
    "gymnasium_signal",
    "gymnasium_table",
    "harvesting",
    "inventory",
    "lazar",
    "maintenance",
    "queue_power",
    "random_cmdp",
    "streaming",
    "sutton_barto",
    "taxi",
    "two_state",
    "velocity",
]
