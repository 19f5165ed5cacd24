"""Compiled code on disk is executed when it is loaded: another user must not be able to put any there."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clearance.core.compiled import compilation

STRANGER, VICTIM = 65534, 65533
SITE = next((p for p in sys.path if p.endswith("site-packages")), "")
root_only = pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="needs root, to be two users")


class Loot:
    """What a stranger would store: unpickled, it makes a file."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.place,))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder chosen by NUMBA_CACHE_DIR, and no other."""
    monkeypatch.setattr(compilation.config, "CACHE_DIR", str(tmp_path), raising=False)
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    monkeypatch.setattr(compilation.tempfile, "tempdir", "/nonexistent")
    return tmp_path / compilation.NAME / compilation.HASH


def found() -> list[Path]:
    compilation.writable_folder.cache_clear()
    return list(compilation.folders())


def test_folders_are_made_so_that_nobody_else_can_write(cache: Path) -> None:
    """Whatever the umask of the user."""
    before = os.umask(0)
    try:
        assert found() == [] and list(compilation.folders(make=True)) == [cache] == found()
        compilation.write_whole(cache / "a.bin", b"code")
        for path in (cache, cache.parent, cache / "a.bin"):
            assert not path.stat().st_mode & 0o022
        assert compilation.read_trusted(cache / "a.bin") == b"code"
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777, 0o757])
@pytest.mark.parametrize("which", ["root", "folder"])
def test_a_folder_that_others_can_write_is_not_used(cache: Path, mode: int, which: str) -> None:
    list(compilation.folders(make=True))
    (cache if which == "folder" else cache.parent).chmod(mode)
    assert found() == [] and compilation.writable_folder() is None


@pytest.mark.parametrize("which", ["root", "folder"])
def test_a_link_is_not_used(cache: Path, tmp_path: Path, which: str) -> None:
    list(compilation.folders(make=True))
    place = cache if which == "folder" else cache.parent
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert found() == []


@pytest.mark.parametrize("how", ["writable", "link", "pipe", "folder"])
def test_a_file_that_others_can_write_is_not_read(tmp_path: Path, how: str) -> None:
    """Nor a link; and a pipe, which would be waited for without end, is none either."""
    file, loot = tmp_path / "a.bin", tmp_path / "executed"
    (tmp_path / "b.bin").write_bytes(pickle.dumps(Loot(loot)))
    if how == "writable":
        shutil.copy(tmp_path / "b.bin", file)
        file.chmod(0o666)
    elif how == "link":
        file.symlink_to(tmp_path / "b.bin")
    elif how == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    with pytest.raises(OSError):
        compilation.read_trusted(file)


@root_only
def test_what_another_user_owns_is_not_used(cache: Path) -> None:
    """The folder or the file of a stranger, made before us at the place where we would look."""
    list(compilation.folders(make=True))
    compilation.write_whole(cache / "a.bin", b"code")
    os.chown(cache / "a.bin", STRANGER, STRANGER)
    with pytest.raises(PermissionError, match="others can write it"):
        compilation.read_trusted(cache / "a.bin")
    for path in (cache, cache.parent):
        os.chown(path, STRANGER, STRANGER)
        assert found() == [] and compilation.writable_folder() is None
        os.chown(path, 0, 0)
    assert found() == [cache]


def run_as(user: int, home: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python as another user, who can read the tree and write nothing but TMPDIR and what is given."""
    python = "/usr/bin/python3"
    env = {"PYTHONPATH": f"{Path(compilation.__file__).parents[3]}:{SITE}", "TMPDIR": str(home)} | variables
    env |= {"PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
    how = {"user": user, "group": user, "extra_groups": [], "cwd": home, "env": env}
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, **how)  # type: ignore[call-overload]


@pytest.fixture
def nobody() -> Iterator[Path]:
    """The folder of a user without a home, who can start Python and read this tree; else the test is skipped."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        home = Path(place) / "home"
        home.mkdir(mode=0o700)
        os.chown(home, VICTIM, VICTIM)
        if run_as(VICTIM, home, "import clearance, numba").returncode:
            pytest.skip("the interpreter or the packages cannot be read by another user")
        yield home


COMMANDS = """
import sys
from clearance.cli import main
for argv in ("optimum two-state --json", "solve two-state --K 20 --N 20 --out run --json", "report run"):
    if main(argv.split()):
        sys.exit(argv)
"""


@root_only
@pytest.mark.slow
def test_everything_works_without_a_home_in_a_tree_that_cannot_be_written(nobody: Path) -> None:
    done = run_as(VICTIM, nobody, "import sys; from clearance.cli import main; main(['--version'])")
    assert done.stdout.startswith("clearance ") and not list(nobody.iterdir())
    done = run_as(VICTIM, nobody, COMMANDS)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert (nobody / "run" / "report.html").exists()


@root_only
@pytest.mark.slow
def test_a_stranger_who_was_there_first_gets_nothing_executed(nobody: Path) -> None:
    """The temporary folder is shared; the stranger has made the victim's cache there, full of loot."""
    shared, loot = nobody.parent / "shared", nobody.parent / "shared" / "executed"
    shared.mkdir()
    shared.chmod(0o1777)
    planted = shared / f"{compilation.NAME}-{VICTIM}" / compilation.HASH
    planted.mkdir(parents=True)
    ours = Path(compilation.__file__).parent / "__pycache__" / compilation.NAME / compilation.HASH
    for file in ours.glob("*.bin") if ours.exists() else ():
        (planted / file.name).write_bytes(pickle.dumps(Loot(loot)))
    for path in (planted.parent, planted, *planted.iterdir()):
        os.chown(path, STRANGER, STRANGER)
    before = {p.name for p in planted.iterdir()}
    solve = "from clearance.cli import main; main('solve two-state --K 20 --N 20 --json'.split())"
    done = run_as(VICTIM, nobody, solve, TMPDIR=str(shared), NUMBA_CACHE_DIR=str(nobody / "none" / "x"))
    assert done.returncode == 0 and not loot.exists()
    done = run_as(VICTIM, nobody, solve, TMPDIR=str(shared), NUMBA_CACHE_DIR=str(shared))
    assert done.returncode == 0 and not loot.exists() and {p.name for p in planted.iterdir()} == before
