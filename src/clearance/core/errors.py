"""What can go wrong, said in one line that names the place and the remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any


class InputError(ValueError):
    """Raised when an input is wrong. The message is one line: the field, what is wrong, what to do."""


class SmallBudgetError(InputError):
    """Raised when a budget leaves too few episodes for a certificate; a larger one would do."""


class EnvironmentFault(InputError):
    """Raised when an environment fails: an exception, NaN, a wrong shape, a cost outside its bounds, or a dead process.

    env    the environment's name;  lane: which of those that run side by side
    step   of the walk, from 0; None if it failed before the first
    value  what it gave
    learned  what had been learned until then, if anything: a policy of which nothing is guaranteed
    """

    def __init__(self, env: str, lane: int, step: int | None, what: str, value: object = None, where: str = "") -> None:
        at = "reset" if step is None else f"step {step}"
        shown = "" if value is None else f" (value {_short(value)})"
        super().__init__(f"{env}, lane {lane}, {at}{where}: {what}{shown}")
        self.env, self.lane, self.step, self.value = env, lane, step, value
        self.learned: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.args, vars(self))


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 120 else text[:117] + "..."


class InfeasibleError(RuntimeError):
    """Raised when no policy meets the limits; from samples also when none was found (`proven` is False then).

    slater    max_π min_i (J_gi(π) − b_i), negative here; from samples a bound on it
    cmdp      the finite model, where it is known
    diagnose  a function of the model that says which limits conflict (`clearance.diagnose`)
    """

    def __init__(
        self,
        message: str,
        slater: float,
        cmdp: Any = None,
        *,
        proven: bool = True,
        diagnose: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.slater, self.cmdp, self.proven, self._diagnose = slater, cmdp, proven, diagnose

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.args, vars(self))

    @cached_property
    def diagnosis(self) -> Any:
        """Return which limits conflict and what to relax (an `Infeasibility`); None where the model is not known."""
        return None if self.cmdp is None or self._diagnose is None else self._diagnose(self.cmdp)


class MissingExtraError(ImportError):
    """Raised when a package is not installed; the message names the extra that has it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: pip install '.[{extra}]' in a clone of clearance")

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.args, vars(self))


def _remade(kind: type[Exception], args: tuple[Any, ...], content: dict[str, Any]) -> Exception:
    """Return an error as it was in another process, whatever it asks of who makes it."""
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(content)
    return error


class SolverError(RuntimeError):
    """The numbers got out of hand: a solver gave up, or an iteration left the finite numbers. Says what to change."""


def infeasible_message(slater: float, among: str = "policy") -> str:
    """Return what to say when no policy, or none of a class, meets the limits."""
    enough = round_up(-slater)
    return f"no {among} meets the limits (Slater margin {slater:.6g}); relax every limit by {enough:.6g} or more"


def no_room_message(slater: float) -> str:
    """Return what to say when the limits can be met by a hair at most, and rounding hides on which side of it."""
    return f"the limits leave no room beyond rounding (Slater margin {slater:.3g}): relax the limits a little"


def round_up(x: float) -> float:
    """A positive number as printed with six digits, never less than it is: who relaxes by it has relaxed enough."""
    shown = float(f"{x:.6g}")
    return shown if shown >= x else float(f"{shown + 10.0 ** (math.floor(math.log10(x)) - 5):.6g}")
