"""The assumptions of certificates from samples, as texts that are part of the certificate's scope."""

from __future__ import annotations

RULE = "the policy carries nothing from one episode to the next, apart from its random numbers, which never repeat"
FRESH_RESETS = "resets are independent of each other"
STEADY = "the environment does not change over time"
CONSTANT = (
    "Every episode gave the same sums. That is right if they never vary; if the environment or the policy seeds itself "
    "again in each episode, the test is not valid"
)


def assume(*assumptions: str) -> str:
    """Return one sentence that lists the given assumptions. It is appended to the scope of a certificate."""
    return f" Assumed: {'; '.join(assumptions)}." if assumptions else ""
