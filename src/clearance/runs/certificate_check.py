"""Check the certificate of a run folder against the model, the policy and the ledger in the same folder.

A folder may come from someone who altered a file and recomputed the hashes. Everything that follows from the other
files is therefore computed again, and a number that contradicts them raises an InputError that names the field.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from clearance.certificates.certificate import Certificate
from clearance.certificates.contradictions import at_most, nearly
from clearance.certificates.ledger import Ledger
from clearance.core.errors import InputError, SolverError
from clearance.exact.enclosure import dual_function
from clearance.finite.cmdp import CMDP
from clearance.finite.long_run import scale_of
from clearance.finite.mixture import Mixture
from clearance.runs.ledger_file import NAME, read_ledger
from clearance.runs.run_reader import RunFolder, load
from clearance.runs.schema import REMEDY
from clearance.runs.worlds.finite_certify import certify_table

# The largest number of transitions times mixture components for which a certificate is computed again (15 s at most).
MOST_TRANSITIONS = 5_000_000
# By how much the dual function at the stored λ may exceed the stored bound, relative to the scale of J_r: a solver that
# starts from another point ends at a slightly different one.
BOUND = 1e-6
PROVEN = ("CERTIFIED", "VIOLATED")
# Fields that are shown as computed again: stored bounds may be true but far too wide, and stored words may be false.
SHOWN = ("J_lower", "J_upper", "worst_component_slack", "message", "scope", "greedy_verdict")
Field = tuple[str, str] | None


@dataclass(frozen=True)
class CheckedCertificate:
    """A certificate of a run folder, together with the result of checking it.

    checked  whether verdict and values were computed again from the model and the policy in the folder, and agree
    message  one sentence that says what was checked, or why nothing was checked
    J_r      the reward computed from the model; None if it was not computed
    """

    certificate: Certificate
    checked: bool
    message: str
    J_r: float | None = None


def check_certificate(run: str | Path | RunFolder) -> CheckedCertificate:
    """Check the certificate of a run folder; raise `InputError` if it contradicts itself or the other files.

    For a finite model the values are computed again, with error bounds, from the model and the policy. Two kinds of run
    are only checked for consistency with the problem and the ledger: simulators, whose code is not in the folder, and
    models for which the number of transitions times the number of mixture components exceeds 5 million.
    """
    run = load(run) if isinstance(run, str | Path) else run
    said = run.certificate
    if said is None:
        raise InputError(f"{run.folder}: has no certificate yet; continue the run with clearance solve --resume")
    _refuse(run, _problem_differs(run, said) or _ledger_differs(run, said))
    cmdp = run.problem
    if not isinstance(cmdp, CMDP):
        return CheckedCertificate(said, False, "not checked: the model is not here, only what was asked of a simulator")
    policy = run.policy
    if not isinstance(policy, Mixture):
        raise InputError(f"{run.folder}/policy.npz: is missing, though there is a certificate of it; {REMEDY}")
    policy.check(cmdp)
    if said.components != policy.M:
        _refuse(run, ("components", f"is {said.components}, but policy.npz has {policy.M}"))
    work = _transitions(cmdp) * policy.M
    if work > MOST_TRANSITIONS:
        why = f"{work:,} transitions times components are more than {MOST_TRANSITIONS:,}"
        return CheckedCertificate(said, False, f"not checked: {why}; clearance certify computes it again")
    return _computed_again(run, cmdp, policy, said)


def _computed_again(run: RunFolder, cmdp: CMDP, policy: Mixture, said: Certificate) -> CheckedCertificate:
    again = certify_table(cmdp, policy, compare=False)
    _refuse(run, _verdict_differs(said, again))
    if said.evidence == "samples":
        least = min(again.slack, default=None)
        values = f"J_r = {again.J_r:.6g}" + ("" if least is None else f", smallest slack {least:.3g}")
        return CheckedCertificate(said, True, f"checked: by the model, {values}: {again.verdict}", again.J_r)
    _refuse(run, _values_differ(cmdp, said, again) or _bound_fails(cmdp, said))
    if said.verdict != again.verdict and said.verdict != "UNDECIDED":
        why = "computed again, the bounds leave a limit open by rounding"
        return CheckedCertificate(said, False, f"not checked: {why}", again.J_r)
    if said.verdict == again.verdict == "CERTIFIED":  # shown as it follows from the model, not as stored
        said = replace(said, **{name: getattr(again, name) for name in SHOWN})
    message = "checked: verdict and values were computed again from the model and the policy in this folder"
    return CheckedCertificate(said, True, message, again.J_r)


def _refuse(run: RunFolder, wrong: Field) -> None:
    if wrong is not None:
        raise InputError(f"{run.path('certificate.json')}: {wrong[0]} {wrong[1]}; {REMEDY}")


def _problem_differs(run: RunFolder, said: Certificate) -> Field:
    problem = run.problem
    if len(said.b) != problem.I:
        return "b", f"must have {problem.I} numbers, one per constraint"
    if not np.array_equal(said.b, problem.b):
        return "b", f"is {said.b}, but the problem has {problem.b.tolist()}"
    if said.names is not None and tuple(said.names) != tuple(problem.names):
        return "names", "are not those of the problem"
    if said.costs is not None and tuple(said.costs) != tuple(problem.costs):
        return "costs", "are not those of the problem"
    return None


def _ledger_differs(run: RunFolder, said: Certificate) -> Field:
    """Compare the certificate `said` with the ledger, the list of statistical tests in the folder.

    Return the field of the certificate that contradicts the ledger, and why; None if they agree. Certificates of
    version 0.1 store neither `spent` nor `level`, and are not compared.
    """
    if said.spent is None or said.level is None or said.delta is None:
        return None
    if not run.has(NAME):
        return None if at_most(said.spent, said.delta) else ("spent", f"is {said.spent:.6g}, more than delta")
    ledger = read_ledger(run.path(NAME), run.manifest["files"][NAME])
    if not at_most(said.spent, ledger.spent):
        return "spent", f"is {said.spent:.6g}, but the ledger has {ledger.spent:.6g}"
    if not any(nearly(said.level, x) for x in _levels(ledger, said.delta)):
        return "level", f"is {said.level:.6g}, which no test in the ledger has"
    return None


def _levels(ledger: Ledger, delta: float) -> list[float]:
    return [trial.level for share in ledger.shares if share.delta == delta for trial in share.trials]


def _verdict_differs(said: Certificate, again: Certificate) -> Field:
    if {said.verdict, again.verdict} != set(PROVEN):
        return None
    by = "" if said.evidence == "exact" else f" from samples at delta = {said.delta}"
    return "verdict", f"is {said.verdict}{by}, but by the model and the policy in this folder it is {again.verdict}"


def _values_differ(cmdp: CMDP, said: Certificate, again: Certificate) -> Field:
    """Compare the stored certificate `said` with the recomputed certificate `again`.

    Return the field that differs and why; None if all fields agree. Values must be equal up to rounding, and their
    intervals must overlap.
    """
    sizes = [_size(cmdp, h) for h in range(1 + cmdp.I)]
    ours = zip([again.J_r, *again.J_g], again.J_lower, again.J_upper, strict=True)
    theirs = zip([said.J_r, *said.J_g], said.J_lower, said.J_upper, strict=True)
    for i, ((J, low, high), (J_said, low_said, high_said)) in enumerate(zip(ours, theirs, strict=True)):
        of = "" if i == 0 else f"of limit {i - 1} "
        if not nearly(J_said, J, sizes[i]):
            return ("J_g" if i else "J_r"), f"{of}is {J_said:.6g}, but by the model and the policy it is {J:.6g}"
        if low_said > high or high_said < low:
            return "J_lower", f"and J_upper {of}do not enclose {J:.6g}, the value by the model and the policy"
    worst, worst_said = again.worst_component_slack, said.worst_component_slack
    if worst is not None and worst_said is not None and not nearly(worst, worst_said, max(sizes)):
        return "worst_component_slack", f"is {worst_said:.6g}, but by the model and the policy it is {worst:.6g}"
    return None


def _size(cmdp: CMDP, h: int) -> float:
    """Return the scale of J for the signal with index h (0 is the reward).

    It is the largest absolute value of the signal in one step, times the length of an episode.
    """
    return float(np.abs(cmdp.h[h]).max()) * scale_of(cmdp)


def _bound_fails(cmdp: CMDP, said: Certificate) -> Field:
    """Check that the multipliers λ of the certificate `said` prove its upper bound on the optimum.

    The dual function at λ is an upper bound on the optimum, so the stored bound must not be below it. Return the wrong
    field and why. Return None if the bound is proven or not stored.
    """
    if said.bound is None:
        return None
    if said.lam is None:
        return "bound", "is given without lam, which proves it"
    with np.errstate(all="ignore"):  # λ from a stranger may overflow: then nothing is proven
        try:
            proven = dual_function(cmdp, np.array(said.lam, float))[0]
        except SolverError:
            return "lam", "does not prove the bound: no value was found at it"
    if proven <= said.bound + BOUND * max(_size(cmdp, 0), abs(said.bound)):
        return None
    return "bound", f"is {said.bound:.6g}, but lam proves no less than {proven:.6g}"


def _transitions(cmdp: CMDP) -> int:
    return int(cmdp.rows.nnz if cmdp.is_sparse else cmdp.rows.size)
