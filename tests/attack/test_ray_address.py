"""Only a Ray whose address was named is joined, and one that does not answer ends the command in one line."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import clearance as cl
from clearance.cluster import ray_executor, ray_process

ray = pytest.importorskip("ray")


class Recorder(SimpleNamespace):
    """A package `ray` that only says what was asked of it."""

    def __init__(self) -> None:
        super().__init__(asked=[])

    def is_initialized(self) -> bool:
        return False

    def init(self, address: str, **_: Any) -> None:
        self.asked.append(address)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr(ray_executor, "import_ray", lambda: found)
    monkeypatch.setattr(ray_executor, "silence_ray", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return found


@pytest.fixture
def listener() -> Iterator[Any]:
    """A server that does with each connection what a test wants; silent unless told."""
    server, held = socket.create_server(("127.0.0.1", 0)), []
    found = SimpleNamespace(address=f"127.0.0.1:{server.getsockname()[1]}", reply=None)

    def serve() -> None:
        while True:
            try:
                link, _ = server.accept()
            except OSError:
                return
            held.append(link)
            if found.reply is not None:
                link.sendall(found.reply)
                link.close()

    threading.Thread(target=serve, daemon=True).start()
    yield found
    server.close()
    for link in held:
        link.close()


STAND_IN = """
import sys
print("127.0.0.1:1", flush=True)
sys.stdin.read()
"""


def test_nothing_is_searched_for(fake: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that looks like Ray's, and a file in /tmp/ray, are what Ray's own "auto" would follow."""
    looks = [sys.executable, "-c", "import time; time.sleep(60)", "--gcs-address=127.0.0.1:9"]
    monkeypatch.setattr(ray_process, "KEEPER", STAND_IN)
    with subprocess.Popen(["raylet", *looks[1:]], executable=sys.executable) as other:
        try:
            executor = cl.Ray()
            executor.connected()
            assert fake.asked == ["127.0.0.1:1"]  # the one that was started
            keeper = executor._keeper
            assert keeper is not None and stat.S_IMODE(os.stat(keeper.place).st_mode) == 0o700
            assert os.getpgid(keeper.process.pid) != os.getpgid(0)
            assert len(os.environ["RAY_AUTH_TOKEN"]) == 64 and os.environ["RAY_AUTH_MODE"] == "token"
            keeper.end()
            assert not Path(keeper.place).exists() and "RAY_AUTH_TOKEN" not in os.environ
        finally:
            other.kill()


@pytest.mark.parametrize("named", ["10.0.0.5:6379", "ray://head:10001"])
def test_a_name_in_the_environment_counts(fake: Recorder, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    joined: list[str] = []
    monkeypatch.setattr(ray_executor, "join_cluster", lambda _, address: joined.append(address))
    monkeypatch.setenv("RAY_ADDRESS", named)
    cl.Ray().connected()
    cl.Ray("10.0.0.9:6379").connected()  # what is said in the call counts first
    assert joined == [named, "10.0.0.9:6379"]


@pytest.mark.parametrize("named", ["auto", "10.0.0.5", "ray://"])
def test_a_name_that_asks_to_search_is_refused(fake: Recorder, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("RAY_ADDRESS", named)
    with pytest.raises(cl.InputError, match="cluster must be local, ray, ray://HOST:PORT or HOST:PORT"):
        cl.Ray().connected()
    assert fake.asked == []


@pytest.mark.parametrize("named", ["", "local"])
def test_no_name_is_a_ray_of_our_own(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("RAY_ADDRESS", named)
    assert ray_process.named_address() is None


@pytest.mark.parametrize("kind", ["{}", "ray://{}"])
def test_a_silent_listener_ends_in_one_line(listener: Any, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(ray_process, "ANSWER", 0.5)
    address, before = kind.format(listener.address), ray.is_initialized()
    with pytest.raises(cl.InputError, match=r"cannot be joined: no Ray has answered within 0\.5 s") as e:
        ray_process.join_cluster(ray, address)
    assert "\n" not in str(e.value) and ray.is_initialized() == before


def test_a_closed_port_ends_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(cl.InputError, match=r"cannot be joined: .*refused.*: is Ray running there\?") as e:
        ray_process.join_cluster(ray, address)
    assert "\n" not in str(e.value)


def test_a_server_that_is_not_ray_ends_in_one_line(listener: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listener.reply = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    monkeypatch.setattr(ray_process, "ANSWER", 1.0)
    with pytest.raises(cl.InputError, match="cannot be joined: ") as e:
        ray_process.join_cluster(ray, listener.address)
    assert "\n" not in str(e.value)


KEEPERS = {
    "silent": ("import time; time.sleep(60)", r"it was not ready within 0\.5 s"),
    "fails": ("raise SystemExit('no memory for the object store')", "no memory for the object store"),
    "ends": ("", "it said nothing"),
}


@pytest.mark.parametrize("kind", KEEPERS)
def test_a_ray_that_does_not_start_ends_in_one_line(
    fake: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """Nothing of it stays behind: no process, no folder, no token in the environment."""
    code, said = KEEPERS[kind]
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(ray_process, "KEEPER", code)
    monkeypatch.setattr(ray_process, "START", 0.5 if kind == "silent" else 30.0)
    made: list[str] = []
    monkeypatch.setattr(ray_process.tempfile, "mkdtemp", lambda **_: made.append(str(tmp_path / "t")) or made[-1])
    with pytest.raises(cl.InputError, match=f"Ray could not be started: {said}") as e:
        cl.Ray().connected()
    assert "\n" not in str(e.value) and made and not (tmp_path / "t").exists() and "RAY_AUTH_TOKEN" not in os.environ


def test_sigterm_stays_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    before = signal.getsignal(signal.SIGTERM)
    with ray_process._keep_handlers():
        signal.signal(signal.SIGTERM, lambda *_: None)
    assert signal.getsignal(signal.SIGTERM) is before


OWNER = """
import sys, clearance as cl
print(cl.Ray().connected().get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_another_token_is_refused_in_one_line() -> None:
    """A Ray of our own, and a stranger who has seen its address and has another token, or none."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    how: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": env}
    with subprocess.Popen([sys.executable, "-c", OWNER], **how) as owner:
        assert owner.stdout is not None
        join = f"import clearance as cl; cl.Ray({owner.stdout.readline().strip()!r}).connected()"
        for token in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}):
            command = [sys.executable, "-c", join]
            done = subprocess.run(command, env=env | token, capture_output=True, text=True, check=False)
            last = done.stderr.strip().splitlines()[-1]
            assert done.returncode and "cannot be joined: " in last and "oken" in last, done.stderr
        owner.communicate()
