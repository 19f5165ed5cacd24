"""Two users on one machine, one of them hostile: what its attempts on Ray, side processes and folders got.

    python benchmarks/two_users.py          # as root, which becomes both of them; Linux

The victim starts a Ray of its own through `cl.Ray`, an environment in a side process, and `solve` in a folder that both
can write. The stranger has planted what Ray's own search would follow, knows every address, process and path (root
tells), and tries to join, to read the token, to connect to every port and socket, and to get code run. /tmp/ray is
replaced for these processes only. The table is in docs/reliability.md.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, NamedTuple

import numpy

import clearance

VICTIM, STRANGER = 65533, 65534
SOURCE, SITE = Path(clearance.__file__).parents[1], Path(numpy.__file__).parents[1]
PYTHON = "/usr/bin/python3" if os.path.realpath(sys.executable).startswith(f"{Path.home()}/") else sys.executable
RAY = Path("/tmp/ray")  # where Ray's own search looks

OWNER = """
import json, os, sys
import clearance as cl
executor = cl.Ray()
ray = executor.connected()
print(json.dumps({"address": ray.get_runtime_context().gcs_address, "place": executor._keeper.place}), flush=True)
sys.stdin.read()
"""
COSTLY = """
import gymnasium
class Costly(gymnasium.Wrapper):
    def step(self, action):
        return *self.env.step(action)[:4], {"cost": 0.0}
make = lambda: Costly(gymnasium.make("CartPole-v1"))
"""
SIDE = """
import sys
import clearance as cl
problem = cl.gymnasium(cl.SideProcess("costly:make"), limits=1.0, bounds=(0.0, 1.0), horizon=5, num_envs=2)
print("ready", flush=True)
sys.stdin.read()
"""
COMMAND = "import sys; from clearance.cli import main; sys.exit(main(sys.argv[1:]))"


class Attempt(NamedTuple):
    """What the stranger tries, in words and as code over `told`; it prints what was got."""

    what: str
    code: str


ON_RAY = (
    Attempt(
        "joins by address, without a token",
        "import clearance as cl; cl.Ray(told['address']).connected(); got('joined')",
    ),
    Attempt(
        "joins by address, with a token of its own",
        "import os; os.environ.update(RAY_AUTH_MODE='token', RAY_AUTH_TOKEN='0' * 64)\n"
        "import clearance as cl; cl.Ray(told['address']).connected(); got('joined')",
    ),
    Attempt(
        "asks the control service for a key, without a token",
        "from ray._raylet import GcsClient\n"
        "got(GcsClient(address=told['address']).internal_kv_get(b'session_name', b'session', timeout=5))",
    ),
    Attempt(
        "calls every port of the victim as gRPC, without a token",
        "import grpc\n"
        "for port in told['ports']:\n"
        "    for name in ('NodeManagerService/GetNodeStats', 'NodeManagerService/RequestWorkerLease',\n"
        "                 'CoreWorkerService/PushTask', 'JobInfoGcsService/GetAllJobInfo',\n"
        "                 'InternalKVGcsService/InternalKVGet', 'ObjectManagerService/Pull'):\n"
        "        with grpc.insecure_channel(f'127.0.0.1:{port}') as channel:\n"
        "            try:\n"
        "                answer = channel.unary_unary(f'/ray.rpc.{name}')(b'', timeout=3)\n"
        "                got(f'port {port} answered {name} with {len(answer)} bytes')\n"
        "            except grpc.RpcError as e:\n"
        "                seen(e.code().name)\n",
    ),
    Attempt(
        "asks every port of the victim as HTTP, without a token",
        "import urllib.request, urllib.error\n"
        "for port in told['ports']:\n"
        "    try:\n"
        "        answer = urllib.request.urlopen(f'http://127.0.0.1:{port}/', timeout=3)\n"
        "        got(f'port {port} answered {answer.status}')\n"
        "    except urllib.error.HTTPError as e:\n"
        "        seen(f'HTTP {e.code}')\n"
        "    except Exception as e:\n"
        "        seen(type(e).__name__)\n",
    ),
    Attempt(
        "lists the folder of its sessions, and writes there",
        "import os; got(os.listdir(told['place'])); open(told['place'] + '/r/x', 'w')",
    ),
    Attempt(
        "connects to the sockets in that folder",
        "import socket\n"
        "for path in told['sockets']:\n"
        "    try:\n"
        "        socket.socket(socket.AF_UNIX).connect(path); got(path)\n"
        "    except OSError as e:\n"
        "        seen(e.strerror)\n",
    ),
    Attempt(
        "opens its object store in shared memory",
        "import os\n"
        "for path in told['memory']:\n"
        "    try:\n"
        "        open(path, 'rb').close(); got(path)\n"
        "    except OSError as e:\n"
        "        seen(e.strerror)\n"
        "told['memory'] or seen('no file there')",
    ),
)
ON_PROCESSES = (
    Attempt(
        "reads environment and memory of its processes",
        "for pid in told['pids']:\n"
        "    for name in ('environ', 'mem', 'maps'):\n"
        "        try:\n"
        "            open(f'/proc/{pid}/{name}', 'rb').read(1); got(f'{name} of {pid}')\n"
        "        except OSError as e:\n"
        "            seen(e.strerror)\n",
    ),
    Attempt(
        "looks for the token in their command lines",
        "for pid in told['pids']:\n"
        "    line = open(f'/proc/{pid}/cmdline').read()\n"
        "    got(line[:40]) if told['token'] and told['token'] in line else seen('not there')\n",
    ),
    Attempt(
        "opens their connections in /proc, and attaches to them",
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for pid in told['pids']:\n"
        "    try:\n"
        "        got(os.listdir(f'/proc/{pid}/fd'))\n"
        "    except OSError as e:\n"
        "        seen(e.strerror)\n"
        "    got('attached') if libc.ptrace(16, pid, None, None) == 0 else seen(os.strerror(ctypes.get_errno()))\n",
    ),
    Attempt(
        "sends them signals",
        "import os, signal\n"
        "for pid in told['pids']:\n"
        "    try:\n"
        "        os.kill(pid, signal.SIGUSR2); got(pid)\n"
        "    except OSError as e:\n"
        "        seen(e.strerror)\n",
    ),
)
HEAD = """
import json, sys
told, results = json.load(sys.stdin), []
got = lambda x: results.append((1, str(x)[:80]))
seen = lambda x: results.append((0, str(x)))
try:
    exec(told["code"])
except BaseException as e:
    seen((str(e).strip() or type(e).__name__).splitlines()[0].partition(". ")[0])
print("\\n" + json.dumps(results))
"""


def who(user: int, home: Path, **more: Any) -> dict[str, Any]:
    """How a process of a user is started: its own uid, a home of its own, the shared folder for temporary files."""
    env = {"PYTHONPATH": f"{SOURCE}:{SITE}:{home}", "HOME": str(home), "PATH": os.environ["PATH"]}
    env |= {"PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    return {"user": user, "group": user, "extra_groups": [], "cwd": home, "env": env, "text": True} | more


def as_stranger(home: Path, attempt: Attempt, told: dict[str, Any]) -> tuple[bool, str]:
    """Whether the stranger got anything, and what was said."""
    how = who(STRANGER, home, capture_output=True, timeout=120, input=json.dumps(told | {"code": attempt.code}))
    done = subprocess.run([PYTHON, "-c", HEAD], check=False, **how)
    try:
        results = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return True, f"no answer: {done.stderr[-200:]}"
    won = [text for good, text in results if good]
    counts = {text: sum(t == text for _, t in results) for _, text in results}
    return bool(won), "; ".join(won or [t if n == 1 else f"{t} ({n} times)" for t, n in counts.items()])


@contextmanager
def victim(home: Path, code: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of the victim, and the first line that it says."""
    with subprocess.Popen([PYTHON, "-c", code], **who(VICTIM, home, stdin=PIPE, stdout=PIPE)) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.communicate(timeout=60)
            wait_for_the_end_of(VICTIM)


def wait_for_the_end_of(user: int, seconds: float = 60.0) -> None:
    """Wait until no process of a user is left: those of Ray need a moment longer than the one that started them."""
    end = time.monotonic() + seconds
    while left := processes_of(user):
        if time.monotonic() > end:
            raise SystemExit(f"processes {left} are still there {seconds:.0f} s after the end of their session")
        time.sleep(0.05)


def processes_of(user: int) -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdecimal() and _owner(p) == user]


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def listening(user: int) -> list[tuple[str, int]]:
    """The addresses and TCP ports on which a user's processes listen."""
    found = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and int(words[7]) == user:
                host, _, port = words[1].partition(":")
                raw = b"".join(int(host[i : i + 8], 16).to_bytes(4, "little") for i in range(0, len(host), 8))
                found.append((socket.inet_ntop(family, raw), int(port, 16)))
    return sorted(set(found))


def token_of(pids: list[int]) -> str:
    for pid in pids:
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(b"RAY_AUTH_TOKEN="):
                return entry.partition(b"=")[2].decode()
    return ""


@contextmanager
def trap(home: Path) -> Iterator[list[str]]:
    """What Ray's own search would follow: a process of the stranger that looks like Ray's, and a file that names it."""
    met: list[str] = []
    server = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"

    def serve() -> None:
        while True:
            try:
                link, _ = server.accept()
            except OSError:
                return
            met.append("connection")
            link.close()

    threading.Thread(target=serve, daemon=True).start()
    RAY.mkdir(exist_ok=True)
    RAY.chmod(0o777)
    (RAY / "ray_current_cluster").write_text(address)
    os.chown(RAY / "ray_current_cluster", STRANGER, STRANGER)
    command = [
        "raylet",
        "-c",
        "import time; time.sleep(600)",
        f"--gcs-address={address}",
        f"--raylet_socket_name={RAY}/x",
    ]
    with subprocess.Popen(command, executable=PYTHON, **who(STRANGER, home)) as fake:
        yield met
        fake.kill()
    server.close()


def study(place: Path) -> list[tuple[str, str, bool, str]]:
    homes = {user: place / str(user) for user in (VICTIM, STRANGER)}
    for user, home in homes.items():
        home.mkdir(mode=0o700)
        os.chown(home, user, user)
    mine, theirs, rows = homes[STRANGER], homes[VICTIM], []
    with trap(mine) as met:
        with victim(theirs, OWNER) as (_, line):
            told: dict[str, Any] = json.loads(line)
            pids, ports = processes_of(VICTIM), listening(VICTIM)
            sockets = [str(p) for p in Path(told["place"]).rglob("*") if p.is_socket()]
            memory = [str(p) for p in Path("/dev/shm").iterdir() if _owner(p) == VICTIM]
            told |= {"ports": [p for _, p in ports], "pids": pids, "token": token_of(pids)}
            told |= {"sockets": sockets, "memory": memory}
            assert told["token"] and ports and sockets, told
            outside = sorted({host for host, _ in ports} - {"127.0.0.1", "::1", "::ffff:127.0.0.1"})
            rows.append(
                (
                    "Ray",
                    "reaches its ports from another machine",
                    bool(outside),
                    f"{len(ports)} ports, on {', '.join(outside) or 'loopback only'}",
                )
            )
            for attempt in (*ON_RAY, *ON_PROCESSES):
                rows.append(("Ray", attempt.what, *as_stranger(mine, attempt, told)))
        rows.append(
            ("Ray", "is there first: a process and a file that name a Ray", bool(met), f"{len(met)} connections came")
        )
    (theirs / "costly.py").write_text(COSTLY)
    with victim(theirs, SIDE) as (_, line):
        assert line == "ready", line
        told = {"pids": processes_of(VICTIM), "token": ""}
        ports = listening(VICTIM)
        rows.append(
            (
                "side process",
                "looks for a port or a socket with a name",
                bool(ports),
                f"{len(ports)} ports; a pair of sockets without a name",
            )
        )
        for attempt in (ON_PROCESSES[0], *ON_PROCESSES[2:]):
            rows.append(("side process", attempt.what, *as_stranger(mine, attempt, told)))
    return rows + on_folders(place, theirs)


def on_folders(place: Path, home: Path) -> list[tuple[str, str, bool, str]]:
    """Folders that the stranger has made, or put something into, before the victim uses them."""
    shared, rows = place / "shared", []
    shared.mkdir()
    shared.chmod(0o1777)
    outside = home / "precious"
    outside.write_text("precious")
    os.chown(outside, VICTIM, VICTIM)
    for what in ("an empty folder", "a folder with a link to a file of the victim", "a run of the stranger"):
        run = shared / "run"
        run.mkdir()
        if what.startswith("a folder"):
            (run / "manifest.json.partial").symlink_to(outside)
            (run / "lock").symlink_to(outside)
        elif what.startswith("a run"):
            shutil.rmtree(run)
            subprocess.run(
                _solve(run), check=True, stdout=DEVNULL, stderr=DEVNULL, **who(STRANGER, place / str(STRANGER))
            )
        for path in (run, *run.rglob("*")):
            os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
        run.chmod(0o777)
        done = subprocess.run(_solve(run, "--resume"), check=False, capture_output=True, **who(VICTIM, home))
        lost = outside.read_text() != "precious" or "Traceback" in done.stderr
        said = next(
            (line for line in done.stderr.splitlines() if line.startswith("clearance: ") and "compiling" not in line),
            "",
        )
        rows.append(
            (
                "folder",
                f"{what}, where the victim resumes",
                lost,
                f"exit {done.returncode}: {said.replace(str(shared) + '/', '')}",
            )
        )
        shutil.rmtree(run)
    return rows


def _solve(run: Path, flag: str = "--out") -> list[str]:
    return [PYTHON, "-c", COMMAND, "solve", "two-state", "--K", "20", "--N", "20", flag, str(run), "--json"]


def private_ray_folder() -> None:
    """Put an empty folder over /tmp/ray, for this process and those it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    RAY.mkdir(exist_ok=True)
    private, new_namespace = 1 << 18 | 1 << 14, 0x20000
    if (
        libc.unshare(new_namespace)
        or libc.mount(None, b"/", None, private, None)
        or libc.mount(b"tmpfs", str(RAY).encode(), b"tmpfs", 0, None)
    ):
        raise SystemExit(f"needs root, and mounts of its own: {os.strerror(ctypes.get_errno())}")


def main() -> int:
    private_ray_folder()
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        rows = study(Path(name))
    print("| target | attempt of the stranger | result |\n| --- | --- | --- |")
    for of, what, won, text in rows:
        print(f"| {of} | {what} | {'**got** ' if won else 'nothing: '}{text.replace(name, '…')} |")
    won = sum(won for _, _, won, _ in rows)
    print(f"\n{len(rows)} attempts, {won} of them got something")
    return 1 if won else 0


if __name__ == "__main__":
    sys.exit(main())
