"""Run folders for tests of what is made of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import clearance as cl
from clearance.core.atomic_files import digest, sha256
from clearance.core.statement import Statement
from clearance.learning.state import State

HOSTILE = "<script>window.hacked=1</script>"


def solved(cmdp: cl.CMDP, folder: Path, *, K: int = 100, N: int = 10, seed: int = 0) -> Path:
    cl.solve(cmdp, cl.RegularisedCNPGPD(K=K, N=N), seed=seed, out=folder)
    return folder


def small_run(folder: Path, *, seed: int = 0) -> Path:
    """Two limits, five states; certified."""
    return solved(cl.zoo.altman_queue_discounted(), folder, K=300, N=20, seed=seed)


def hostile_run(folder: Path) -> Path:
    """A model whose constraint has a name that would be markup."""
    two = cl.zoo.two_state()
    return solved(cl.CMDP(two.P, two.r, two.g, two.b, rho=two.rho, gamma=two.gamma, names=[HOSTILE]), folder)


def seal(folder: Path) -> None:
    """Make the manifest fit the files as they are now."""
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    data.pop("sha256")
    there = [name for name in data["files"] if (folder / name).exists()]
    data["files"] = {n: {"sha256": sha256(folder / n), "bytes": (folder / n).stat().st_size} for n in there}
    path.write_text(json.dumps(data | {"sha256": digest(data)}))


def unfinish(folder: Path) -> Path:
    """Make a finished run one that was interrupted before it chose its policy."""
    for name in ("policy.npz", "certificate.json"):
        (folder / name).unlink()
    path = folder / "manifest.json"
    data = json.loads(path.read_text()) | {"status": "interrupted", "phase": "learning"}
    path.write_text(json.dumps(data))
    seal(folder)
    return folder


def simulator_run(folder: Path, *, name: str = "heat", K: int = 60) -> Path:
    """A run on a simulator as `save` writes it, with curves made by hand: nothing is learned here."""
    from clearance.learning.methods.practical_cnpgpd import PracticalCNPGPD
    from clearance.runs.selection import Selection
    from clearance.runs.solution import Solution
    from clearance.runs.worlds.simulator_world import SimulatorWorld
    from clearance.simulator.policies.network_policy import Design, Normaliser
    from clearance.simulator.simulator import LaneCheck

    s = Statement("robot <b>", 1.0, np.array([-25.0, -3.0]), (name, "noise"), 1000, ([-np.inf, -1, -1], [np.inf, 0, 0]))  # type: ignore[arg-type]
    simulator: Any = SimpleNamespace(
        statement=s, obs_shape=(3,), action=cl.Discrete(2), n=8, exact=None, lane_check=LaneCheck("", 0)
    )
    policy = Design(hidden=()).fitted((3,), simulator.action)
    k, rng = np.linspace(0, 1, K)[:, None], np.random.default_rng(0)
    J_hat = np.hstack([2400 * k**2, -40 + 20 * k, -4 + 2 * k]) + rng.normal(size=(K, 3)) * [60, 3, 0.3]
    lam = np.hstack([9 * k * (1.2 - k), 2 * k])
    trace = cl.Trace(np.zeros((K, policy.d)), lam, J_hat, np.ones(K), np.full(K, 16000), np.ones(K), np.empty((0, 3)))
    mixture = cl.NetworkMixture(policy, np.array([0.25, 0.75]), np.zeros((2, policy.d)), Normaliser.identity(3))
    J, lower, upper = [2350.5, -20.5, -2.125], [-np.inf, -24.5, -2.875], [np.inf, -16.5, -1.5]
    found = cl.Certificate(
        verdict="CERTIFIED",
        J_r=J[0],
        J_g=J[1:],
        b=[-25.0, -3.0],
        slack=[4.5, 0.875],
        J_lower=lower,
        J_upper=upper,
        bound=None,
        gap=None,
        lam=[0.5, 1.0],
        complementarity=None,
        worst_component_slack=0.5,
        components=2,
        evidence="samples",
        message="every limit is met, with confidence 0.99",
        scope=s.meaning,
        delta=0.01,
    )
    state = State(np.zeros(policy.d), lam[-1], K, SimpleNamespace(normaliser=Normaliser.identity(3)))
    Solution(
        SimulatorWorld(simulator),
        PracticalCNPGPD(K=K, N=16000, kappa=2.0),
        policy,
        trace,
        state,
        margin=None,
        lam_max=np.inf,
        status="done",
        seed=0,
        seconds=12.5,
        evidence="samples",
        delta=0.01,
        learning_steps=960_000,
        select=lambda: Selection(mixture, found, steps=400_000),
    ).save(folder)
    return folder
