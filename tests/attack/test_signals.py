"""Ctrl-C, SIGTERM and SIGHUP: saved, said in one line, exit status 128 + n; never inside an import or a compiler."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rays import wait_for
from runs import LISTENING, bits

import clearance as cl
from clearance.cli import interrupts
from clearance.cli import main as clearance_main
from clearance.runs import progress

ALL = ["SIGINT", "SIGTERM", "SIGHUP"]
LONG = "solve two-state --method cnpgpd --K 400000 --N 20 --checkpoint-every 200 --json"


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    """The signals arrive here: in a background job, or under nohup, they would be ignored."""
    usual = signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL
    before = [signal.signal(getattr(signal, name), how) for name, how in zip(ALL, usual, strict=True)]
    yield
    for name, how in zip(ALL, before, strict=True):
        signal.signal(getattr(signal, name), how)


def start(folder: Path, argv: str = LONG, **how: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LISTENING, *argv.split(), "--resume", "run"]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, **how
    )


def finish(folder: Path, argv: str) -> int:
    with start(folder, argv) as process:
        process.communicate(timeout=100)
    return process.returncode


def has_checkpoint(folder: Path) -> Callable[[], bool]:
    return lambda: bool(list((folder / "run" / "checkpoint").glob("*.npz")))


def said(err: str) -> list[str]:
    """The lines on standard error, but for the one that kernels are compiled."""
    return [line for line in err.splitlines() if "compiling" not in line]


@pytest.mark.parametrize("name", ["SIGTERM", *(pytest.param(n, marks=pytest.mark.slow) for n in ("SIGINT", "SIGHUP"))])
def test_a_signal_saves_and_says_so(name: str, tmp_path: Path) -> None:
    """What `kill`, a batch system or a terminal that is closed do to a run; it can be resumed at once."""
    with start(tmp_path) as process:
        wait_for(has_checkpoint(tmp_path))
        process.send_signal(getattr(signal, name))
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + getattr(signal, name)
    assert len(said(err)) == 1 and "resume with: clearance solve --resume run" in err
    found = cl.run.load(tmp_path / "run")
    assert found.status == "interrupted" and found.k > 0 and not found.damaged


def test_several_signals_at_once_are_one(tmp_path: Path) -> None:
    """A batch system sends SIGTERM to all and again; a shell that ends sends SIGHUP as well."""
    with start(tmp_path) as process:
        wait_for(has_checkpoint(tmp_path))
        for name in ("SIGTERM", "SIGHUP", "SIGTERM", "SIGINT"):
            process.send_signal(getattr(signal, name))
        _, err = process.communicate(timeout=60)
    assert process.returncode in (129, 130, 143) and len(said(err)) == 1, err
    assert cl.run.load(tmp_path / "run").status == "interrupted"


def test_sighup_stays_ignored_under_nohup(tmp_path: Path) -> None:
    """Who starts a command with nohup wants it to survive the terminal."""
    code = LISTENING.replace("signal.SIG_DFL", "signal.SIG_IGN").replace("import signal, sys", "import os, signal, sys")
    end = "os.kill(os.getpid(), signal.SIGHUP); sys.exit(main(['optimum', 'two-state', '--json']))"
    code = code.replace("sys.exit(main())", end)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["verdict"] == "CERTIFIED"


def test_a_terminal_that_is_closed(tmp_path: Path) -> None:
    """SIGHUP comes with a standard error that cannot be written any more: the run is saved all the same."""
    argv = LONG.replace(" --json", "").split()
    terminal, inner = pty.openpty()
    streams: dict[str, Any] = {"stdin": inner, "stdout": inner, "stderr": inner, "start_new_session": True}
    process = subprocess.Popen([sys.executable, "-c", LISTENING, *argv, "--resume", "run"], cwd=tmp_path, **streams)
    os.close(inner)
    threading.Thread(target=drain, args=(terminal,), daemon=True).start()
    wait_for(has_checkpoint(tmp_path))
    process.send_signal(signal.SIGSTOP)  # the end of the session is what ends it, not a write that fails before
    os.close(terminal)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGCONT)
    assert process.wait() == 129
    assert cl.run.load(tmp_path / "run").status == "interrupted"


def test_a_bar_that_cannot_be_drawn() -> None:
    """It does not end the run; and an interrupt that a failed write has covered is not lost."""
    with progress.drawing():
        raise OSError(5, "Input/output error")
    with pytest.raises(KeyboardInterrupt), progress.drawing():
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError(5, "Input/output error")


def drain(terminal: int) -> None:
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        return


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_resumed_to_the_same_bits(name: str, tmp_path: Path) -> None:
    flags = "solve altman-queue-discounted --evidence samples --budget 1e6 --delta 0.05 --checkpoint-every 50 --json"
    (tmp_path / "calm").mkdir()
    assert finish(tmp_path / "calm", flags) in (0, 4)
    with start(tmp_path, flags) as process:
        wait_for(has_checkpoint(tmp_path))
        process.send_signal(getattr(signal, name))
        process.communicate(timeout=60)
    assert finish(tmp_path, flags) in (0, 4)
    assert bits(tmp_path / "run") == bits(tmp_path / "calm" / "run")


# ------------------------------------------------------------------------------------------------ held back


class Worker:
    """The handlers in this process, and a signal to it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def interrupted(self, work: Callable[[], None]) -> bool:
        with interrupts.handled(until_exit=False):
            try:
                work()
            except KeyboardInterrupt:
                self.seen.append("interrupted")
                return True
        return False


def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    (tmp_path / "slow_import.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("slow_import", None)


KILL = "import os, signal, time\nos.kill(os.getpid(), signal.{})\ntime.sleep(0.1)\nwhole = True\n"


@pytest.mark.parametrize("name", ALL)
def test_an_import_is_finished_first(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KeyboardInterrupt inside numba's import came out as `ImportError: numba._devicearray failed to import`."""
    module(tmp_path, monkeypatch, KILL.format(name))

    def work() -> None:
        __import__("slow_import")
        time.sleep(5)

    before = [signal.getsignal(n) for n in interrupts.SIGNALS]
    assert Worker().interrupted(work) and sys.modules["slow_import"].whole
    assert interrupts.exit_status() == 128 + getattr(signal, name) and interrupts.was_interrupted()
    assert [signal.getsignal(n) for n in interrupts.SIGNALS] == before


@pytest.mark.parametrize("package", sorted(interrupts.COMPILERS))
def test_a_compiler_is_finished_first(package: str) -> None:
    """KeyboardInterrupt inside JAX's lowering left objects that crashed the interpreter at its end (signal 11)."""
    space: dict[str, Any] = {"__name__": f"{package}._src.inner", "done": []}
    exec(f"def lower():\n    {KILL.format('SIGTERM').replace(chr(10), chr(10) + '    ')}\n    done.append(1)", space)

    def work() -> None:
        space["lower"]()
        time.sleep(5)

    assert Worker().interrupted(work) and space["done"] == [1]


def test_elsewhere_it_comes_at_once() -> None:
    """A package with a similar name is none of them; nor is the code that has left a compiler."""
    space: dict[str, Any] = {"__name__": "jaxish.inner", "done": []}
    exec(f"def walk():\n    {KILL.format('SIGINT').replace(chr(10), chr(10) + '    ')}\n    done.append(1)", space)
    assert Worker().interrupted(space["walk"]) and space["done"] == []


def test_work_that_ends_before_a_held_signal_is_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of it: no timer that would send it into whatever comes next."""
    module(tmp_path, monkeypatch, "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("delivered late"))
    try:
        assert not Worker().interrupted(lambda: __import__("slow_import") and None)
        time.sleep(3 * interrupts.AGAIN)
    finally:
        signal.signal(signal.SIGTERM, before)


INSISTS = """
import os, signal, time
from clearance.cli import interrupts
interrupts.SAME = 0.05
space = {"__name__": "numba.core", "time": time}
exec("def compile():\\n    go(); time.sleep(0.2); go(); time.sleep(60)", space)
space["go"] = lambda: os.kill(os.getpid(), signal.SIGTERM)
with interrupts.handled(until_exit=True):
    space["compile"]()
"""


def test_who_insists_ends_a_compiler_at_once() -> None:
    """The second signal, later than the first, ends the process as kill -9 would."""
    done = subprocess.run([sys.executable, "-c", INSISTS], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == -signal.SIGTERM and done.stderr == "clearance: interrupted\n"


def test_an_error_that_a_library_made_of_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from clearance.cli import main, optimum_command

    def run(_: Any) -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except KeyboardInterrupt:
            raise RuntimeError("the extension failed to initialise") from None
        return 0

    monkeypatch.setattr(optimum_command, "run", run)
    assert main(["optimum", "two-state"]) == 143 and capsys.readouterr().err == "clearance: interrupted\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_random_instants_of_the_start(name: str, tmp_path: Path) -> None:
    """No traceback and no crash at 8 instants of a start that imports and compiles."""
    command = [
        sys.executable,
        "-c",
        LISTENING,
        *["solve", "altman-queue-discounted", "--K", "20", "--N", "20", "--json"],
    ]
    env = os.environ | {"PYTHONFAULTHANDLER": "1"}
    for i in range(8):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=tmp_path
        ) as p:
            time.sleep(0.1 + 0.12 * i)
            p.send_signal(getattr(signal, name))
            _, err = p.communicate(timeout=60)
        signum = getattr(signal, name)
        assert p.returncode in (0, 4, 128 + signum, -signum) and "Traceback" not in err, err


def test_an_interrupt_before_the_command_has_begun_is_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(argv: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("clearance.cli.command_line.main", interrupted)
    assert clearance_main(["zoo"]) == 130
    assert capfd.readouterr().err == "clearance: interrupted\n"
