"""Two users on one machine, one of them hostile, with Ray, side processes and folders: nothing is got."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "two_users.py"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="needs root, to be two users")
def test_a_stranger_gets_nothing() -> None:
    """A process of its own, because it mounts an empty folder over that of Ray."""
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False, timeout=300)
    if "needs root, and mounts of its own" in done.stderr:
        pytest.skip("this root may not mount")
    assert done.returncode == 0 and "21 attempts, 0 of them got something" in done.stdout, done.stdout + done.stderr
