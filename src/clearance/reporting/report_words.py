"""The sentences of a report for people who decide: about the problem, the limits, their prices and the policy."""

from __future__ import annotations

from pathlib import PurePath

from clearance.certificates.price_words import cannot_tighten, price_words, prices
from clearance.certificates.verdict_words import bound_words, describe_certificate, limit_words
from clearance.core.criterion import sum_words
from clearance.finite.policy_words import describe_policy
from clearance.reporting.number_words import number
from clearance.reporting.run_view import View
from clearance.studies.frontier import Frontier


def problem_name(view: View) -> str:
    """Return the name of the problem: the simulator's name, the name on the command line, or else the folder's name."""
    command = view.settings["asked"].get("command") or []
    if view.statement is not None:
        return view.statement.name
    return PurePath(str(command[2])).stem if len(command) > 2 else view.title


def problem_words(view: View) -> list[str]:
    """Return two texts: the task with its limits, and a sentence that says which sums are limited."""
    if view.cmdp is not None:
        size = f"a finite model with {view.cmdp.S:,} states and {view.cmdp.A:,} actions"
        what = f"the {sum_words(view.cmdp.full_criterion)}"
    else:
        assert view.statement is not None
        size, what = f"the simulator {view.statement.name}", view.statement.meaning
    rows = zip(view.names, view.b, view.costs, strict=True)
    limits = "; ".join(bound_words(name, b, cost=cost) for name, b, cost in rows)
    asked = f"Limits: {limits}." if limits else "There are no limits."
    return [f"Earn as much reward as possible in {size}. {asked}", f"What counts: {what}; the same for the reward."]


def verdict_words(view: View) -> list[str]:
    """Return sentences with the verdict, its scope and what it does not cover; the limits are listed elsewhere."""
    if not view.certificate:
        return [f"The run stands at iteration {view.settings['k']} and has no certificate yet."]
    said = view.certificate | {"names": view.names, "costs": view.costs}
    found = [line for line in describe_certificate(said) if not line.startswith("Limits: ")]
    return found if view.check is None else [*found, f"{view.check.message[0].upper()}{view.check.message[1:]}."]


def limits_words(view: View) -> list[tuple[str, list[str]]]:
    """Return (heading, sentences) for each limit.

    The heading has the limit and its value; the sentences explain its price and the rewards at other limits.
    """
    said = view.certificate
    estimated = said.get("evidence") == "samples"
    found = []
    for i, (name, cost) in enumerate(zip(view.names, view.costs, strict=True)):
        head = bound_words(name, view.b[i], cost=cost)
        if said:
            head = limit_words(name, said["J_g"][i], view.b[i], cost=cost, estimated=estimated)
        lam = prices(said)
        strictest = cost and bool(said) and cannot_tighten(said, i)
        lines = [] if lam is None else [price_words(name, lam[i], cost=cost, strictest=strictest).partition(": ")[2]]
        lines = [f"{line[0].upper()}{line[1:]}" for line in lines]
        curve = next((c for c in view.prices if c.name == name), None)
        found.append((head, lines if curve is None else [*lines, *_alternatives(curve)]))
    return found


def _alternatives(curve: Frontier) -> list[str]:
    """Return sentences about both ends of the frontier `curve`: no limit, and the strictest limit that can be met."""
    free, last = float(curve.J_r[0]), float(curve.J_r[-1])
    strictest = float(curve.limit[-1])
    gain = f"Without this limit the best reward would be {number(free)}"
    return [
        f"{gain}, in place of {number(curve.own.J_r)}.",
        f"The strictest limit that a policy can meet is {number(strictest)}; the best reward is then {number(last)}.",
    ]


def policy_sentences(view: View) -> list[str]:
    """Return sentences that describe the policy, with names of states and actions; an empty list for networks."""
    if view.cmdp is None or view.policy is None:
        return []
    return describe_policy(view.cmdp, view.policy, view.cmdp.states, view.cmdp.actions)
