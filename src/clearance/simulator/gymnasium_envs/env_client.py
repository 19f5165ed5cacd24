"""Run environments in side processes: under another Python interpreter, or under this one to use several cores.

    cl.gymnasium(cl.SideProcess("safety_gymnasium:make", "SafetyPointGoal1-v0", python="/opt/py310/bin/python"), …)

A side process is started afresh, because forking after JAX has started its threads may hang. It runs `env_server.py`
with the requested interpreter; that file describes the messages on the Unix socket.
"""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.simulator.gymnasium_envs import env_server
from clearance.simulator.gymnasium_envs.env_lanes import Fault, Row
from clearance.simulator.gymnasium_envs.raw_values import pack, unpack

Mask = NDArray[np.bool_]

LARGEST = 2**30  # bytes of the observations of one step


@dataclass(frozen=True)
class SideProcess:
    """An environment for `cl.gymnasium` that runs in other processes, if needed under another Python.

    make       "package.module:callable" that returns an environment, for instance "gymnasium:make"
    id         the first argument of this callable, if any;  kwargs: its keyword arguments, which must be JSON data
    python     the path of the interpreter (default: the running one)
    processes  the number of processes; the parallel environments are divided among them
    patience   seconds to wait for one answer, including the creation of the environments; then the process is killed
    """

    make: str
    id: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    python: str = sys.executable
    processes: int = 1
    patience: float = 300.0

    def __post_init__(self) -> None:
        module, colon, name = self.make.partition(":")
        if not (colon and module and name):
            raise InputError(f"make must be 'package.module:callable', got {self.make!r}")
        if self.processes < 1:
            raise InputError(f"processes must be at least 1, got {self.processes!r}")
        if not 0 < self.patience < 1e9:
            raise InputError(f"patience must be a positive number of seconds, got {self.patience!r}")

    @property
    def name(self) -> str:
        return self.id or self.make


class Declared(NamedTuple):
    """The observation shape, dtype and action space that a side process reports."""

    obs: tuple[int, ...]
    dtype: np.dtype[Any]
    action: dict[str, Any]


class _End:
    """The connection to one side process, which runs n lanes (parallel environments).

    The lanes of all side processes together have the indices 0, 1, …; `first` is the index of this connection's first
    lane.
    """

    def __init__(self, asked: SideProcess, first: int, n: int, names: Sequence[str], least: float) -> None:
        self.first, self.n, self.patience = first, n, asked.patience
        here, there = socket.socketpair()
        here.settimeout(asked.patience)
        with there:
            try:
                command = [asked.python, os.path.abspath(env_server.__file__), str(there.fileno())]
                # In its own session, the process does not get Ctrl-C; we close the connection when we are ready.
                self.process = subprocess.Popen(
                    command, pass_fds=(there.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True
                )
            except OSError as e:
                here.close()
                raise InputError(f"python {asked.python!r} cannot be started: {e.strerror or e}") from None
        self.link = here
        self.close = weakref.finalize(self, _end, here, self.process)
        args = [] if asked.id is None else [asked.id]
        spec = {"make": asked.make, "args": args, "kwargs": asked.kwargs, "n": n, "names": list(names), "least": least}
        self.declared = self._shake_hands(asked, spec)

    def _shake_hands(self, asked: SideProcess, spec: dict[str, Any]) -> Declared:
        try:
            env_server.send_text(self.link, spec)
            said = env_server.receive_text(self.link, self.patience)
            if isinstance(said, dict) and isinstance(said.get("fault"), str):
                self.close()
                raise InputError(f"{asked.name} could not be made by {asked.python}: {said['fault']}")
            return read_declaration(said, self.n)
        except TimeoutError:
            why = self._give_up(f"said nothing for {self.patience:g} s (patience)")
        except (EOFError, OSError):
            why = f"{self._describe_end()}; does {asked.python} have NumPy and the environment's package?"
        except InputError:
            raise
        except ValueError as e:
            why = self._give_up(f"sent {e} as its first message")
        raise InputError(f"{asked.name} could not be made: the side process {why}")

    def send(self, frame: bytes) -> None:
        with self._talking("read"):
            self.link.sendall(frame)

    def receive(self, size: int) -> memoryview:
        """Return the body of an answer, which has `size` bytes; raise Fault if the side process reports an error."""
        with self._talking("said"):
            kind = bytes(env_server.receive(self.link, 1))
            if kind == env_server.FINE:
                return memoryview(env_server.receive(self.link, size, self.patience))
            if kind != env_server.FAULT:
                raise ValueError(f"an answer of the unknown kind {kind!r}")
            lane, what, value = _read_fault(env_server.receive_text(self.link, self.patience), self.n)
        raise Fault(self.first + lane, what, value)

    def receive_text(self) -> Any:
        """Return the JSON text that follows the body of an answer."""
        with self._talking("said"):
            return env_server.receive_text(self.link, self.patience)

    @contextmanager
    def _talking(self, did: str) -> Iterator[None]:
        """Turn communication errors in the `with` block into a Fault: the process was silent, died, or sent wrong data.

        did  the first words of the message about a silent process, such as "read nothing" in "read nothing for 60 s"
        """
        try:
            yield
        except TimeoutError:
            raise self._fault(self._give_up(f"{did} nothing for {self.patience:g} s (patience)")) from None
        except (EOFError, OSError):
            raise self._fault(self._describe_end()) from None
        except ValueError as e:
            raise self._fault(self._give_up(f"sent {e}")) from None

    def _fault(self, what: str) -> Fault:
        return Fault(self.first, f"the side process {what}", None)

    def _give_up(self, why: str) -> str:
        """Kill a process that does not follow the protocol; return the reason `why`, extended to an error message."""
        self.process.kill()
        self.close()
        return f"{why} and was ended"

    def _describe_end(self) -> str:
        self.link.close()
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        return "ended its connection" if code is None else f"died (exit status {code})"


def read_declaration(said: Any, n: int) -> Declared:
    """Return the spaces that a side process declares in `said`, its first answer.

    Raise ValueError if they are missing, malformed or too large. The spaces and the number n of parallel environments
    determine the size of all later answers in bytes, and so the memory that answers can take.
    """
    if not (isinstance(said, dict) and {"obs", "dtype", "action"} <= set(said)):
        raise ValueError("no description of an environment")
    shape, dtype, action = said["obs"], said["dtype"], said["action"]
    if not (isinstance(shape, list) and len(shape) <= 32 and all(type(k) is int and k >= 0 for k in shape)):
        raise ValueError("no shape of observations")
    if dtype not in ("<f4", "<f8", ">f4", ">f8"):
        raise ValueError("no type of observations")
    if n * math.prod(shape) * np.dtype(dtype).itemsize > LARGEST:
        raise ValueError(f"observations of more than {LARGEST >> 20} MB")
    if not (isinstance(action, dict) and _is_action(action)):
        raise ValueError("no space of actions")
    return Declared(tuple(shape), np.dtype(dtype), action)


def _is_action(action: dict[str, Any]) -> bool:
    """Return whether the data describes an action space, in the format that `env_lanes.action` returns."""
    fields = {"discrete": ("n",), "multi-discrete": ("nvec",), "box": ("low", "high")}.get(str(action.get("kind")))
    if fields is None or not all(name in action for name in fields):
        return False
    numbers = [action[name] for name in ("n", "nvec", "low", "high", "start", "form") if name in action]
    listed = [x if isinstance(x, list) else [x] for x in numbers]
    same = len({len(action[name]) for name in fields if isinstance(action[name], list)}) <= 1
    return same and all(x is None or type(x) in (int, float) for row in listed for x in row)


def _read_fault(told: Any, n: int) -> tuple[int, str, Any]:
    if not (isinstance(told, dict) and type(told.get("lane")) is int and isinstance(told.get("what"), str)):
        raise ValueError("a fault without a lane and a text")
    return min(max(told["lane"], 0), n - 1), told["what"], told.get("value")


def _end(link: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Close the socket, which makes the side process exit; kill it if it does not exit in time."""
    link.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class RemoteEnvLanes:
    """Lanes (parallel environments) that run in side processes.

    The interface is that of `clearance.simulator.gymnasium_envs.env_lanes.EnvLanes`.
    """

    def __init__(self, asked: SideProcess, n: int, names: Sequence[str], least: float) -> None:
        self.asked, self.least = asked, least
        share = np.diff(np.linspace(0, n, min(asked.processes, n) + 1).astype(int))
        firsts = np.cumsum(share) - share
        self.ends = [_End(asked, int(i), int(k), names, least) for i, k in zip(firsts, share, strict=True)]
        self.n, self.names = n, tuple(names)
        self.obs_shape, self.dtype, self.action = self.ends[0].declared
        if any(end.declared != self.ends[0].declared for end in self.ends):
            self.close()
            raise InputError(f"{asked.name} could not be made: its side processes declare different spaces")
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
        """Return new `RemoteEnvLanes` with a single lane (environment), which runs in a new side process."""
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
    """Read one answer from each of the given side processes; return the processes with the bodies of their answers.

    `expected` lists each process with the size of its answer in bytes. If some processes report errors, the first Fault
    is raised after all answers are read.
    """
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
