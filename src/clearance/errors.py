"""What can go wrong, said in one line that names the place and the remedy."""

from __future__ import annotations


class InputError(ValueError):
    """Something the user gave is wrong. The message is one line: the field, what is wrong, what to do."""


class InfeasibleError(RuntimeError):
    """No policy meets the limits. `slater` is max_π min_i (J_gi(π) − b_i), negative here."""

    def __init__(self, message: str, slater: float) -> None:
        super().__init__(message)
        self.slater = slater


class MissingExtraError(ImportError):
    """A part of clearance needs a package that is not installed; the message says which extra has it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: pip install 'clearance[{extra}]'")


class SolverError(RuntimeError):
    """The numbers got out of hand: a solver gave up, or an iteration left the finite numbers. Says what to change."""


def infeasible_message(slater: float) -> str:
    """What to say when no policy meets the limits."""
    return f"no policy meets the limits: max_π min_i (J_gi − b_i) = {slater:.6g} < 0; lower b by {-slater:.6g} or more"
