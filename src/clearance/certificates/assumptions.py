"""The assumptions of certificates from samples, as texts that are part of the certificate's scope."""

from __future__ import annotations

RULE = "the policy carries nothing from one episode to the next, apart from its random numbers, which never repeat"
FRESH_RESETS = "resets are independent of each other"
STEADY = "the environment does not change over time"
CONSTANT = "Every episode gave the same sums: environment and policy must be deterministic, not seeded again each time"


def assume(*assumptions: str) -> str:
    """Return one sentence that lists the given assumptions. It is appended to the scope of a certificate."""
    return f" Assumed: {'; '.join(assumptions)}." if assumptions else ""
