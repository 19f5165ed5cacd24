"""From a run to the policy to use and its certificate: by exact values where they are known, else by samples."""

from __future__ import annotations

from typing import Any, NamedTuple

from clearance.certificates.best_mixture import best_weights
from clearance.certificates.candidate_search import Attempt, CandidateSearch, best_attempt
from clearance.certificates.certificate import Certificate
from clearance.certificates.ledger import Ledger, subject_of
from clearance.certificates.statistical_certificate import certificate_from
from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.random_streams import fold, key_of
from clearance.learning.loop import Run
from clearance.runs.worlds.world import Choice, Settled, Task, World

# What the choice adds to the limits, relative to the scale of J_g; the first mixture that is certified is taken.
TIGHTEN = (1e-9, 1e-8, 1e-7, 1e-6, 0.0)
SEARCH = 2**40 + 20  # the stream of choice and tests: no iteration of a run gets as far


class Selection(NamedTuple):
    """The policy to use, its certificate, and the mixtures that were tested, with environment steps and their number.

    A result that was read from its folder has the number of the tests, and not the tests.
    """

    policy: Any
    certificate: Certificate
    attempts: tuple[Attempt, ...] = ()
    steps: int = 0
    tests: int = 0


def select(task: Task, settled: Settled, run: Run, margin: Any, ledger: Ledger, *, repeats: bool = True) -> Selection:
    """Choose the best mixture of the iterates that keeps every limit, and certify it.

    ledger   where the search enters its tests, before it draws
    repeats  whether a search that was interrupted draws the same samples again
    """
    lam = run.trace.lam[len(run.trace) // 2 :].mean(0)
    if task.evidence == "exact":
        return _by_values(task, settled, run, margin, lam)
    budget = task.world.search_budget(task, task.world.spent_before(margin) + run.steps)
    choice, share = (
        task.world.sampled_choice(settled, run, margin, budget),
        ledger.open_search(task.delta, repeats=repeats),
    )
    found = _by_samples(task, choice, budget, lam, share.level, ledger.spent)
    ledger.close_search(share, [(attempt.subject, attempt.evidence) for attempt in found.attempts])
    return found


def _by_values(task: Task, settled: Settled, run: Run, margin: Any, lam: Array) -> Selection:
    """Choose by exact values; the program's tolerance may leave its answer a hair outside, so limits are tightened."""
    world, b, policy = task.world, task.world.statement.b, None
    candidates, exact = world.exact_choice(settled, run, margin)
    for tighten in TIGHTEN:
        w = best_weights(exact.J - exact.error, b, tighten * exact.size) if len(exact.J) else None
        if w is not None:
            policy = candidates.mixture(w)
            if world.certify(policy, lam, compare=False).verdict == "CERTIFIED":
                break
    policy = world.uncertified(settled, run, candidates, exact) if policy is None else policy
    return Selection(policy, world.certify(policy, lam))


def _by_samples(task: Task, choice: Choice, budget: float, lam: Array, level: float, spent: float) -> Selection:
    world, b, key = task.world, task.world.statement.b, fold(key_of(task.seed), SEARCH)
    search = CandidateSearch(choice.candidates, b, key, budget, level, choice.fallback, choice.reserve)
    attempts = tuple(_identified(world, choice, attempt) for attempt in search.run())
    best = best_attempt(attempts)
    if best is None:
        raise InputError("nothing was tested: give a larger budget")
    note = f"mixture {attempts.index(best) + 1} of {len(attempts)} tried, tested at level {best.delta:.3g}"
    facts: dict[str, Any] = {"components": best.policy.M, "scope": world.scope(best.policy), "lam": lam, "note": note}
    certificate = world.complete(certificate_from(best.evidence, b, task.delta, **facts, spent=spent))
    return Selection(best.policy, certificate, attempts, search.steps, len(attempts))


def _identified(world: World, choice: Choice, attempt: Attempt) -> Attempt:
    """The attempt with the digest of what was tested, by which a ledger finds it again."""
    source = choice.candidates.episodes(attempt.policy)
    return attempt._replace(subject=subject_of(world.identify(attempt.policy), source, world.statement.b))
