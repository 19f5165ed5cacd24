"""Folders from strangers: links, pipes, devices, other runs' parts. Nothing outside changes; every end is one line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import seal, solved, unfinish
from forgeries import PLANTED, all_forgeries, foreign_part, planted
from runs import bits, cli

import clearance as cl
from clearance.core import inside_folder
from clearance.core.atomic_files import digest, load_json, save_json, save_npz, write_whole
from clearance.core.folder_lock import BusyError, lock_folder
from clearance.core.inside_folder import Inside, names_in, open_to_read, remove
from clearance.runs import run_folder

pytestmark = pytest.mark.filterwarnings("default::UserWarning")  # the command line shows them


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two finished runs on the same model that differ in their seed."""
    home = tmp_path_factory.mktemp("honest")
    return solved(cl.zoo.two_state(), home / "a", K=60, N=5), solved(cl.zoo.two_state(), home / "b", K=60, N=5, seed=1)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("precious")
    (tmp_path / "outside" / "000001.npz").write_text("precious")
    return tmp_path / "outside"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def untouched(outside: Path) -> bool:
    return {p.name: p.read_text() for p in outside.iterdir()} == dict.fromkeys(("precious", "000001.npz"), "precious")


# ------------------------------------------------------------------------------------------------ links inside


KINDS = ("link", "folder", "pipe", "device", "loop")


@pytest.mark.parametrize("name", PLANTED)
def test_nothing_planted_in_a_run_folder_is_followed(
    name: str, pair: Any, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in KINDS:
        shutil.copytree(pair[0], "run")
        planted(name, kind, outside)(Path("run"))
        status, out, err = cli("solve --resume run", capsys)
        assert (status, out) == (2, "") and err.count("\n") == 1 and untouched(outside), err
        assert f"run/{name}: is a link, a device or a pipe" in err, err
        assert os.path.islink(f"run/{name}") or kind == "pipe", "what was planted is left for its owner to look at"
        shutil.rmtree("run")


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_written_through_no_link(
    kind: str, pair: Any, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("report.html", "report.html.partial"):
        shutil.copytree(pair[0], "run")
        planted(name, kind, outside)(Path("run"))
        status, out, err = cli("report run --no-price", capsys)
        assert (status, out) == (2, "") and f"run/{name}: is a link, a device or a pipe" in err and untouched(outside)
        shutil.rmtree("run")


@pytest.mark.parametrize(
    "name", ["table.csv", "table.json.partial", "grid.json.partial", "lock", "000", "problems.json"]
)
def test_nothing_planted_in_a_grid_is_followed(name: str, outside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("sweep two-state --grid seed=0,1 --K 20 --N 5 --out g --threads 1", capsys)[0] == 0
    planted(name, "folder" if name == "000" else "link", outside)(Path("g"))
    status, out, err = cli("sweep --resume g", capsys)
    assert (status, out) == (2, "") and f"g/{name}: is a link" in err and untouched(outside)


def test_the_way_to_the_folder_may_lead_through_links(capsys: pytest.CaptureFixture[str]) -> None:
    Path("disk").mkdir()
    Path("results").symlink_to("disk")
    assert cli("solve two-state --K 20 --N 5 --out results/run", capsys)[0] in (0, 4)
    assert cli("solve --resume results/run", capsys)[0] in (0, 4)
    assert cli("report results/run", capsys)[0] == 0 and Path("disk/run/report.html").exists()
    Path("same").symlink_to("disk/run")
    assert cli("solve --resume same", capsys)[0] in (0, 4) and cl.run.load("same").status == "done"


def test_a_file_of_ones_own_replaces_a_link_and_follows_none(outside: Path) -> None:
    Path("model.npz").symlink_to(outside / "precious")
    cl.zoo.two_state().save("model.npz")
    assert not Path("model.npz").is_symlink() and untouched(outside)
    Path("table.csv.partial").symlink_to(outside / "precious")
    with pytest.raises(cl.InputError, match=r"table\.csv\.partial: is a link"), write_whole("table.csv"):
        pass
    assert untouched(outside)


def test_what_a_killed_process_left_is_replaced() -> None:
    Path("run").mkdir()
    Path("run/a.json.partial").write_text("half")
    save_json(Inside(Path("run"), "a.json"), {"schema": "clearance/a/1"})
    assert os.listdir("run") == ["a.json"]


def test_a_link_that_appears_during_the_run(pair: Any, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the folder and the writing: each file is opened without following."""
    monkeypatch.setattr(run_folder, "refuse_strange", lambda *_: None)
    for name in ("checkpoint", "policy.npz.partial", "manifest.json"):
        unfinish(Path(shutil.copytree(pair[0], "run")))
        planted(name, "folder" if name == "checkpoint" else "link", outside)(Path("run"))
        with pytest.raises(cl.InputError, match="is a link"):
            cl.resume("run")
        assert untouched(outside)
        shutil.rmtree("run")


@pytest.mark.parametrize("handles", [True, False])
def test_the_same_without_handles_of_folders(handles: bool, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows: names are checked before they are opened."""
    monkeypatch.setattr(inside_folder, "HANDLES", handles and inside_folder.HANDLES)
    run = Path("run")
    save_json(Inside(run.absolute(), "new.json") if run.mkdir() else Inside(run, "deep/new.json"), {"schema": "s/1"})
    assert names_in(run, "deep") == ["new.json"] and load_json(Inside(run, "deep/new.json"), "s/1")
    Path("run/link").symlink_to(outside)
    Path("run/deep/link.json").symlink_to(outside / "precious")
    for name in ("link/precious", "deep/link.json"):
        with pytest.raises(cl.InputError, match="is a link"):
            open_to_read(Inside(run, name))
        with pytest.raises(cl.InputError, match="is a link"):
            save_json(Inside(run, name), {})
    remove(Inside(run, "deep/link.json"))
    assert names_in(run, "deep") == ["new.json"] and untouched(outside)


# ------------------------------------------------------------------------------------------------ locks and owners


def test_a_deleted_lock_lets_no_second_writer_in(pair: Any) -> None:
    shutil.copytree(pair[0], "run")
    held = lock_folder(Path("run"))
    for _ in range(2):
        Path("run/lock").unlink()
        with pytest.raises(BusyError, match="another process"):
            cl.resume("run")
    held.close()
    assert cl.resume("run").status == "done"


def test_a_lock_that_is_a_second_name_of_another_file(pair: Any, outside: Path) -> None:
    shutil.copytree(pair[0], "run")
    Path("run/lock").unlink()
    os.link(outside / "precious", "run/lock")
    with pytest.raises(cl.InputError, match="run/lock: is a hard link"):
        cl.resume("run")
    assert untouched(outside)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_files_of_another_user_are_refused(pair: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("policy.npz", "checkpoint", "trace/000001.npz"):
        shutil.copytree(pair[0], "run")
        os.chown(f"run/{name}", 65534, 65534)
        status, _, err = cli("solve --resume run", capsys)
        assert status == 2 and f"run/{name}: belongs to another user (number 65534)" in err and err.count("\n") == 1
        shutil.rmtree("run")
    shutil.copytree(pair[0], "run")
    os.chown("run", 65534, 65534)
    status, _, err = cli("report run", capsys)
    assert status == 2 and "run: belongs to another user" in err and not Path("run/report.html").exists()
    assert cli("report run --out mine.html", capsys)[0] == 0


# ------------------------------------------------------------------------------------------------ other runs' parts


@pytest.mark.parametrize("sealed", [False, True])
def test_checkpoints_of_another_run_are_not_continued(sealed: bool, pair: Any) -> None:
    shutil.copytree(pair[0], "run")
    for part in ("checkpoint", "trace"):
        foreign_part(Path("run"), pair[1], part, sealed=sealed)
    if sealed:
        with pytest.raises(cl.InputError, match="belongs to another run"):
            _ = cl.run.load("run").trace
    with pytest.warns(UserWarning, match="checkpoint/.*: belongs to another run; the run continues from before it"):
        cl.resume("run")
    assert bits("run") == bits(pair[0]), "seed 0 comes to the bits of seed 0"


def test_every_other_part_of_another_run_is_recognised(pair: Any) -> None:
    for part in ("settings.json", "manifest.json"):
        shutil.copytree(pair[0], "run")
        foreign_part(Path("run"), pair[1], part, sealed=True)
        with pytest.raises(cl.InputError, match="belongs to another run"):
            cl.resume("run")
        with pytest.raises(cl.InputError, match="belongs to another run"):
            _ = cl.run.load("run").settings
        shutil.rmtree("run")


def test_the_same_run_has_the_same_id_and_another_one_has_not(tmp_path: Path, pair: Any) -> None:
    again = solved(cl.zoo.two_state(), tmp_path / "again", K=60, N=5)
    longer = solved(cl.zoo.two_state(), tmp_path / "longer", K=61, N=5)
    a, b, same, k = (cl.run.load(f).manifest["run"] for f in (*pair, again, longer))
    assert a == same and len({a, b, k}) == 3 and len(a) == 32


def test_without_its_id_a_manifest_is_damaged(pair: Any) -> None:
    shutil.copytree(pair[0], "run")
    data = json.loads(Path("run/manifest.json").read_text())
    del data["run"], data["sha256"]
    Path("run/manifest.json").write_text(json.dumps(data | {"sha256": digest(data)}))
    with pytest.raises(cl.InputError, match="run must be the id of the run"):
        cl.run.load("run")


# ------------------------------------------------------------------------------------------------ damaged manifests


@pytest.mark.parametrize("text", ["{", "", '{"schema": "clearance/manifest/1"}', "null", "[" * 10**5])
def test_a_damaged_manifest_is_recovered_at_the_command_line(
    text: str, pair: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(pair[0], "run")
    Path("run/manifest.json").write_text(text)
    assert cli("report run", capsys)[0] == 2
    status, _, err = cli("solve --resume run", capsys)
    assert status in (0, 4) and "checkpoint/000001.npz has what is needed" in err and "--resume" not in err
    assert bits("run") == bits(pair[0])


def test_what_cannot_be_recovered_is_not_sent_in_circles(pair: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for gone in ("checkpoint", "problem.npz", "settings.json"):
        shutil.copytree(pair[0], "run")
        shutil.rmtree("run/checkpoint") if gone == "checkpoint" else Path("run", gone).unlink()
        Path("run/manifest.json").write_text("{")
        status, out, err = cli("solve --resume run", capsys)
        assert (status, out) == (2, "") and err.count("\n") <= 2 and "--resume" not in err, err
        shutil.rmtree("run")


def test_a_manifest_without_a_phase_is_damaged(pair: Any) -> None:
    shutil.copytree(pair[0], "run")
    data = json.loads(Path("run/manifest.json").read_text())
    del data["phase"], data["sha256"]
    Path("run/manifest.json").write_text(json.dumps(data | {"sha256": digest(data)}))
    with pytest.raises(cl.InputError, match="phase must be one of"):
        cl.run.load("run")
    with pytest.warns(UserWarning, match="phase must be"):
        assert cl.resume("run").status == "done"


# ------------------------------------------------------------------------------------------------ the whole list


# Forgeries that once ended in a traceback.
ONCE_WRONG = (
    "settings.json init=-1",
    "settings.json init=[[[]]]",
    "settings.json init=True",
    "certificate.json names=None",
)


@pytest.mark.parametrize("label", ONCE_WRONG)
def test_forgeries_that_once_ended_in_a_traceback(
    label: str, pair: Any, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge = dict(all_forgeries(pair[0], pair[1], outside))[label]
    shutil.copytree(pair[0], "run")
    forge(Path("run"))
    status, _, err = cli("solve --resume run --json", capsys)
    assert status in (0, 2) and "Traceback" not in err, err


def test_some_of_all_forgeries(pair: Any, outside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`benchmarks/forged_folders.py` opens all of them, and measures their memory."""
    listed = list(all_forgeries(pair[0], pair[1], outside))
    assert len(listed) >= 300
    cheap: list[tuple[str, Callable[[Path], None]]] = [f for f in listed if not f[0].startswith("bomb")]
    for label, forge in cheap[:: len(cheap) // 8]:
        shutil.copytree(pair[0], "run")
        forge(Path("run"))
        for command in ("report run", "solve --resume run"):
            status, _, err = cli(command, capsys)
            errors = [line for line in err.splitlines() if "warning: " not in line]
            assert status in (0, 2, 4) and len(errors) <= 1 and untouched(outside), (label, command, err)
        shutil.rmtree("run")


def test_a_sealed_folder_with_a_forged_checkpoint_ends_in_a_line(pair: Any) -> None:
    """Arrays of other shapes must not reach compiled code."""
    import numpy as np

    from clearance.runs import checkpoint

    shutil.copytree(pair[0], "run")
    path = next(Path("run/checkpoint").glob("*.npz"))
    found = checkpoint.load(path)
    for name, a in found.arrays.items():
        if a.ndim == 0 or a.size == 0:
            continue
        arrays = found.arrays | {name: np.zeros((0, *a.shape[1:]), a.dtype)}
        meta = {"tree": found.tree, "files": found.files, "run": found.run}
        sealed = json.dumps(meta | {"sha256": digest(meta, arrays)})
        save_npz(path, {"schema": np.array(checkpoint.SCHEMA), "meta": np.array(sealed), **arrays}, compressed=False)
        seal(Path("run"))
        with pytest.warns(UserWarning, match="the run continues from before it"):
            assert cl.resume("run").status == "done", name
        assert bits("run") == bits(pair[0]), name
