"""What a certificate from samples rests on beside the samples, in plain words, for its scope."""

from __future__ import annotations

RULE = "the policy carries nothing from one episode to the next, apart from its random numbers, which never repeat"
FRESH_RESETS = "resets are independent of each other"
STEADY = "the environment does not change over time"
CONSTANT = "Every episode gave the same sums: environment and policy must be deterministic, not seeded again each time"


def assume(*assumptions: str) -> str:
    """Return the sentence that lists them, to end a scope."""
    return f" Assumed: {'; '.join(assumptions)}." if assumptions else ""
