"""Certificates from samples: the statements about one policy that its sampled episodes support at level δ."""

from __future__ import annotations

from typing import Any

from clearance.certificates.certificate import Certificate, build_certificate
from clearance.certificates.sequential_test import Evidence
from clearance.core.arrays import Array


def certificate_from(
    seen: Evidence,
    b: Array,
    delta: float,
    *,
    components: int,
    scope: str,
    lam: Array | None = None,
    note: str = "",
    spent: float | None = None,
    **more: Any,
) -> Certificate:
    """Return the certificate that the evidence `seen` supports.

    delta       the error probability of all tests together that were made for this certificate
    components  the number of components of the policy; `scope` is the scope in words
    spent       the sum of the levels of all tests so far that share δ; by default the level of this test
    note        a text to append to the message
    more        further fields of the certificate
    """
    chance = f"with probability at most {delta:g}"
    words = (
        "there are no limits, so none is broken"
        if not len(b)
        else {
            "CERTIFIED": f"every limit is met; a policy that breaks one gets this verdict {chance}",
            "VIOLATED": f"a limit is broken; a policy that meets all gets this verdict {chance}",
            "UNDECIDED": "the samples are not conclusive: give a larger budget, or a policy with more slack",
        }[seen.verdict]
    )
    nu = seen.tally.nu if any(x is not None for x in seen.tally.nu) else None
    facts: dict[str, Any] = {
        "nu": None if nu is None else list(nu),
        "interval": (seen.interval[0].tolist(), seen.interval[1].tolist()),
    }
    return build_certificate(
        seen.verdict,
        seen.mean,
        seen.bounds,
        b,
        evidence="samples",
        parts=[c.mean for c in seen.components.values()],
        components=components,
        message=f"{words}; {note}" if note else words,
        scope=scope,
        lam=lam,
        delta=delta,
        level=seen.delta,
        spent=seen.delta if spent is None else spent,
        episodes=seen.episodes,
        env_steps=seen.steps,
        **facts,
        **more,
    )
