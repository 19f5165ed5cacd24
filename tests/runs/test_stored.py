"""Forged files of a run folder, hashes and all: refused by field, in one line. Most were found by fuzzing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from folders import seal, solved

import clearance as cl
from clearance.cli import command_line
from clearance.core.atomic_files import digest
from clearance.runs import schema

GONE = object()  # the field is left out


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return solved(cl.zoo.two_state(), tmp_path_factory.mktemp("stored") / "run", K=5, N=3)


def forged(run: Path, tmp_path: Path, name: str, **changes: Any) -> Path:
    """A copy of the run with some fields of one file changed, and hashes that fit."""
    copy = Path(shutil.copytree(run, tmp_path / "forged"))
    data = json.loads((copy / name).read_text()) | changes
    data = {k: v for k, v in data.items() if v is not GONE}
    if name == "manifest.json":
        data.pop("sha256")
        data["sha256"] = digest(data)
    (copy / name).write_text(json.dumps(data))
    if name != "manifest.json":
        seal(copy)
    return copy


CERTIFICATE = [
    ("verdict", GONE),
    ("verdict", "SAFE"),
    ("J_lower", None),
    ("b", [1.0, 2.0]),
    ("J_r", 1e999),
    ("scope", 3),
    ("components", GONE),
]
MANIFEST = [("status", "fine"), ("k", -1), ("K", "5"), ("files", []), ("files", {"../x": {"sha256": "0", "bytes": 1}}),
            ("files", {"a": 1}), ("seconds", None), ("version", 1), ("env_steps", 0.5), ("message", [])]  # fmt: skip
SETTINGS = [("evidence", GONE), ("evidence", "hearsay"), ("budget", [1]), ("budget", 0), ("delta", 2), ("seed", "x"),
            ("seed", 10**30), ("exact_J", 3), ("policy", {}), ("problem", None), ("flags", []), ("command", "rm"),
            ("method", []), ("method", {"K": 3}), ("sampler", {"name": 1}), ("flags", GONE),
            ("command", GONE), ("budget", GONE), ("sampler", GONE), ("exact_J", GONE)]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), CERTIFICATE)
def test_a_forged_certificate(run: Path, tmp_path: Path, key: str, value: Any) -> None:
    copy = forged(run, tmp_path, "certificate.json", **{key: value})
    with pytest.raises(cl.InputError, match=r"certificate\.json: (b|J_g|" + key + ") must"):
        _ = cl.run.load(copy).certificate


@pytest.mark.parametrize(("key", "value"), MANIFEST)
def test_a_forged_manifest(run: Path, tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(cl.InputError, match=rf"manifest\.json: {key} must"):
        cl.run.load(forged(run, tmp_path, "manifest.json", **{key: value}))


@pytest.mark.parametrize(("key", "value"), SETTINGS)
def test_forged_settings(run: Path, tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(cl.InputError, match=rf"settings\.json: {key} must"):
        cl.resume(forged(run, tmp_path, "settings.json", **{key: value}))


METHODS = [{"name": "SGD"}, {"name": "os.system"}, {"name": "RegularisedCNPGPD", "nu": "x"},
           {"name": "RegularisedCNPGPD", "tau": 3}, {"name": "CNPGPD", "direction": {"name": "CNPGPD"}}]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_forged_methods(run: Path, tmp_path: Path, method: Any, capsys: pytest.CaptureFixture[str]) -> None:
    copy = forged(run, tmp_path, "settings.json", method=method)
    assert command_line.main(["solve", "--resume", str(copy)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1 and "Traceback" not in said.err


def test_what_goes_wrong_while_reading_is_told_in_one_line() -> None:
    with (
        pytest.raises(cl.InputError, match=r"f\.json: holds what it should not \(KeyError: 'a'\)"),
        schema.blame_file(Path("f.json")),
    ):
        _ = {}["a"]
    with pytest.raises(ZeroDivisionError), schema.blame_file(Path("f.json")):
        _ = 1 // 0
