"""Environments in side processes: of another interpreter, or of this one to keep several cores busy.

    cl.gymnasium(cl.SideProcess("safety_gymnasium:make", "SafetyPointGoal1-v0", python="/opt/py310/bin/python"), …)

A side process is started afresh (never forked: a fork after JAX has started its threads may hang) and runs
`env_server.py` with the interpreter that is asked for. What goes over the Unix socket is described there.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.simulator.gymnasium_envs import env_server
from clearance.simulator.gymnasium_envs.env_lanes import Fault, Row
from clearance.simulator.gymnasium_envs.raw_values import pack, unpack

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class SideProcess:
    """An environment for `cl.gymnasium` that lives in processes of its own.

    make       "package.module:callable" that gives an environment, for instance "gymnasium:make"
    id         its first argument, if any;  kwargs: further ones, such as JSON holds
    python     the interpreter; this one unless given
    processes  how many share the lanes
    """

    make: str
    id: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    python: str = sys.executable
    processes: int = 1

    def __post_init__(self) -> None:
        module, colon, name = self.make.partition(":")
        if not (colon and module and name):
            raise InputError(f"make must be 'package.module:callable', got {self.make!r}")
        if self.processes < 1:
            raise InputError(f"processes must be at least 1, got {self.processes!r}")

    @property
    def name(self) -> str:
        return self.id or self.make


class _End:
    """This end of one side process with n lanes, the first of which is lane `first` of all."""

    def __init__(self, asked: SideProcess, first: int, n: int, names: Sequence[str], least: float) -> None:
        self.first, self.n = first, n
        here, there = socket.socketpair()
        with there:
            try:
                command = [asked.python, os.path.abspath(env_server.__file__), str(there.fileno())]
                self.process = subprocess.Popen(command, pass_fds=(there.fileno(),), stdin=subprocess.DEVNULL)
            except OSError as e:
                here.close()
                raise InputError(f"python {asked.python!r} cannot be started: {e.strerror or e}") from None
        self.link = here
        self.close = weakref.finalize(self, _end, here, self.process)
        args = [] if asked.id is None else [asked.id]
        spec = {"make": asked.make, "args": args, "kwargs": asked.kwargs, "n": n, "names": list(names), "least": least}
        try:
            env_server.send_text(here, spec)
            self.said = env_server.receive_text(here)
        except (EOFError, OSError):
            end = self._describe_end()
            told = f"the side process {end}; does {asked.python} have NumPy and the environment's package?"
            raise InputError(f"{asked.name} could not be made: {told}") from None
        if "fault" in self.said:
            self.close()
            raise InputError(f"{asked.name} could not be made by {asked.python}: {self.said['fault']}")

    def send(self, frame: bytes) -> None:
        try:
            self.link.sendall(frame)
        except OSError:
            raise self._dead() from None

    def receive(self, size: int) -> memoryview:
        """The body of an answer, or the fault that it tells of."""
        try:
            if bytes(env_server.receive(self.link, 1)) == env_server.FINE:
                return memoryview(env_server.receive(self.link, size))
            told = env_server.receive_text(self.link)
        except (EOFError, OSError):
            raise self._dead() from None
        raise Fault(self.first + told["lane"], told["what"], told["value"])

    def receive_text(self) -> Any:
        """A text that follows the body of an answer."""
        try:
            return env_server.receive_text(self.link)
        except (EOFError, OSError):
            raise self._dead() from None

    def _dead(self) -> Fault:
        return Fault(self.first, f"the side process {self._describe_end()}", None)

    def _describe_end(self) -> str:
        self.link.close()
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        return "ended its connection" if code is None else f"died (exit status {code})"


def _end(link: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """A side process leaves when its socket closes; one that hangs is ended."""
    link.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class RemoteEnvLanes:
    """Lanes in side processes; see `clearance.simulator.gymnasium_envs.env_lanes.EnvLanes` for what lanes do."""

    def __init__(self, asked: SideProcess, n: int, names: Sequence[str], least: float) -> None:
        self.asked, self.least = asked, least
        share = np.diff(np.linspace(0, n, min(asked.processes, n) + 1).astype(int))
        firsts = np.cumsum(share) - share
        self.ends = [_End(asked, int(i), int(k), names, least) for i, k in zip(firsts, share, strict=True)]
        said = self.ends[0].said
        self.n, self.names = n, tuple(names)
        self.obs_shape, self.dtype, self.action = tuple(said["obs"]), np.dtype(said["dtype"]), said["action"]
        self.row = Row(n, self.obs_shape, self.dtype, len(names))
        self.obs = np.zeros((n, *self.obs_shape), self.dtype)

    def reset(self, seeds: Sequence[int], which: Mask | None = None) -> Array:
        mask = np.ones(self.n, bool) if which is None else which
        listed = np.asarray(seeds, np.int64)
        called = [end for end in self.ends if mask[self._of(end)].any()]
        for end in called:
            end.send(env_server.RESET + mask[self._of(end)].tobytes() + listed[self._of(end)].tobytes())
        for end, body in _answers([(end, self.obs[self._of(end)].nbytes) for end in called]):
            rows = self.obs[self._of(end)]
            rows[...] = np.frombuffer(body, self.dtype).reshape(rows.shape)
        return self.obs

    def step(self, actions: Array, live: Mask) -> Row:
        flat = np.ascontiguousarray(np.asarray(actions, np.float64).reshape(self.n, -1))
        for end in self.ends:
            end.send(env_server.STEP + live[self._of(end)].tobytes() + flat[self._of(end)].tobytes())
        for end, body in _answers([(end, self._row_bytes(end)) for end in self.ends]):
            self._read_row(end, body)
        return self.row

    def reset_first(self, seed: int) -> Any:
        end = self.ends[0]
        end.send(env_server.RESET_FIRST + env_server.text_frame({"seed": int(seed)}))
        rows = self.obs[self._of(end)]
        rows[...] = np.frombuffer(end.receive(rows.nbytes), self.dtype).reshape(rows.shape)
        return unpack(end.receive_text()["obs"])

    def step_first(self, action: Any) -> tuple[Any, Row]:
        end = self.ends[0]
        try:
            packed = pack(action)
        except TypeError as e:
            raise Fault(0, f"the policy gave an action of the wrong type: {e}", action) from None
        self.row.valid[:] = False
        end.send(env_server.STEP_FIRST + env_server.text_frame({"action": packed}))
        self._read_row(end, end.receive(self._row_bytes(end)))
        return unpack(end.receive_text()["obs"]), self.row

    def first(self) -> RemoteEnvLanes:
        """One lane in a side process of its own."""
        return RemoteEnvLanes(self.asked, 1, self.names, self.least)

    def _row_bytes(self, end: _End) -> int:
        return sum(x.nbytes for x in self.row.arrays()) // self.n * end.n

    def _read_row(self, end: _End, body: memoryview) -> None:
        at = 0
        for x in (x[self._of(end)] for x in self.row.arrays()):
            x[...] = np.frombuffer(body[at : at + x.nbytes], x.dtype).reshape(x.shape)
            at += x.nbytes

    def next(self, over: Mask, seeds: Sequence[int]) -> Array:
        self.obs[:] = self.row.after
        return self.reset(seeds, over) if over.any() else self.obs

    def close(self) -> None:
        for end in self.ends:
            end.close()

    def _of(self, end: _End) -> slice:
        return slice(end.first, end.first + end.n)


def _answers(expected: list[tuple[_End, int]]) -> list[tuple[_End, memoryview]]:
    """Read the answers of all ends, of so many bytes each; all of them before a fault is raised."""
    bodies: list[tuple[_End, memoryview]] = []
    faults: list[Fault] = []
    for end, size in expected:
        try:
            bodies.append((end, end.receive(size)))
        except Fault as e:
            faults.append(e)
    if faults:
        raise faults[0]
    return bodies
