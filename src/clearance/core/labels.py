"""The label of each JSON key that is shown to people. It is the same on the command line and in reports.

docs/reference/json_keys.md lists keys and labels; a test compares that page with this table.
"""

from __future__ import annotations

LABELS = {
    "J_r": "reward J_r",
    "J_r_lower": "reward, lower bound",
    "bound": "upper bound on the optimum",
    "gap": "gap to the optimum, at most",
    "evidence": "evidence",
    "delta": "error probability δ",
    "level": "level of this test",
    "spent": "δ spent in this folder",
    "slater": "Slater margin",
    "attained_margin": "attained margin",
    "kappa": "margin κ",
    "components": "policies in the mixture",
    "attempts": "candidates tested",
    "env_steps": "environment steps",
    "learning_steps": "steps used for learning",
    "seconds": "seconds",
    "run": "run folder",
    "checked": "computed again",
    "relax_all": "relax every limit by",
    "relaxed_J_r": "reward after relaxing",
    "states": "states",
    "actions": "actions",
    "constraints": "constraints",
    "gamma": "discount factor γ",
    "sparse": "stored sparse",
    "transitions": "transitions",
    "r_range": "reward per step",
    "J_g": "value",
    "J_g_lower": "at worst",
    "b": "limit",
    "slack": "slack",
    "lam": "price λ",
}


def label(key: str) -> str:
    """Return the label of a JSON key; a key without a label is returned unchanged.

    >>> label("env_steps"), label("eta1")
    ('environment steps', 'eta1')
    """
    return LABELS.get(key, key)
