"""Interrupts: Ctrl-C, SIGTERM and SIGHUP all end a command in the same way, at a point where it is safe to stop.

Python raises KeyboardInterrupt wherever a signal arrives. Inside an import this becomes an ImportError, or leaves a
half-loaded extension behind; inside the compilers of JAX and numba it leaves objects that crash the interpreter at
exit. So a signal that arrives there is held back, and delivered as soon as the import or the compiler is done.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
COMPILERS = frozenset({"jax", "jaxlib", "numba", "llvmlite"})
SAME = 1.0  # seconds in which a further signal counts as the same one: shells and schedulers send several at once
AGAIN = 0.02  # seconds after which a signal that is held back is tried again


class _Signals:
    """The signals that this process has received.

    raised  (signal, time) of the last signal that was raised as KeyboardInterrupt
    held    (signal, time) of the signal that is held back until it is safe to stop
    """

    raised: tuple[int, float] | None = None
    held: tuple[int, float] | None = None
    timer: threading.Timer | None = None
    tried_again: bool = False

    def receive(self, signum: int, frame: FrameType | None) -> None:
        now, (again, self.tried_again) = time.monotonic(), (self.tried_again, False)
        if self.raised is not None and now - self.raised[1] < SAME:
            return
        if not is_inside_compiler_or_import(frame):
            self.deliver(signum if self.held is None else self.held[0], now)
        elif self.held is None:
            self.held = signum, now
            self.try_later()
        elif again:
            self.try_later()
        elif now - self.held[1] > SAME:
            end_at_once(signum)

    def deliver(self, signum: int, now: float) -> None:
        self.forget()
        self.raised = signum, now
        raise KeyboardInterrupt

    def try_later(self) -> None:
        self.timer = threading.Timer(AGAIN, self.try_again)
        self.timer.daemon = True
        self.timer.start()

    def try_again(self) -> None:
        """Send the signal that is held back to the main thread once more; this also wakes a waiting main thread."""
        held, thread = self.held, threading.main_thread().ident
        if held is not None and thread is not None:
            self.tried_again = True
            signal.pthread_kill(thread, held[0])

    def forget(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.held = self.timer = None


def is_inside_compiler_or_import(frame: FrameType | None) -> bool:
    """Return whether the interrupted code is inside an import or a compiler; `frame` is its call stack."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in COMPILERS or frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def end_at_once(signum: int) -> None:
    """End the process by the default action of the signal; used if the process reaches no safe point.

    Run folders stay intact and can be resumed.
    """
    say_interrupted()
    signal.signal(signum, signal.SIG_DFL)
    signal.raise_signal(signum)


def say_interrupted() -> None:
    """Write "clearance: interrupted" to standard error, past Python's buffers, which the interrupt may have locked."""
    with suppress(OSError):
        os.write(2, b"clearance: interrupted\n")


def leave(status: int) -> None:
    """Flush the output and exit without the interpreter's shutdown, in which an interrupted JAX can hang or crash.

    Side processes end by themselves when their connection closes.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


_signals = _Signals()


@contextmanager
def handled(*, until_exit: bool) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP inside the `with` block, except signals that this process ignores.

    For instance, nohup makes a process ignore SIGHUP.

    until_exit  whether the process ends after the block; a signal after the block then ends it at once
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {n: signal.getsignal(n) for n in SIGNALS if signal.getsignal(n) not in (signal.SIG_IGN, None)}
    forget_interrupts()
    for signum in before:
        signal.signal(signum, _signals.receive)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, signal.SIG_DFL if until_exit else handler)
        _signals.forget()


def forget_interrupts() -> None:
    """Forget earlier signals, since several commands may run in one process, one after the other."""
    _signals.raised = None


def was_interrupted() -> bool:
    """Return whether a signal has asked the command to end."""
    return _signals.raised is not None


def exit_status() -> int:
    """Return the exit status of an interrupted command, 128 + the signal's number: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + (signal.SIGINT if _signals.raised is None else _signals.raised[0])
