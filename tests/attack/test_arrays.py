"""Array and JSON files from strangers: sizes before memory, each array once, only what is needed."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import seal, simulator_run, solved
from forgeries import bomb, huge_header, members, npy, npz, packed_alike, zeros
from runs import cli

import clearance as cl
from clearance.core import array_files
from clearance.core.array_files import VARIABLE, max_memory, read_arrays, read_size
from clearance.core.atomic_files import DEPTH, LARGEST, load_json, parse_json, save_npz
from clearance.runs.worlds.finite_margin import FiniteMargin

MB = 2**20


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def model() -> Path:
    cl.zoo.two_state().save("model.npz")
    return Path("model.npz")


def peak(call: Callable[[], Any]) -> float:
    """The most memory that a call took, in MB, whatever came of it."""
    tracemalloc.start()
    try:
        call()
    except cl.InputError:
        pass
    finally:
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return found / MB


def refused(path: Path, says: str, load: Callable[[Path], Any] = cl.CMDP.load) -> None:
    with pytest.raises(cl.InputError, match=says) as e:
        load(path)
    assert str(e.value).count("\n") == 0
    assert peak(lambda: load(path)) < 4


# ------------------------------------------------------------------------------------------------ sizes


def test_arrays_that_nobody_needs_are_not_unpacked(model: Path) -> None:
    honest = cl.optimum(cl.CMDP.load(model)).J_r
    bomb(model, "junk")
    assert model.stat().st_size < MB and peak(lambda: cl.CMDP.load(model)) < 4
    assert cl.optimum(cl.CMDP.load(model)).J_r == honest


@pytest.mark.parametrize("name", ["P", "r", "g", "b", "rho", "available", "names", "gamma"])
def test_arrays_larger_than_the_model_declares_are_not_unpacked(name: str, model: Path) -> None:
    bomb(model, name)
    refused(model, f"{name} has shape .*too large for what the other arrays declare")


@pytest.mark.parametrize("dtype", ["|b1", "<f2", "<f8", "<c16", "<U8", "|V64"])
def test_a_limit_on_all_arrays_together(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of types that take less on the disk than in memory, as truth values."""
    n = 10**5
    data = zeros((n,), dtype) + bytes(n * np.dtype(dtype).itemsize)
    npz(Path("x.npz"), [("a.npy", data), ("b.npy", data)])
    monkeypatch.setenv(VARIABLE, str(n * 8 * 2 - 1))
    refused(Path("x.npz"), "raise the limit with --max-memory", read_arrays)
    monkeypatch.setenv(VARIABLE, str(n * max(np.dtype(dtype).itemsize, 8) * 2))
    assert len(read_arrays("x.npz")["b"]) == n


def test_the_limit_follows_from_the_file_and_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "free_memory", lambda: 100e9)
    assert max_memory(1000) == 2**30 and max_memory(10**9) == 50e9 and max_memory(10**8) == 64e8
    monkeypatch.setattr(array_files, "free_memory", lambda: 1e9)
    assert max_memory(1000) == 5e8
    monkeypatch.setenv(VARIABLE, "3GB")
    assert max_memory(1000) == 3e9 and read_size("500mb") == 5e8
    for text in ("", "GB", "-1", "nan", "inf", "1e999", "4 apples"):
        with pytest.raises(cl.InputError, match="must be a size"):
            read_size(text)


def test_the_limit_at_the_command_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("optimum model.npz --max-memory 1GB --json", capsys)[0] == 0
    status, out, err = cli("optimum model.npz --max-memory 100", capsys)
    assert (status, out) == (2, "") and "model.npz: its arrays need" in err and err.count("\n") == 1
    assert "must be a size as 500MB or 4GB" in cli("optimum model.npz --max-memory much", capsys)[2]
    assert cli("optimum model.npz --json", capsys)[0] == 0, "the limit holds for one command"


def test_a_consistent_bomb_of_many_gigabytes(model: Path) -> None:
    """r declares 40 000 states, and P fits it: 12.8 GB from a header; nothing is unpacked."""
    S = 40_000
    kept = [(n, data) for n, data in members(model) if n in ("gamma.npy",)]
    npz(model, [*kept, ("r.npy", npy(np.zeros((S, 1)))), ("P.npy", zeros((S, 1, S)))])
    with zipfile.ZipFile(model) as z:  # the directory says that all the data is there
        size = z.getinfo("P.npy").file_size
    data = bytearray(model.read_bytes())
    at = data.rindex(b"P.npy") - 46 + 24
    assert int.from_bytes(data[at : at + 4], "little") == size
    data[at : at + 4] = ((size + 8 * S * S) & 0xFFFFFFFF).to_bytes(4, "little")
    model.write_bytes(data)
    refused(model, "P cannot be read|its arrays need")


def test_a_text_as_long_as_a_book(model: Path) -> None:
    kept = [(n, data) for n, data in members(model) if n != "names.npy"]
    long = 5 * 10**6
    npz(model, [*kept, ("names.npy", zeros((1,), f"<U{long}") + bytes(4 * long))])
    refused(model, "names has texts of 20000000 bytes")


# ------------------------------------------------------------------------------------------------ what a file says


@pytest.mark.parametrize("again", ["r.npy", "P.npy", "b.npy", "r"])
def test_an_array_that_is_there_twice(again: str, model: Path) -> None:
    npz(model, [*members(model), (again, npy(300 * cl.zoo.two_state().r))])
    refused(model, f"{again.removesuffix('.npy')} is in it twice")


def test_headers_that_ask_for_other_data_than_the_file_has(model: Path) -> None:
    kept = [(n, data) for n, data in members(model) if n != "r.npy"]
    for shape, data in [((10**12,), b""), ((2, 2), bytes(31)), ((2, 2), bytes(33)), ((2**62, 8), b""), ((0, 7), b"x")]:
        npz(model, [*kept, ("r.npy", zeros(shape) + data)])
        refused(model, "r cannot be read .*its header asks for other data")


def test_members_that_are_no_arrays_pickles_or_packed_otherwise(model: Path) -> None:
    kept = [(n, data) for n, data in members(model) if n != "r.npy"]
    npz(model, [*kept, ("r.npy", b"import os")])
    refused(model, "r is not an array")
    npz(model, [*kept, ("r.npy", npy(np.ones((2, 2))))], zipfile.ZIP_LZMA)
    refused(model, "is packed in another way")
    npz(model, [*kept, ("r.npy", zeros((1,), "|O") + b"cos\nsystem\n")])
    refused(model, "Python objects, which are never loaded")


def test_a_checksum_that_does_not_fit(model: Path) -> None:
    with zipfile.ZipFile(model) as z:
        names = [(n, z.read(n)) for n in z.namelist()]
    npz(model, names, zipfile.ZIP_STORED)
    data = bytearray(model.read_bytes())
    at = bytes(data).index(np.float64(cl.zoo.two_state().gamma).tobytes())
    data[at] ^= 1
    model.write_bytes(data)
    refused(model, "cannot be read .*CRC")


@pytest.mark.parametrize("a", [np.asfortranarray(np.arange(12.0).reshape(3, 4)), np.zeros((0, 3)), np.array("text"),
                               np.arange(5, dtype=">i4"), np.array([True, False]), np.float64(3.5),
                               np.array(["a", "ü"]), np.arange(3) * 1j], ids=str)  # fmt: skip
def test_honest_arrays_come_back(a: Any) -> None:
    for save in (np.savez, np.savez_compressed):
        save("x.npz", a=a, b=1)
        found = read_arrays("x.npz", ("a", "absent"))
        assert list(found) == ["a"] and found["a"].dtype == np.asarray(a).dtype and np.array_equal(found["a"], a)
        assert found["a"].flags.f_contiguous == np.asarray(a).flags.f_contiguous


# ------------------------------------------------------------------------------------------------ run folders


def test_arrays_of_a_run_folder(tmp_path: Path) -> None:
    honest = solved(cl.zoo.two_state(), tmp_path / "run", K=60, N=5)
    trace = honest / "trace/000001.npz"
    old = trace.read_bytes()
    for forge in (packed_alike, lambda p: bomb(p, "theta"), huge_header):
        trace.write_bytes(old)
        forge(trace)
        seal(honest)
        refused(honest, "trace/000001.npz: ", lambda f: cl.run.load(f).trace)
    policy, margin = honest / "policy.npz", honest / "margin.npz"
    kept = policy.read_bytes()
    for name in ("weights", "pi"):
        policy.write_bytes(kept)
        bomb(policy, name)
        seal(honest)
        refused(honest, f"{name} has shape .*too large", lambda f: cl.run.load(f).policy)
    old = margin.read_bytes()
    for name in ("slater", "verdict", "bound", "steps", "tested", "weights", "pi"):
        margin.write_bytes(old)
        bomb(margin, name)
        refused(margin, f"{name} has shape .*too large", lambda p: FiniteMargin.load(p, cl.zoo.two_state()))


@pytest.mark.slow
def test_a_network_that_its_weights_do_not_fill(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    run = simulator_run(tmp_path / "run", K=3)
    arrays = dict(np.load(run / "policy.npz"))
    for hidden, says in (([3000, 3000], "its description asks for"), ([10**6, 10**6], "see --max-memory")):
        text = json.loads(str(arrays["policy"]))
        text["design"]["hidden"] = hidden
        save_npz(run / "policy.npz", arrays | {"policy": np.array(json.dumps(text))})
        with pytest.raises(cl.InputError, match=says):
            cl.NetworkMixture.load(run / "policy.npz")


# ------------------------------------------------------------------------------------------------ JSON


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"[" * 10**6, "is no JSON"),
        (b'{"a":' * (DEPTH + 2) + b"1" + b"}" * (DEPTH + 2), "levels deep"),
        (b"[" + b"[]," * 10**6 + b"[]]", "parts"),
        (b" " * (LARGEST + 1), "too large"),
        (b'{"schema": "s/1", "schema": "s/1"}', "a key occurs twice"),
        (b"9" * 5000, "is no JSON"),
        (b"\xff\xfe\x00", "is no JSON"),
    ],
    ids=range(7),
)
def test_json_that_would_cost_more_than_it_says(text: bytes, says: str) -> None:
    Path("x.json").write_bytes(text)
    with pytest.raises(cl.InputError, match=says):
        load_json("x.json", "s/1")
    assert peak(lambda: load_json("x.json", "s/1")) < 3 * LARGEST / MB


def test_honest_json_is_read() -> None:
    assert parse_json('{"a": [[{"b": null}]], "ü": "[[["}') == {"a": [[{"b": None}]], "ü": "[[["}


def test_grids_in_files_that_nest_without_end(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("a = " + "[" * 10**5, "[grid]\nseed = " + "[" * 300 + "]" * 300, "a." * 10**3 + "b = 1", "\x00"):
        Path("g.toml").write_text(text)
        status, out, err = cli("sweep g.toml --out g", capsys)
        assert (status, out) == (2, "") and err.count("\n") == 1 and not Path("g").exists()


@pytest.mark.slow
def test_memory_of_the_whole_process(model: Path) -> None:
    """The issue's own file: 3 GB of zeros beside an honest model."""
    call = "import resource, sys; from clearance.cli import main; main(['optimum', sys.argv[1], '--json']); "
    call += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    honest, forged = model, Path("bomb.npz")
    np.savez_compressed(forged, **np.load(honest), junk=np.zeros(4 * 10**8))
    kb = [
        int(subprocess.run([sys.executable, "-c", call, p], capture_output=True, text=True, check=True).stderr)
        for p in (honest, forged)
    ]
    assert kb[1] < 1.2 * kb[0]
