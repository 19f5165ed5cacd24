"""Select the policy of a run and certify it: by exact values if they are known, otherwise by samples."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from clearance.certificates.advice import advise, advise_untested
from clearance.certificates.best_mixture import Single, best_weights, choose_weights, safest_single
from clearance.certificates.candidate_search import Attempt, Search, best_attempt
from clearance.certificates.certificate import Certificate
from clearance.certificates.ledger import Ledger, subject_of
from clearance.certificates.statistical_certificate import certificate_from
from clearance.core.arrays import Array
from clearance.core.errors import SmallBudgetError
from clearance.core.random_streams import fold, key_of
from clearance.learning.loop import Run
from clearance.runs.worlds.world import ExactValues, Settled, Task, World

# By how much the choice tightens the limits, relative to the scale of J_g: tried in turn until a mixture is certified.
TIGHTEN = (1e-9, 1e-8, 1e-7, 1e-6, 0.0)
# The values of `single` that are tried in turn, each with all entries of TIGHTEN: with "prefer", a single policy is
# given up only if nothing was certified.
IN_TURN: dict[Single, tuple[Single, ...]]
IN_TURN = {"prefer": ("prefer", "never"), "require": ("require",), "never": ("never",)}
SEARCH = 2**40 + 20  # random stream of the choice and its tests; larger than the number of any iteration


class Selection(NamedTuple):
    """The selected policy, its certificate, and the tests that led to it.

    attempts  the tests from samples; empty for exact evidence and for a stored result
    steps     environment steps of choice and tests
    tests     the number of tests, also for a stored result
    mixture   the best mixture by exact values, even if a single `policy` replaced it; None with samples
    """

    policy: Any
    certificate: Certificate
    attempts: tuple[Attempt, ...] = ()
    steps: int = 0
    tests: int = 0
    mixture: Any = None


def select(task: Task, settled: Settled, run: Run, margin: Any, ledger: Ledger, *, repeats: bool = True) -> Selection:
    """Select and certify the policy of a run. The arguments are those of `_select`.

    If the run began from `init`, the certificate names that origin.
    """
    found = _select(task, settled, run, margin, ledger, repeats=repeats)
    if task.start is None:
        return found
    return found._replace(certificate=replace(found.certificate, origin=task.start.origin))


def _select(task: Task, settled: Settled, run: Run, margin: Any, ledger: Ledger, *, repeats: bool) -> Selection:
    """Select a policy that meets every limit, and certify it: the best mixture of the iterates, or a single policy.

    settled  the final settings of the run;  run: the iterates;  margin: the measured Slater margin, or None
    ledger   the list of tests, in which the search enters a test before it draws samples
    repeats  whether an interrupted search would draw the same samples again
    """
    lam = run.trace.lam[len(run.trace) // 2 :].mean(0)
    if task.evidence == "exact":
        return _by_values(task, settled, run, margin, lam)
    budget = task.world.search_budget(task, task.world.spent_before(margin) + run.steps)
    share = ledger.open_search(task.delta, repeats=repeats)
    key = fold(key_of(task.seed), SEARCH)
    search = task.world.search(settled, run, margin, key, budget, share.level, task.single)
    found = _by_samples(task, run, search, run.steps + budget, lam, ledger.spent)
    ledger.close_search(share, [(attempt.subject, attempt.evidence) for attempt in found.attempts])
    return found


def _by_values(task: Task, settled: Settled, run: Run, margin: Any, lam: Array) -> Selection:
    """Select a policy by exact values, and certify it.

    For the choice, the limits are tightened a little, since a linear program meets them only up to rounding. `lam`
    holds the multipliers of the run, which the certificate shows.
    """
    world, policy, mixture = task.world, None, None
    candidates, exact = world.exact_choice(settled, run, margin)
    for single, tighten in itertools.product(IN_TURN[task.single], TIGHTEN):
        found = _choose_by_values(task, settled, candidates, exact, tighten, single)
        if found is not None:
            policy, mixture = found
            if world.certify(policy, lam, compare=False).verdict == "CERTIFIED":
                break
    if policy is None:
        policy = _uncertified(task, settled, run, candidates, exact)
    return Selection(policy, world.certify(policy, lam), mixture=mixture)


def _choose_by_values(
    task: Task, settled: Settled, candidates: Any, exact: ExactValues, tighten: float, single: Single
) -> tuple[Any, Any] | None:
    """Return the policy to certify, and the best mixture; None if no policy that `single` allows meets the limits.

    exact    the exact values of the candidates
    tighten  how far the limits are tightened, as a share of the scale of each J_g
    single   whether a single policy may or must replace the mixture, as in `solve`
    """
    low, b, margin = exact.J - exact.error, task.world.statement.b, tighten * exact.size
    w = best_weights(low, b, margin) if len(low) else None
    if w is None:
        return None
    mixture = candidates.mixture(w)
    policy = mixture if single == "never" else task.world.as_one_policy(settled, mixture)
    if policy is None:
        chosen = choose_weights(low, b, margin, single)
        if chosen is None:
            return None
        policy = mixture if np.array_equal(chosen, w) else candidates.mixture(chosen)
    return policy, mixture


def _uncertified(task: Task, settled: Settled, run: Run, candidates: Any, exact: ExactValues) -> Any:
    if task.single == "require" and len(exact.J):
        return candidates.mixture(safest_single(exact.J - exact.error, task.world.statement.b))
    return task.world.uncertified(settled, run, candidates, exact)


def _by_samples(task: Task, run: Run, search: Search, steps: float, lam: Array, spent: float) -> Selection:
    world, s = task.world, task.world.statement
    b, attempts = s.b, tuple(_identified(world, search, attempt) for attempt in search.run())
    best = best_attempt(attempts, search.tolerated_loss)
    if best is None:
        raise SmallBudgetError("nothing was tested: give a larger budget")
    note = f"policy {attempts.index(best) + 1} of {len(attempts)} that were tested, at level {best.delta:.3g}"
    note = "; ".join(words for words in (note, search.explain(best)) if words)
    facts: dict[str, Any] = {"components": best.policy.M, "scope": world.scope(best.policy), "lam": lam, "note": note}
    facts |= world.limits()
    certificate = world.complete(certificate_from(best.evidence, b, task.delta, **facts, spent=spent))
    if best.evidence.verdict != "CERTIFIED":
        words = _advice(task, search, best, attempts, steps)
        certificate = replace(certificate, verdict="UNDECIDED", message=f"{words}; {note}")
    certificate = replace(certificate, neighbours=world.neighbours(search, run) or None)
    return Selection(best.policy, certificate, attempts, search.steps + search.spent, len(attempts))


def _advice(task: Task, search: Search, best: Attempt, attempts: tuple[Attempt, ...], steps: float) -> str:
    s, seen = task.world.statement, best.evidence
    if not seen.episodes:
        return advise_untested(steps, max(s.length, search.episodes(best.policy).episode_steps))
    return advise(seen, s.b, steps, sum(a.evidence.steps for a in attempts), s.names, s.costs)


def _identified(world: World, search: Search, attempt: Attempt) -> Attempt:
    """Return `attempt`, the record of a test, with a digest of its policy, episodes and limits added.

    The ledger recognises a repeated test by this digest.
    """
    source = search.episodes(attempt.policy)
    return attempt._replace(subject=subject_of(world.identify(attempt.policy), source, world.statement.b))
