"""Ready-made problems. The docstring of each one contains or cites its definition; some also state the optimum."""

from collections.abc import Callable
from functools import partial
from typing import Any

from clearance.finite.gymnasium_tables import gymnasium_signal, gymnasium_table
from clearance.zoo.garnet import garnet
from clearance.zoo.grid_worlds import grid_obstacles, sutton_barto
from clearance.zoo.harvesting import harvesting, harvesting_discounted
from clearance.zoo.inventory import inventory
from clearance.zoo.maintenance import maintenance, maintenance_discounted
from clearance.zoo.queues import lazar, lazar_discounted, queue_power
from clearance.zoo.random_cmdp import bai2023, bai2023_policy, ding2020, ding2023, random_cmdp
from clearance.zoo.robots import ROBOTS, crpo_acrobot, crpo_cartpole, velocity
from clearance.zoo.small import altman_queue, altman_queue_discounted, two_state
from clearance.zoo.streaming import streaming, streaming_discounted
from clearance.zoo.toy_text import cliff, frozen_lake, taxi

# Models that need no arguments, by the name that the command line gives them.
MODELS = {
    "altman-queue": altman_queue,
    "altman-queue-discounted": altman_queue_discounted,
    "bai2023": bai2023,
    "cliff": cliff,
    "ding2020": ding2020,
    "ding2023": ding2023,
    "frozen-lake": frozen_lake,
    "frozen-lake-8x8": lambda: frozen_lake(8),
    "grid-obstacles": grid_obstacles,
    "harvesting": harvesting,
    "harvesting-discounted": harvesting_discounted,
    "inventory": inventory,
    "lazar": lazar,
    "lazar-discounted": lazar_discounted,
    "maintenance": maintenance,
    "maintenance-discounted": maintenance_discounted,
    "queue-power": queue_power,
    "streaming": streaming,
    "streaming-discounted": streaming_discounted,
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

# Short descriptions of the problems, by name.
ABOUT = {
    "altman-queue": "a queue with service and admission control",
    "altman-queue-discounted": "the same with discounted sums",
    "bai2023": "the random instance of Bai et al. (2023)",
    "cliff": "walk along a cliff; few falls allowed",
    "ding2020": "the random instance of Ding et al. (2020)",
    "ding2023": "the random instance of Ding et al. (2023)",
    "frozen-lake": "cross a frozen lake; few falls into holes allowed",
    "frozen-lake-8x8": "the same on a larger lake",
    "grid-obstacles": "cross a grid of 625 cells with few obstacles hit",
    "harvesting": "a solar sensor sends data; limits on delay and on loss",
    "harvesting-discounted": "the same with discounted sums",
    "inventory": "a shop orders stock; few lost sales allowed",
    "lazar": "admit customers; the queue must stay short",
    "lazar-discounted": "the same with discounted sums",
    "maintenance": "replace a machine in time; few breakdowns allowed",
    "maintenance-discounted": "the same with discounted sums",
    "queue-power": "serve a queue within a power budget",
    "streaming": "keep a video buffer filled; little fast service allowed",
    "streaming-discounted": "the same with discounted sums",
    "sutton-barto": "a grid with three utilities to collect",
    "taxi": "drive passengers; one street may rarely be used",
    "two-state": "two states, solved by hand",
    "crpo-acrobot": "swing up a double pendulum; limits on two kinds of torque",
    "crpo-cartpole": "balance a pole; limits on position and angle",
    **{f"velocity-{robot}": "run, but rarely faster than a threshold (MuJoCo)" for robot in ROBOTS},
}


def about(name: str) -> str:
    """Return a short description of a zoo problem."""
    return ABOUT[name]


# Policy classes that belong to a model, by the name of the model.
POLICIES = {"bai2023": bai2023_policy}

__all__ = [
    "ABOUT",
    "MODELS",
    "POLICIES",
    "SIMULATORS",
    "about",
    "altman_queue",
    "altman_queue_discounted",
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
    "harvesting_discounted",
    "inventory",
    "lazar",
    "lazar_discounted",
    "maintenance",
    "maintenance_discounted",
    "queue_power",
    "random_cmdp",
    "streaming",
    "streaming_discounted",
    "sutton_barto",
    "taxi",
    "two_state",
    "velocity",
]
