"""Verdicts in words. Wherever a certificate is shown, the words are the same: command line, report, `str` and `repr`.

The sentences state the verdict, the limits, the scope, and what is not covered. Costs are shown as costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from clearance.certificates.price_words import prices
from clearance.core.criterion import Criterion, sum_words
from clearance.core.text import split_unit, visible

MEANING = {
    "CERTIFIED": "every limit is met",
    "VIOLATED": "a limit is broken",
    "UNDECIDED": "it is not shown whether every limit is met",
}


def describe_certificate(said: Mapping[str, Any]) -> list[str]:
    """Return the sentences for a certificate, given as `Certificate.asdict()`."""
    found = [f"{said['verdict']}: {said['message']}.", _limits(said), _scope(said["scope"]), _thresholds(said)]
    found += [_components(said), _greedy(said), _not_covered(said), _neighbours(said), _origin(said)]
    return [sentence for sentence in found if sentence]


def scope_words(subject: str, what: Criterion, policy: str, tails: Sequence[str] = (), *, limited: bool = True) -> str:
    """Return the scope of a certificate in words: the problem, the limited sum and the policy.

    subject  the problem, in words
    what     the criterion, which defines the limited sum
    policy   the policy, in words
    tails    phrases that explain `Chance` and `CVaR` limits
    limited  whether there are limits at all
    """
    sums = "; ".join([f"the {sum_words(what)}", *tails])
    about = f"What is limited: {sums}" if limited else f"What is counted: the {sum_words(what, 'the reward')}"
    return f"Holds for: {subject}. {about}. Policy: {policy}."


def policy_words(components: int, one: str = "one stationary policy") -> str:
    """Return a phrase for the policy: `one` for a single component, else "a mixture of … policies; …"."""
    if components == 1:
        return one
    return f"a mixture of {components} policies; one is drawn at the start of each episode"


def limit_words(name: str, J_g: float, b: float, *, cost: bool, estimated: bool = False) -> str:
    """Return one limit as the user wrote it, together with the policy's value and its slack.

    `estimated` says whether the value comes from samples.

    >>> limit_words("waiting", -39.98, -40.0, cost=True)
    'waiting: 39.98 ≤ 40 (slack 0.02)'
    >>> limit_words("energy [kWh]", -39.98, -40.0, cost=True)
    'energy: 39.98 ≤ 40 kWh (slack 0.02)'
    """
    name, unit = split_unit(name)
    of_unit = f" {unit}" if unit else ""
    value, limit = as_written(J_g, cost=cost), as_written(b, cost=cost)
    if not math.isfinite(J_g):
        return f"{name}: no finite value, limit {limit:.6g}{of_unit}"
    kept, broken = ("≤", ">") if cost else ("≥", "<")
    about = "estimated " if estimated else ""
    return f"{name}: {about}{value:.6g} {kept if J_g >= b else broken} {limit:.6g}{of_unit} (slack {J_g - b:.3g})"


def bound_words(name: str, b: float, *, cost: bool) -> str:
    """Return the limit of one constraint as the user wrote it.

    >>> bound_words("waiting", -40.0, cost=True)
    'waiting ≤ 40'
    """
    name, unit = split_unit(name)
    return f"{name} {'≤' if cost else '≥'} {as_written(b, cost=cost):.6g} {unit}".rstrip()


def join_some(parts: Sequence[str], most: int = 6) -> str:
    """Return the first `most` parts as one line that is safe to print, followed by the number of the other parts.

    >>> join_some(["a", "b", "c"], most=2)
    'a; b; and 1 more'
    """
    more = [f"and {len(parts) - most:,} more"] if len(parts) > most else []
    return "; ".join([*(visible(part) for part in parts[:most]), *more])


def limits_as_written(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one record for each limit with the user's signs: values and limits of costs are not negated.

    said  a dict with names, costs and b and, as far as known, J_g, J_g_lower, slack, lam and relax_each

    >>> said = {"names": ["waiting"], "costs": [True], "b": [-40.0], "J_g": [-39.5], "lam": [2.0]}
    >>> limits_as_written(said)
    [{'name': 'waiting', 'kind': 'cost', 'sense': '<=', 'limit': 40.0, 'value': 39.5, 'price': 2.0}]
    """
    return [_limit_as_written(said, i) for i in range(len(said["b"]))]


LIMIT_HEADS = ("constraint", "value", "", "limit", "slack", "price λ")


def limit_cells(said: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the cells of a table with the heads `LIMIT_HEADS`, one row for each limit with the user's signs.

    `said` is as in `limits_as_written`.
    """
    found = []
    for row in limits_as_written(said):
        numbers = (f"{row[key]:.6g}" if key in row else "—" for key in ("limit", "slack", "price"))
        value = f"{row['value']:.6g}" if "value" in row else "—"
        found.append((row["name"], value, "≤" if row["kind"] == "cost" else "≥", *numbers))
    return found


def _limit_as_written(said: Mapping[str, Any], i: int) -> dict[str, Any]:
    cost = bool(said["costs"][i])
    found = {"name": said["names"][i], "kind": "cost" if cost else "utility", "sense": "<=" if cost else ">="}
    found |= {"unit": unit} if (unit := split_unit(found["name"])[1]) else {}
    found["limit"] = as_written(float(said["b"][i]), cost=cost)
    for key, name in (("J_g", "value"), ("J_g_lower", "at_worst")):
        if said.get(key) is not None:
            found[name] = as_written(said[key][i], cost=cost)
    for name, numbers in (("slack", said.get("slack")), ("price", prices(said))):
        if numbers is not None:
            found[name] = float(numbers[i])
    for key, name in (("relax_each", "relaxed_alone"), ("relax_together", "relaxed_together")):
        if key in said:
            amount = None if said[key] is None else said[key][i]
            found[name] = None if amount is None else as_written(float(said["b"][i]) - amount, cost=cost)
    return found


def as_written(x: float, *, cost: bool) -> float:
    """Convert x, a value or a limit of a utility, to the sign that the user gave it: −x for a cost, else x."""
    return 0.0 - x if cost else x


def _limits(said: Mapping[str, Any]) -> str:
    I, estimated = len(said["b"]), said["evidence"] == "samples"
    names = said.get("names") or [f"g{i}" for i in range(I)]
    costs = said.get("costs") or [False] * I
    rows = zip(names, said["J_g"], said["b"], costs, strict=True)
    found = [limit_words(name, J_g, b, cost=cost, estimated=estimated) for name, J_g, b, cost in rows]
    return f"Limits: {'; '.join(found)}." if found else ""


def _scope(scope: str) -> str:
    """Return the scope with "Holds for: " in front; files of version 0.1 lack these words. "" stays ""."""
    return scope if not scope or scope.startswith("Holds for: ") else f"Holds for: {scope}."


def _components(said: Mapping[str, Any]) -> str:
    slack = said.get("worst_component_slack")
    if said["components"] == 1 or slack is None:
        return ""
    about = "an estimated" if said["evidence"] == "samples" else "a"
    if slack >= 0:
        return f"On its own, the component that comes closest to a limit has {about} slack of {slack:.3g}."
    return (
        "The limits hold on average over the components, not for each of them: on its own, the worst component has "
        f"{about} slack of {slack:.3g}: it breaks a limit, on average over the episodes that follow it."
    )


def _thresholds(said: Mapping[str, Any]) -> str:
    """Return a sentence with the thresholds ν of the CVaR limits of the certificate `said`; "" if there are none."""
    names = said.get("names") or []
    found = [f"{name}: {nu:.6g}" for name, nu in zip(names, said.get("nu") or [], strict=False) if nu is not None]
    return f"Threshold ν, fixed before the test: {join_some(found)}." if found else ""


def _greedy(said: Mapping[str, Any]) -> str:
    verdict = said.get("greedy_verdict")
    if verdict in (None, "CERTIFIED"):
        return ""
    would = {"VIOLATED": "would violate a limit", "UNDECIDED": "might violate a limit"}[verdict]
    return f"Sample actions from this policy; always taking the most likely action {would}."


def _neighbours(said: Mapping[str, Any]) -> str:
    """Return a sentence with the rewards of the policies that the certificate `said` lists for comparison.

    The sentence lets users notice a policy that is safe but useless.
    """
    near = said.get("neighbours")
    return (
        f"For comparison: it earns {said['J_r']:.4g}; {join_some([f'{k} {J[0]:.4g}' for k, J in near.items()])}."
        if near
        else ""
    )


def _origin(said: Mapping[str, Any]) -> str:
    return f"Learning began from {said['origin']}." if said.get("origin") else ""


def _not_covered(said: Mapping[str, Any]) -> str:
    if said["verdict"] != "CERTIFIED":
        return ""
    what = "model" if said["evidence"] == "exact" else "simulator"
    return (
        f"Not covered: single episodes, which vary around the expectation, and a real system that differs from this "
        f"{what}."
    )
