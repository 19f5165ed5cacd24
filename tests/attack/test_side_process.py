"""Side processes that are silent, slow or lie: one line, in a stated time, and no memory that they ask for."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clearance as cl
from clearance.simulator.gymnasium_envs import env_server
from clearance.simulator.gymnasium_envs.env_lanes import Fault

# An interpreter that does not run env_server.py: it reads the request and sends what a test wants, with pauses.
LIAR = """#!{python} -SE
import socket, sys, time
link = socket.socket(fileno=int(sys.argv[2]))
for frame in {frames!r}:
    if isinstance(frame, float):
        time.sleep(frame)
    elif frame == "read":
        link.recv(65536)
    elif frame == "end":
        sys.exit()
    else:
        link.sendall(frame)
link.recv(65536)
"""
GOOD = {"obs": [2], "dtype": "<f4", "action": {"kind": "discrete", "n": 2}}


def text(data: Any) -> bytes:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    return struct.pack("<I", len(body)) + body


def liar(tmp_path: Path, *frames: Any, patience: float = 20.0) -> cl.SideProcess:
    script = tmp_path / "python"
    script.write_text(LIAR.format(python=sys.executable, frames=list(frames)))
    script.chmod(0o755)
    return cl.SideProcess("a:b", python=str(script), patience=patience)


def problem(asked: cl.SideProcess) -> Any:
    return cl.gymnasium(asked, limits=1.0, horizon=5, num_envs=2)


FIRST = {
    "a length of 4 GB": (b"\xff\xff\xff\xff" + b"x" * 100, "sent a text of 4294967295 bytes, more than 1048576"),
    "a length just above the limit": (struct.pack("<I", 2**20 + 1), "sent a text of 1048577 bytes"),
    "no JSON": (text(b"hello, who are you?"), "sent a text that is no JSON as its first message"),
    "no UTF-8": (text(b"\xff\xfe\x00"), "sent a text that is no JSON"),
    "a deep nest": (text(b"[" * 200_000), "sent a text that is no JSON"),
    "a list": (text([1, 2]), "sent no description of an environment as its first message"),
    "null": (text(None), "no description of an environment"),
    "an empty text": (text(b""), "no JSON"),
    "a fault that is no text": (text({"fault": {"x": 1}}), "no description of an environment"),
    "a negative shape": (text(GOOD | {"obs": [-1]}), "no shape of observations"),
    "a shape of fractions": (text(GOOD | {"obs": [1.5]}), "no shape of observations"),
    "a shape of truth": (text(GOOD | {"obs": [True]}), "no shape of observations"),
    "a shape that is a text": (text(GOOD | {"obs": "ab"}), "no shape of observations"),
    "a huge shape": (text(GOOD | {"obs": [10**12]}), "observations of more than 1024 MB"),
    "a shape whose product is huge": (text(GOOD | {"obs": [65536, 65536]}), "observations of more than 1024 MB"),
    "objects": (text(GOOD | {"dtype": "|O"}), "no type of observations"),
    "a structured type": (text(GOOD | {"dtype": [["a", "<f8"]]}), "no type of observations"),
    "no action": (text(GOOD | {"action": None}), "no space of actions"),
    "an unknown action": (text(GOOD | {"action": {"kind": "tuple"}}), "no space of actions"),
    "a box without bounds": (text(GOOD | {"action": {"kind": "box", "low": [0.0]}}), "no space of actions"),
    "a crooked box": (text(GOOD | {"action": {"kind": "box", "low": [0], "high": [1, 2]}}), "no space of actions"),
    "choices that are texts": (text(GOOD | {"action": {"kind": "discrete", "n": "2"}}), "no space of actions"),
}


@pytest.mark.parametrize("kind", FIRST)
def test_a_bad_first_message_is_one_line(kind: str, tmp_path: Path) -> None:
    """No raw error of json, struct or numpy; no memory for what is announced; the process is gone."""
    sent, said = FIRST[kind]
    tracemalloc.start()
    try:
        with pytest.raises(cl.InputError, match=said) as e:
            problem(liar(tmp_path, "read", sent))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(e.value).startswith("a:b could not be made: the side process ") and "\n" not in str(e.value)
    assert peak < 2**24


LATER = {
    "an unknown kind": (b"?", "sent an answer of the unknown kind b'\\?' and was ended"),
    "a fault of 4 GB": (b"!" + b"\xff\xff\xff\xff", "sent a text of 4294967295 bytes"),
    "a fault that is no JSON": (b"!" + text(b"{"), "sent a text that is no JSON"),
    "a fault without a lane": (b"!" + text({"what": "x"}), "sent a fault without a lane and a text"),
    "a fault whose lane is a text": (b"!" + text({"lane": "0", "what": "x"}), "sent a fault without a lane and a text"),
    "a fault of lane 10⁹": (b"!" + text({"lane": 10**9, "what": "worn out"}), "worn out"),
    "half of an answer": (b"+" + b"\0" * 7, r"died \(exit status 0\)|ended its connection"),
}


@pytest.mark.parametrize("kind", LATER)
def test_a_bad_answer_is_one_line(kind: str, tmp_path: Path) -> None:
    sent, said = LATER[kind]
    p = problem(liar(tmp_path, "read", text(GOOD), "read", sent, *(["end"] if kind == "half of an answer" else [])))
    try:
        with pytest.raises(Fault, match=said) as e:
            p.lanes.reset([1, 2])
        assert "\n" not in str(e.value) and e.value.lane in (0, 1)
    finally:
        p.close()


SILENT = {
    "before its first message": ["read", 60.0],
    "in the middle of its first message": ["read", text(GOOD)[:10], 60.0],
    "one byte now and then": ["read", *[x for i in range(60) for x in (text(GOOD)[i : i + 1], 0.1)]],
}


@pytest.mark.parametrize("when", SILENT)
def test_a_silent_process_is_ended(when: str, tmp_path: Path) -> None:
    with pytest.raises(cl.InputError, match=r"said nothing for 0\.3 s \(patience\) and was ended") as e:
        problem(liar(tmp_path, *SILENT[when], patience=0.3))
    assert "\n" not in str(e.value)


def test_a_process_that_falls_silent_is_ended(tmp_path: Path) -> None:
    """At a later answer too; and the process does not stay behind."""
    p = problem(liar(tmp_path, "read", text(GOOD), "read", 60.0, patience=0.3))
    pid = p.lanes.ends[0].process.pid
    with pytest.raises(Fault, match=r"the side process said nothing for 0\.3 s"):
        p.lanes.reset([1, 2])
    assert not Path(f"/proc/{pid}").exists()


def test_processes_that_declare_different_spaces(tmp_path: Path) -> None:
    """The first to come makes a folder and declares two numbers, the other one three."""
    both = {True: text(GOOD), False: text(GOOD | {"obs": [3]})}
    asked = liar(tmp_path, "read", "REPLY")
    script = Path(asked.python)
    first = f"{both!r}[os.system('mkdir {tmp_path}/first 2> /dev/null') == 0]"
    script.write_text(script.read_text().replace("'REPLY'", first).replace("import socket", "import os, socket"))
    with pytest.raises(cl.InputError, match="its side processes declare different spaces"):
        problem(replace(asked, processes=2))


@pytest.mark.parametrize("patience", [0, -1.0, float("inf"), float("nan")])
def test_patience_is_a_positive_number(patience: float) -> None:
    with pytest.raises(cl.InputError, match="patience must be a positive number of seconds"):
        cl.SideProcess("a:b", patience=patience)


def test_modules_of_a_folder_that_anyone_can_write_are_not_executed(tmp_path: Path) -> None:
    """Any user can put a module into /tmp; one in a folder of our own is found, but does not shadow NumPy."""
    (tmp_path / "mine.py").write_text("import numpy; numpy.zeros")
    (tmp_path / "numpy.py").write_text("raise SystemExit('executed')")
    run = f"""
import runpy, sys
sys.path.insert(0, "the folder of env_server.py")
main = runpy.run_path({env_server.__file__!r})["main"]
main.__globals__["socket"] = None                      # it ends where the connection would begin
try:
    main(0)
except AttributeError:
    import mine
    print("found", file=sys.stderr)
"""
    for mode, found in ((0o755, True), (0o1777, False)):
        tmp_path.chmod(mode)
        done = subprocess.run([sys.executable, "-P", "-c", run], cwd=tmp_path, capture_output=True, text=True)
        assert ("found" in done.stderr) == found and "executed" not in done.stderr, done.stderr


def test_ctrl_c_in_the_terminal_is_not_for_side_processes(tmp_path: Path) -> None:
    """They are no members of our process group, to which a terminal sends its signals."""
    p = problem(liar(tmp_path, "read", text(GOOD)))
    try:
        assert os.getpgid(p.lanes.ends[0].process.pid) != os.getpgid(0)
    finally:
        p.close()
