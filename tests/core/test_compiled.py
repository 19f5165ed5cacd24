"""The cache of the compiled kernels: it notices every change of their sources, and no file system stops it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clearance.core.compiled import compilation

SOURCE = Path(compilation.__file__).parents[3]
INSIDE = Path("clearance/core/compiled")

# The certificate's samples on a model, and which kernels were compiled to get them.
SAMPLES = """
import numpy as np, clearance as cl
from numba.core import event
from clearance.finite.mixture import Mixture
from clearance.finite.samplers.finite_episodes import MixtureEpisodes
class Listener(event.Listener):
    def on_start(self, event): names.append(event.data["dispatcher"].py_func.__qualname__)
    def on_end(self, event): pass
names = []
event.register("numba:compile", Listener())
cmdp = cl.zoo.two_state()
X, _, _ = MixtureEpisodes(cmdp, Mixture.single(np.full((cmdp.S, cmdp.A), 1 / cmdp.A))).draw(np.uint64(5), 0, 100)
print(X.tobytes().hex())
print("returns" in names)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the sources, with no compiled code in it."""
    shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


def draw_samples(package: Path, **variables: str) -> tuple[str, bool, str]:
    """Run `SAMPLES` in a fresh process → the samples, whether their kernel was compiled, and standard error."""
    left_out = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    env = {k: v for k, v in os.environ.items() if k not in left_out} | {"PYTHONPATH": str(package)} | variables
    done = subprocess.run([sys.executable, "-c", SAMPLES], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    samples, compiled = done.stdout.split()
    return samples, compiled == "True", done.stderr


def test_cache_notices_a_constant_changed_in_another_file(package: Path) -> None:
    """`episodes.returns` contains `alias_tables.mix`: numba's own cache looks at episodes.py alone."""
    before, compiled, said = draw_samples(package)
    assert compiled and said.count("compiling, once on this machine") == 1
    again, compiled, said = draw_samples(package)
    assert (again, compiled, said) == (before, False, "")  # from the cache, in silence
    file = package / INSIDE / "alias_tables.py"
    text = file.read_text()
    assert text.count("U(0xBF58476D1CE4E5B9)") == 1
    file.write_text(text.replace("U(0xBF58476D1CE4E5B9)", "U(0xBF58476D1CE4E5BB)"))
    after, compiled, said = draw_samples(package)
    assert compiled and after != before and "compiling, once" in said
    file.write_text(text)
    back, compiled, _ = draw_samples(package)
    assert (back, compiled) == (before, False)
    root = package / INSIDE / "__pycache__" / compilation.NAME
    assert len([folder for folder in root.iterdir() if folder.is_dir()]) == 2
    for i, kept in enumerate(root.rglob("*.bin")):  # a damaged file is as good as none
        kept.write_bytes(kept.read_bytes()[:-100] if i % 2 else b"")
    assert draw_samples(package)[:2] == (before, True)


def test_cache_goes_to_the_user_and_then_to_the_temporary_folder(package: Path, tmp_path: Path) -> None:
    pycache = package / INSIDE / "__pycache__"
    pycache.mkdir()
    (pycache / compilation.NAME).write_text("a file where the folder would be: nobody can write below it")
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    places = {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    first, compiled, _ = draw_samples(package, **places)
    assert compiled and len(list(home.rglob("episodes.returns-*.bin"))) == 1
    shutil.rmtree(home)
    home.write_text("no home either")
    second, compiled, said = draw_samples(package, **places)
    assert (second, compiled) == (first, True) and "once on this machine" in said
    assert len(list(temporary.rglob("episodes.returns-*.bin"))) == 1
    third, compiled, said = draw_samples(package, **places)
    assert (third, compiled, said) == (first, False, "")


@pytest.mark.slow
def test_kernels_compile_where_nothing_can_be_written(package: Path, tmp_path: Path) -> None:
    """Every candidate lies below a regular file, and says so: numba's own cache refused even to be imported."""
    (package / INSIDE / "__pycache__").write_text("a file")
    blocked = tmp_path / "file"
    blocked.write_text("a file")
    nowhere = {"HOME": f"{blocked}/home", "PYTHONDONTWRITEBYTECODE": "1"}
    taken = tmp_path / "taken"
    (taken / f"{compilation.NAME}-{os.getuid()}").parent.mkdir()
    (taken / f"{compilation.NAME}-{os.getuid()}").write_text("a file")
    for variables in (nowhere | {"TMPDIR": str(taken)}, {"NUMBA_CACHE_DIR": f"{blocked}/x", "TMPDIR": str(taken)}):
        _, compiled, said = draw_samples(package, **variables)
        assert compiled and "compiling, at every start" in said
    env = {**os.environ, "PYTHONPATH": str(package), "TMPDIR": str(taken), **nowhere}
    done = subprocess.run([sys.executable, "-m", "clearance", "--version"], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_stale_caches_are_removed(tmp_path: Path) -> None:
    now = time.time()

    def use_all(ages: list[float]) -> set[str]:
        for i, age in enumerate(ages):
            folder = tmp_path / f"{i:032x}"
            folder.mkdir(exist_ok=True)
            (folder / "kernel.bin").write_bytes(b"x")
            os.utime(folder, (now, now - age))
        compilation.remove_stale(tmp_path)
        return {path.name for path in tmp_path.iterdir()}

    others = {"notes", "A" * 32, "f" * 31, "e" * 32, "d" * 32}
    for name in ("notes", "A" * 32, "f" * 31):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (now, now - 1e9))
    (tmp_path / ("e" * 32)).write_text("a file with such a name")
    (tmp_path / ("d" * 32)).symlink_to(tmp_path / "notes")
    many = compilation.KEPT + 4
    names = [f"{i:032x}" for i in range(many)]
    assert use_all([compilation.RECENT * i / many for i in range(many)]) == {*names, *others}  # all of the last day
    assert use_all([compilation.RECENT * (2 + i) for i in range(many)]) == {*names[: compilation.KEPT], *others}


def test_kernels_live_in_one_package() -> None:
    """The hash covers the sources of one folder: no kernel may stand elsewhere, or be compiled without the cache."""
    using = {path for path in SOURCE.joinpath("clearance").rglob("*.py") if re.search("numba", path.read_text())}
    imports = {p.relative_to(SOURCE) for p in using if re.search(r"(?m)^\s*(from|import) numba", p.read_text())}
    assert imports == {INSIDE / "compilation.py"}


def test_pieces_refuse_python() -> None:
    from clearance.core.compiled import alias_tables

    with pytest.raises(TypeError, match="mix can be called by compiled code only"):
        alias_tables.mix(3)
