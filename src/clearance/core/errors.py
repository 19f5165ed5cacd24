"""The exceptions of the library. Each message is one line that says what is wrong, where, and how to fix it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any


class InputError(ValueError):
    """Raised when an input is wrong. The message is one line: the field, the error, and how to fix it."""


class SmallBudgetError(InputError):
    """Raised when a budget leaves too few episodes for a certificate. A larger budget avoids the error."""


class EnvironmentFault(InputError):
    """Raised when an environment fails: an exception, NaN, a wrong shape, a cost outside its bounds, or a dead process.

    env    name of the environment
    lane   index of the environment among those that run in parallel
    step   step of the rollout, counted from 0; None if the environment failed before its first step
    value  the value that the environment returned
    learned  the policy learned before the failure, without any guarantee; None if there is none
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
    """Raised when no policy meets the limits, or when sampling found none (then `proven` is False).

    slater    the Slater margin max_π min_i (J_gi(π) − b_i), which is negative here; from samples, a bound on it
    cmdp      the finite model, if it is known
    diagnose  a function from the model to the limits that conflict (`clearance.diagnose`)
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
        """The limits that conflict and how to relax them (an `Infeasibility`); None if the model is not known."""
        return None if self.cmdp is None or self._diagnose is None else self._diagnose(self.cmdp)


class MissingExtraError(ImportError):
    """Raised when an optional package is not installed. The message names the extra of clearance that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: pip install '.[{extra}]' in a clone of clearance")

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.args, vars(self))


def _remade(kind: type[Exception], args: tuple[Any, ...], content: dict[str, Any]) -> Exception:
    """Rebuild an error that was pickled in another process, without calling its constructor."""
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(content)
    return error


class SolverError(RuntimeError):
    """Raised when a solver gives up or meets numbers that are not finite. The message says what to change."""


# The end of the message if several limits are infeasible. One common amount for all would mix their units.
ASK_DIAGNOSE = "cl.diagnose says which ones to relax, and how far"


def infeasible_message(slater: float, limits: int, among: str = "policy") -> str:
    """Return the error message for limits that no policy can meet.

    `slater` is the Slater margin, which is negative, and `limits` the number of limits. `among` names the class of
    policies that was searched, if it is smaller than that of all policies.
    """
    advice = f"relax the limit by {round_up(-slater):.6g} or more" if limits == 1 else ASK_DIAGNOSE
    return f"no {among} meets the limits (Slater margin {slater:.6g}); {advice}"


def no_room_message(slater: float) -> str:
    """Return the error message for limits so tight that rounding hides whether any policy meets them.

    `slater` is the Slater margin.
    """
    return f"the limits leave no room beyond rounding (Slater margin {slater:.3g}): relax the limits a little"


def round_up(x: float, digits: int = 6) -> float:
    """Return x rounded up to `digits` significant digits, so that relaxing a limit by the printed number suffices.

    >>> round_up(0.3990001), round_up(-1.2345674)
    (0.399001, -1.23456)
    """
    shown = float(f"{x:.{digits}g}")
    step = 0.0 if shown >= x else 10.0 ** (math.floor(math.log10(abs(x))) + 1 - digits)
    return float(f"{shown + step:.{digits}g}")


def relaxed_limit(b: float, amount: float) -> float:
    """Return the limit b relaxed by `amount`, to six digits and rounded to the loose side; 0 if only rounding is left.

    >>> relaxed_limit(-0.3, 0.0990001), relaxed_limit(1.0, math.nextafter(1.0, 2))
    (-0.399001, 0.0)
    """
    rest = amount - b
    return 0.0 if abs(rest) <= 4 * sys.float_info.epsilon * abs(b) else -round_up(rest)
