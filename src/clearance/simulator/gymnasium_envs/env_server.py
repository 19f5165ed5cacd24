"""The server side of `clearance.simulator.gymnasium_envs.env_client`: it runs environments in a process of its own.

    python env_server.py FD      serves n lanes over the Unix socket with this file descriptor, until it is closed

A lane is one of n parallel environments. The server needs Python 3.8 or newer, NumPy and the environment's package; of
clearance it needs only `env_lanes.py`, `time_limits.py` and `raw_values.py` beside it. First each side sends one JSON
text. Then follow requests (→) and answers (←): numbers in frames of known size, or JSON texts with observations and
actions of the first lane in the environment's own form. Nothing received is executed.

    →  {"make": "module:callable", "args", "kwargs", "n", "names", "least"}    ←  {"obs", "dtype", "action"}
    →  R  which [n] bool, seeds [n] int64                                      ←  +  obs [n, …]
    →  S  live [n] bool, actions [n, m] float64                                ←  +  the six arrays of a row
    →  r  {"seed"}                                                             ←  +  obs [n, …] and {"obs"}
    →  s  {"action"}                                                           ←  +  the six arrays of a row and {"obs"}
                                                                  or, if an environment fails, ←  !  and a text

A text consists of its length (4 bytes, little-endian) and that many bytes of JSON, at most `LONGEST`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import socket
import struct
import sys
import time
from typing import Any

LONGEST = 2**20  # bytes of a text: the bounds of ten thousand actions and more
MOST_SAID = 1000  # characters of an error

RESET, STEP = b"R", b"S"
RESET_FIRST, STEP_FIRST = b"r", b"s"
FINE, FAULT = b"+", b"!"


def main(fd: int) -> None:
    sys.path.pop(0)  # the environment must not import modules of this folder
    if not os.stat(os.getcwd()).st_mode & 0o002:  # in /tmp, say, any user can put a module that would be executed here
        sys.path.append(os.getcwd())
    os.dup2(2, 1)  # what the environment prints goes to standard error
    link = socket.socket(fileno=fd)
    try:
        spec = receive_text(link)
        lane_module = _sibling("env_lanes")
        try:
            lanes, said = make_lanes(lane_module, spec)
        except Exception as e:
            send_text(link, {"fault": lane_module.describe_error(e)[:MOST_SAID]})
            return
        send_text(link, said)
        while True:
            link.sendall(answer(lane_module, lanes, link))
    except (EOFError, ConnectionError):
        return


def make_lanes(lane_module: Any, spec: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Make the environments that the client's request `spec` describes; return them and a description of their spaces.

    TimeLimit wrappers are removed if they end episodes before `spec["least"]` steps. `lane_module` is `env_lanes.py`.
    """
    module, _, name = spec["make"].partition(":")
    make = getattr(importlib.import_module(module), name)
    lift = _sibling("time_limits").lift_time_limit
    envs = [lift(make(*spec["args"], **spec["kwargs"]), spec["least"]) for _ in range(spec["n"])]
    lanes = lane_module.EnvLanes(envs, spec["names"])
    return lanes, {"obs": lanes.obs_shape, "dtype": lanes.dtype.str, "action": lanes.action}


def answer(lane_module: Any, lanes: Any, link: socket.socket) -> bytes:
    """Read one request from the socket `link`, carry it out in the environments `lanes`, and return the answer.

    `lane_module` is the loaded module `env_lanes.py`.
    """
    np = lane_module.np
    kind, n = bytes(receive(link, 1)), lanes.n
    if kind in (RESET_FIRST, STEP_FIRST):
        return answer_first(lane_module, lanes, kind, receive_text(link))
    mask = np.frombuffer(receive(link, n), bool)
    try:
        if kind == RESET:
            seeds = np.frombuffer(receive(link, 8 * n), np.int64)
            return FINE + lanes.reset(seeds, mask).tobytes()
        m = len(lanes.action.get("low", lanes.action.get("nvec", [0])))
        a = np.frombuffer(receive(link, 8 * n * m), np.float64).reshape(n, m)
        row = lanes.step(a[:, 0] if lanes.action["kind"] == "discrete" else a, mask)
        lanes.obs[:] = row.after
        return FINE + b"".join(x.tobytes() for x in row.arrays())
    except Exception as e:
        return FAULT + text_frame(fault_text(lane_module, e))


def answer_first(lane_module: Any, lanes: Any, kind: bytes, asked: dict[str, Any]) -> bytes:
    """Carry out a request that concerns only the first environment, and return the bytes of the answer.

    Observations and actions are in the environment's own form.

    lane_module, lanes  the loaded module `env_lanes.py`, and the environments
    kind                RESET_FIRST or STEP_FIRST
    asked               the request: {"seed": …} for a reset, {"action": …} for a step
    """
    raw = _sibling("raw_values")
    try:
        if kind == RESET_FIRST:
            obs = lanes.reset_first(asked["seed"])
            return FINE + lanes.obs.tobytes() + text_frame({"obs": raw.pack(obs)})
        obs, row = lanes.step_first(raw.unpack(asked["action"]))
        return FINE + b"".join(x.tobytes() for x in row.arrays()) + text_frame({"obs": raw.pack(obs)})
    except Exception as e:
        return FAULT + text_frame(fault_text(lane_module, e))


def receive(link: socket.socket, size: int, seconds: float | None = None) -> bytearray:
    """Read and return exactly `size` bytes. Raise EOFError if the other side has closed the socket.

    Raise TimeoutError if the bytes do not arrive within `seconds`.
    """
    whole = bytearray(size)
    view, got = memoryview(whole), 0
    late = None if seconds is None else time.monotonic() + seconds
    while got < size:
        if got and late is not None and time.monotonic() > late:  # also give up if the bytes arrive too slowly
            raise TimeoutError
        k = link.recv_into(view[got:])
        if not k:
            raise EOFError
        got += k
    return whole


def send_text(link: socket.socket, data: Any) -> None:
    link.sendall(text_frame(data))


def text_frame(data: Any) -> bytes:
    text = json.dumps(data).encode()
    return struct.pack("<I", len(text)) + text


def receive_text(link: socket.socket, seconds: float | None = None) -> Any:
    """Read a JSON text from the socket `link` and return it as data.

    Raise ValueError if the text is not JSON, or is too long. The length is checked before memory is allocated. Raise
    TimeoutError if the text does not arrive within `seconds` (None: wait without limit).
    """
    size = struct.unpack("<I", receive(link, 4, seconds))[0]
    if size > LONGEST:
        raise ValueError(f"a text of {size} bytes, more than {LONGEST}")
    try:
        return json.loads(bytes(receive(link, size, seconds)))
    except (ValueError, RecursionError):
        raise ValueError("a text that is no JSON") from None


def fault_text(lane_module: Any, e: Any) -> dict[str, Any]:
    """Return the error `e` as JSON data: the index of the environment, a description and the wrong value.

    `lane_module` is the loaded module `env_lanes.py`.
    """
    if isinstance(e, lane_module.Fault):
        value = None if e.value is None else repr(e.value)[:200]
        return {"lane": e.lane, "what": e.what[:MOST_SAID], "value": value}
    return {"lane": 0, "what": lane_module.describe_error(e)[:MOST_SAID], "value": None}


@functools.lru_cache(maxsize=None)  # noqa: UP033  Python 3.8 has no functools.cache
def _sibling(name: str) -> Any:
    """Load a module of this folder by its path."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(int(sys.argv[1]))
