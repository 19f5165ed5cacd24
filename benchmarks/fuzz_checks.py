"""One call of the command line, what must be true of every one, and the truth about small models in whole fractions."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

import clearance as cl
from clearance.cli import command_line

SECONDS = 10
VERDICTS = {0: ("CERTIFIED", None), 3: ("INFEASIBLE",), 4: ("VIOLATED", "UNDECIDED")}


class Hang(BaseException):
    """An input took too long; nothing in the library catches this."""


@dataclass
class Outcome:
    """What a call of the command line gave."""

    status: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        return json.loads(self.out, parse_constant=lambda text: _fail(f"{text} in JSON"))


def _fail(text: str) -> None:
    raise AssertionError(text)


def call(argv: list[str]) -> Outcome:
    """`clearance ARGV` in this process; whatever it raises is a defect, except that argparse leaves by SystemExit."""
    out, err = io.StringIO(), io.StringIO()
    with _limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = command_line.main(argv)
        except SystemExit as e:
            status = int(e.code or 0)
    found = Outcome(status, out.getvalue(), err.getvalue())
    _well_behaved(argv, found)
    return found


ERRORS = ("error", "wrong", "failed")  # the status of an answer with exit status 2


def _well_behaved(argv: list[str], found: Outcome) -> None:
    lines = [
        line for line in found.err.splitlines() if line != "clearance: warning: " and "compiling, once" not in line
    ]
    assert found.status in (0, 2, 3, 4), found
    assert all(line.startswith("clearance: ") for line in lines), found
    assert not any("encountered" in line for line in lines), found  # NumPy's: overflow, invalid value, division by zero
    if found.status == 2:
        assert len([x for x in lines if not x.startswith("clearance: warning: ")]) == 1, found
        assert found.answer["status"] in ERRORS if "--json" in argv else found.out == "", found
    elif "--json" in argv and not {"--help", "-h", "--version"} & set(argv):
        assert found.answer.get("verdict") in VERDICTS[found.status], found


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Ten seconds of this process's own time, since a busy machine may leave it waiting; what sleeps, or is compiled
    and does not listen, is ended after ten minutes, and the process with it.
    """

    def stop(*_: object) -> None:
        raise Hang(f"more than {SECONDS} s")

    old = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    faulthandler.dump_traceback_later(60 * SECONDS, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGPROF, old)


# ------------------------------------------------------------------------------------------- truth, in whole fractions


def exact_J(cmdp: cl.CMDP, pi: Any) -> list[Fraction]:
    """J of the numbers as stored: Gauss–Jordan on (I − γ P_π) V = h_π."""
    S, A, H = cmdp.S, cmdp.A, 1 + cmdp.I
    P = cmdp.rows.toarray().reshape(S, A, S) if cmdp.is_sparse else np.asarray(cmdp.P)
    gamma, p = Fraction(cmdp.gamma), [[Fraction(float(x)) for x in row] for row in pi]
    rows = []
    for s in range(S):
        left = [(s == t) - gamma * sum(p[s][a] * Fraction(float(P[s, a, t])) for a in range(A)) for t in range(S)]
        rows.append(left + [sum(p[s][a] * Fraction(float(cmdp.h[h, s, a])) for a in range(A)) for h in range(H)])
    for i in range(S):
        rows[i] = [x / rows[i][i] for x in rows[i]]  # strictly dominant: no pivot is zero
        for r in range(S):
            if r != i:
                rows[r] = [x - rows[r][i] * y for x, y in zip(rows[r], rows[i], strict=True)]
    return [sum((Fraction(float(cmdp.rho[s])) * rows[s][S + h] for s in range(S)), Fraction(0)) for h in range(H)]


def mixture_J(cmdp: cl.CMDP, policy: cl.Mixture) -> list[Fraction]:
    parts = [
        [Fraction(float(w)) * x for x in exact_J(cmdp, pi)] for w, pi in zip(policy.weights, policy.pi, strict=True)
    ]
    return [sum(column, Fraction(0)) for column in zip(*parts, strict=True)]


def kept(cmdp: cl.CMDP, J: list[Fraction]) -> bool:
    return all(x >= Fraction(float(b)) for x, b in zip(J[1:], cmdp.b, strict=True))


def pure_policies(cmdp: cl.CMDP) -> Iterator[Any]:
    """Every deterministic policy."""
    for acts in product(*(np.flatnonzero(row) for row in cmdp.available)):
        yield np.eye(cmdp.A)[list(acts)]
