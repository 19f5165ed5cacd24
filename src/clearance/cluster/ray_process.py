"""Join a Ray cluster at a given address, or start and end a private one.

Ray can also find clusters by itself: it reads /tmp/ray/ray_current_cluster, which any user may write, and the command
lines of all processes of all users. A process that joins a cluster executes code from it. So only a cluster that the
user names is joined: by `address`, by --cluster, or by RAY_ADDRESS in the user's environment.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired, run
from typing import Any, NamedTuple

from clearance.core.errors import InputError, MissingExtraError

STORE = 200 * 2**20  # size of the object store of a private Ray in bytes
CONNECT = 5.0  # seconds within which a connection to the port must open
ANSWER = 20.0  # seconds within which Ray must then answer
START = 90.0  # seconds within which a private Ray must have started
LONGEST_PLACE = 22  # longest path of a folder for sessions: the paths of Ray's sockets may have 107 characters


def parse_address(address: str) -> tuple[str, int]:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 2**16):
        raise InputError(f"cluster must be local, ray, ray://HOST:PORT or HOST:PORT, got {address!r}")
    return host.strip("[]"), int(port)


def import_ray() -> Any:
    """Import Ray and switch off its usage statistics."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", "cluster") from None
    return ray


def silence_ray() -> None:
    """Reduce Ray's messages about failed workers and nodes to their first sentence, and write them to standard error.

    Ray itself would print long texts to standard output, which must contain only the result of the command.
    """
    from ray._private import worker

    def say(data: dict[str, Any], ignore_prefix: bool = False) -> None:
        first = "".join(data.get("lines", [])[:1]).strip().partition(". ")[0].partition("\n")[0]
        sys.stderr.write(f"ray: {first[:200]}\n" if first else "")

    worker.print_to_stdstream = say


QUIET: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}


def named_address() -> str | None:
    """Return the address in RAY_ADDRESS; None if it is not set or is "local", which stands for a private Ray."""
    address = os.environ.get("RAY_ADDRESS", "")
    return None if address in ("", "local") else address


def start_ray(ray: Any) -> RayServer:
    """Start a private Ray, join it, and return the process that runs it; `ray` is the imported package.

    This Ray listens only on the loopback interface, requires a token, and keeps its sessions in a private folder.
    """
    # Only processes with the token can use this Ray; other users of this machine do not have it.
    before = _authenticated({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    place = tempfile.gettempdir()
    place = tempfile.mkdtemp(prefix="ray-", dir=place if len(place) <= LONGEST_PLACE else "/tmp")
    command = [sys.executable, "-c", KEEPER, str(STORE), place]
    # Start a new session, so that Ctrl-C in the terminal does not reach Ray; this process ends Ray when it is ready.
    how: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, "text": True, "start_new_session": True}
    keeper = RayServer(Popen(command, **how), before, place)
    try:
        with _loopback(), _keep_handlers():
            ray.init(_wait_for_address(keeper), **QUIET)
    except BaseException:
        keeper.end(0.0)
        raise
    return keeper


def _wait_for_address(keeper: RayServer) -> str:
    """Return the address of the private Ray in the process `keeper`; raise InputError if it does not start in time."""
    out = keeper.process.stdout
    assert out is not None
    if not select.select([out], [], [], START)[0]:
        raise InputError(f"Ray could not be started: it was not ready within {START:g} s")
    address = out.readline().strip()
    if not address:
        said = keeper.end().strip().splitlines()
        raise InputError(f"Ray could not be started: {said[-1] if said else 'it said nothing'}")
    return address


class RayServer(NamedTuple):
    """The process that runs a private Ray.

    before  the previous authentication settings, which are restored at the end;  place: the private folder of this Ray
    """

    process: Popen[str]
    before: dict[str, str | None]
    place: str

    def end(self, patience: float = 30.0) -> str:
        """End the process, clean up, and return what it wrote to standard error.

        If it has not ended after `patience` seconds, it is killed.
        """
        try:
            said = self.process.communicate(timeout=patience)[1]  # closes its standard input, so that it ends; waits
        except TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            said = self.process.communicate()[1]
        _authenticated(self.before)
        shutil.rmtree(self.place, ignore_errors=True)
        return said


def _authenticated(by: dict[str, str | None]) -> dict[str, str | None]:
    """Apply Ray's authentication settings `by` to this process and its children; return the previous settings."""
    from ray import _raylet

    before = {name: os.environ.get(name) for name in by}
    for name, value in by.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    core: Any = _raylet
    core.Config.initialize("")  # make Ray read the settings again; it read them when it was loaded
    core.AuthenticationTokenLoader.instance().reset_cache()
    return before


# This script runs a private Ray, without dashboard, until its standard input is closed. So Ray ends with this process,
# however this process ends. It runs in its own process, because Ray forks when it starts, and JAX forbids forks once it
# is in use.
KEEPER = """
import os, sys
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
import ray
inside = sys.argv[2] + "/r"  # Ray lets everybody write its folder: the one around it stays private
how = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False, "_temp_dir": inside}
context = ray.init("local", object_store_memory=int(sys.argv[1]), **how)
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
ray.shutdown()
import shutil
shutil.rmtree(sys.argv[2], ignore_errors=True)
"""

# This script asks the Ray at an address for the name of its session. It runs in its own process, because Ray has no
# setting for its timeout of two minutes, and prints long texts while it waits.
PROBE = """
import sys
if sys.argv[1].startswith("ray://"):
    import grpc
    grpc.channel_ready_future(grpc.insecure_channel(sys.argv[1][6:])).result()
else:
    from ray._raylet import GcsClient
    GcsClient(address=sys.argv[1]).internal_kv_get(b"session_name", b"session", timeout=5)
"""


@contextmanager
def _loopback() -> Iterator[None]:
    """Keep Ray on the loopback interface inside a `with` block, by a Ray setting that is meant for desktop systems."""
    from ray._private import ray_constants as constants

    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _keep_handlers() -> Iterator[None]:
    """Restore the SIGTERM handler after a `with` block; Ray replaces it with one that exits silently."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def join_cluster(ray: Any, address: str) -> None:
    """Join the cluster at a given address; raise InputError if no Ray answers there in time."""
    host, port = parse_address(address)
    try:
        with socket.create_connection((host, port), timeout=CONNECT):
            pass
        _ask_for_session(address)
        with _keep_handlers():
            ray.init(address, **QUIET)
    except (OSError, ConnectionError, RuntimeError, ValueError) as e:
        first = next(iter(str(e).strip().splitlines()), type(e).__name__).partition(". ")[0]
        raise InputError(f"cluster {address}: cannot be joined: {first}: is Ray running there?") from None


def _ask_for_session(address: str) -> None:
    """Raise ConnectionError unless a Ray answers at the address and accepts this process's token, if it has one."""
    try:
        done = run(
            [sys.executable, "-c", PROBE, address], stdin=DEVNULL, capture_output=True, text=True, timeout=ANSWER
        )
    except TimeoutExpired:
        raise ConnectionError(f"no Ray has answered within {ANSWER:g} s") from None
    if done.returncode:
        said = [line for line in done.stderr.strip().splitlines() if line and not line.startswith((" ", "["))]
        raise ConnectionError(said[-1] if said else "it refuses")
