"""What a certificate from samples rests on beside the samples, in plain words, for its scope."""

from __future__ import annotations

RULE = "the policy carries nothing from one episode to the next, apart from its random numbers, which never repeat"
FRESH_RESETS = "resets are independent of each other"
STEADY = "the environment does not change over time"
CONSTANT = "every episode gave the same sums: environment and policy are deterministic, and not seeded again each time"


def assume(*assumptions: str) -> str:
    """Return the words that list them, as the end of a scope."""
    return f"; assumed: {', and '.join(assumptions)}" if assumptions else ""
