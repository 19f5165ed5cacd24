"""Ray itself: one that runs on this machine, one of our own, or one elsewhere; joined, started and ended."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen
from typing import Any, NamedTuple

from clearance.core.errors import InputError, MissingExtraError

STORE = 200 * 2**20  # bytes of the object store of a Ray of our own
ANSWER = 5.0  # seconds within which a cluster must answer


def parse_address(address: str) -> tuple[str, int]:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 2**16):
        raise InputError(f"cluster must be local, ray, ray://HOST:PORT or HOST:PORT, got {address!r}")
    return host.strip("[]"), int(port)


def import_ray() -> Any:
    """Ray, told not to call home."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", "cluster") from None
    return ray


def silence_ray() -> None:
    """What Ray says of workers and nodes that die: their first sentence, on standard error. It prints pages, and on
    standard output, which is for our answers alone.
    """
    from ray._private import worker

    def say(data: dict[str, Any], ignore_prefix: bool = False) -> None:
        first = "".join(data.get("lines", [])[:1]).strip().partition(". ")[0].partition("\n")[0]
        sys.stderr.write(f"ray: {first[:200]}\n" if first else "")

    worker.print_to_stdstream = say


QUIET: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}


def start_ray(ray: Any) -> RayServer | None:
    """The Ray that runs on this machine; else one of our own, and the process that keeps it."""
    try:
        ray.init("auto", **QUIET)
        return None
    except ConnectionError:
        # A Ray of our own serves those who know its token: other users of this machine do not.
        before = _authenticated({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    process = Popen([sys.executable, "-c", KEEPER, str(STORE)], stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)
    keeper = RayServer(process, before)
    address = process.stdout.readline().strip()  # type: ignore[union-attr]
    if not address:
        said = keeper.end().strip().splitlines()
        raise InputError(f"Ray could not be started: {said[-1] if said else 'it said nothing'}")
    with _loopback():
        ray.init(address, **QUIET)
    return keeper


class RayServer(NamedTuple):
    """The process that keeps a Ray of our own, and the settings for authentication without it."""

    process: Popen[str]
    before: dict[str, str | None]

    def end(self) -> str:
        """End it; what it said."""
        said = self.process.communicate()[1]  # closes its standard input, and waits
        _authenticated(self.before)
        return said


def _authenticated(by: dict[str, str | None]) -> dict[str, str | None]:
    """Ray's settings for authentication, in this process and those it starts; gives back those before."""
    from ray import _raylet

    before = {name: os.environ.get(name) for name in by}
    for name, value in by.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    core: Any = _raylet
    core.Config.initialize("")  # Ray has read both as it was loaded
    core.AuthenticationTokenLoader.instance().reset_cache()
    return before


# Keeps a Ray of our own, without dashboard, until its standard input closes: so Ray ends with us, however we end. A
# process of its own, because Ray forks to start, which JAX, once it has begun, forbids.
KEEPER = """
import os, sys
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
import ray
how = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
context = ray.init("local", object_store_memory=int(sys.argv[1]), **how)
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""


@contextmanager
def _loopback() -> Iterator[None]:
    """Ray's own switch for desktops, by which it stays on the loopback interface: it was read as Ray was loaded."""
    from ray._private import ray_constants as constants

    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def join_cluster(ray: Any, address: str) -> None:
    host, port = parse_address(address)
    try:
        with socket.create_connection((host, port), timeout=ANSWER):
            pass
        ray.init(address, **QUIET)
    except (OSError, ConnectionError, RuntimeError, ValueError) as e:
        first = next(iter(str(e).strip().splitlines()), type(e).__name__)
        raise InputError(f"cluster {address}: cannot be joined: {first}: is Ray running there?") from None
