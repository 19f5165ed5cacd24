"""Tar archives with given files."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any


def pack(path: Path, files: dict[str, bytes], mode: Any = "w") -> None:
    """Write an archive; `mode` is that of `tarfile.open`."""
    with tarfile.open(path, mode) as tar:
        for name, data in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
