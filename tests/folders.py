"""Run folders for tests of what is made of them."""

from __future__ import annotations

import json
from pathlib import Path

import clearance as cl
from clearance.files import digest, sha256

HOSTILE = "<script>window.hacked=1</script>"


def solved(cmdp: cl.CMDP, folder: Path, *, K: int = 100, N: int = 10, seed: int = 0) -> Path:
    cl.solve(cmdp, cl.RegularisedCNPGPD(K=K, N=N), seed=seed, out=folder)
    return folder


def small_run(folder: Path, *, seed: int = 0) -> Path:
    """Two limits, five states; certified."""
    return solved(cl.zoo.altman_queue(), folder, K=300, N=20, seed=seed)


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
