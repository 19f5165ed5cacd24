"""Telling the person who waits that kernels are being compiled."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def announce(kernel: Any) -> None:
    """One line on standard error if this kernel is about to be compiled: once per machine and version."""
    function = kernel.py_func
    files = f"{function.__module__.rsplit('.')[-1]}.{function.__qualname__}-*.nbc"
    if not kernel.signatures and not any(Path(kernel.stats.cache_path or ".").glob(files)):
        print("clearance: compiling, once on this machine (about 10 s) …", file=sys.stderr, flush=True)
