"""Load policies for use, from `policy.npz` or from a run folder. Nothing in the files is ever executed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.certificate import Certificate
from clearance.certificates.certificate_fields import parse_certificate, read_certificate_text
from clearance.core.array_files import read_arrays
from clearance.core.atomic_files import fingerprint, load_json
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath, Inside, exists_inside
from clearance.core.network_form import ARRAYS, RULE_NAME, NetworkForm, explain_missing_rule, most_numbers
from clearance.core.policy_tables import SUFFIXES, read_policy_table
from clearance.deploy.rule_runner import RuleRunner
from clearance.deploy.running_policy import NetworkRunner, NotCertifiedWarning, RunningPolicy
from clearance.deploy.table_policy import TablePolicy
from clearance.deploy.timed_table import TimedTablePolicy

LABELS = ("states", "actions")
NAMES = (*ARRAYS, *LABELS, "pi", "certificate", RULE_NAME)
Rule = Callable[[Any], Any] | None


def load_policy(path: str | os.PathLike[str], seed: int | None = None, *, rule: Rule = None) -> RunningPolicy:
    """Load a policy for use from `policy.npz`, a run folder, or a table (.csv, .json) that `save_policy` wrote.

    The policy needs NumPy alone. If the file has names, a state may be given by its name, and the action is returned by
    name. `policy.certificate` is the certificate in the file, or None. If its verdict is not CERTIFIED, a warning is
    given.

    seed  seed of the policy's random numbers; None draws one from the system
    rule  the rule `observation -> action` that is part of the policy (`solve(…, init=rule)`), if there is one
    """
    given = Path(path)
    if given.suffix.lower() in SUFFIXES and not given.is_dir():
        policy = _load_table(given, seed)
        _say_uncertified(given, policy.certificate)
        return policy
    where = Inside(given, "policy.npz") if given.is_dir() else given
    if isinstance(where, Inside):
        _check_manifest(where)
    arrays = read_arrays(where, NAMES, most_numbers)
    if isinstance(where, Inside) and "pi" in arrays:
        arrays = _labels_beside(where.folder) | arrays
    try:
        policy = restore_policy(arrays, _certificate(where, arrays), seed, rule)
    except InputError as e:
        raise InputError(str(e) if str(e).startswith(f"{where}: ") else f"{where}: {e}") from None
    _say_uncertified(where, policy.certificate)
    return policy


def restore_policy(
    arrays: Mapping[str, NDArray[Any]],
    certificate: Certificate | None = None,
    seed: int | None = None,
    rule: Rule = None,
) -> RunningPolicy:
    """Return a policy that can act, from the arrays of a policy file or from `arrays()` of a mixture in memory.

    `rule` is the code of the rule that is part of the policy; None if there is no rule.
    """
    if rule is not None and RULE_NAME not in arrays:
        raise InputError("no rule is part of this policy: leave out rule")
    if "pi" in arrays:
        pi = arrays["pi"][None] if arrays["pi"].ndim == 2 else arrays["pi"]
        if "weights" not in arrays and len(pi) != 1:
            raise InputError("weights is missing; give weights [M] for pi [M, S, A], or one policy pi [S, A]")
        kind = TimedTablePolicy if pi.ndim == 4 else TablePolicy
        labels: dict[str, Any] = {name: arrays.get(name) for name in LABELS}
        return kind(arrays.get("weights", np.ones(1)), pi, certificate, seed, **labels)
    missing = [name for name in ARRAYS if name not in arrays]
    if missing:
        raise InputError(f"{missing[0]} is missing; a policy file holds weights and pi, or weights and theta")
    form = NetworkForm.from_description(str(arrays["policy"]))
    if form.weight_count > arrays["theta"].shape[-1:][0]:
        raise InputError(f"theta has shape {arrays['theta'].shape}, its description asks for {form.weight_count}")
    normaliser = arrays["obs_mean"], arrays["obs_var"], arrays["obs_count"]
    if RULE_NAME not in arrays:
        return NetworkRunner(form, arrays["weights"], arrays["theta"], normaliser, certificate, seed)
    name, M = str(arrays[RULE_NAME])[:200], len(arrays["theta"])
    if rule is None:
        raise InputError(explain_missing_rule(name, float(arrays["weights"].flat[-1])))
    networks = NetworkRunner(form, np.full(M, 1 / M), arrays["theta"], normaliser)
    return RuleRunner(networks, arrays["weights"], rule, name, certificate, seed)


def _load_table(path: Path, seed: int | None) -> RunningPolicy:
    """Load a policy from a table (.csv or .json); a JSON file may also contain its certificate."""
    found = read_policy_table(path)
    said = None if found.certificate is None else parse_certificate(path, dict(found.certificate))
    kind = TimedTablePolicy if found.pi.ndim == 4 else TablePolicy
    policy = kind(found.weights, found.pi, said, seed, found.states, found.actions)
    policy.names_only, policy.certified_elsewhere = True, path.suffix.lower() == ".csv"
    return policy


def _labels_beside(folder: Any) -> dict[str, NDArray[Any]]:
    """Read the names of states and actions from the model in a run folder; return {} if there is no model."""
    model = Inside(folder, "problem.npz")
    return read_arrays(model, LABELS) if exists_inside(model) else {}


def running(policy: Any) -> RunningPolicy:
    """Return `policy` as a policy that can act.

    A policy from `load_policy` is returned unchanged. A mixture in memory is converted as if loaded from a file.
    """
    if isinstance(policy, RunningPolicy):
        return policy
    arrays = getattr(policy, "arrays", None)
    if arrays is None:
        raise InputError(f"policy must be a Mixture, a NetworkMixture or one by load_policy, got {policy!r:.60}")
    return restore_policy(arrays(), rule=getattr(policy, "rule", None))


def _check_manifest(policy: Inside) -> None:
    """Raise InputError unless the policy file of a run folder matches its hash in the folder's manifest."""
    manifest = load_json(Inside(policy.folder, "manifest.json"), "clearance/manifest/1")
    files = manifest.get("files")
    entry = files.get(policy.name) if isinstance(files, dict) else None
    if not isinstance(entry, dict) or not exists_inside(policy):
        raise InputError(f"{policy}: is missing; finish the run with clearance solve --resume")
    if fingerprint(policy) != {name: entry.get(name) for name in ("sha256", "bytes")}:
        raise InputError(f"{policy}: is cut off or altered, its sha256 is not that in manifest.json")


def _certificate(where: AnyPath, arrays: Mapping[str, NDArray[Any]]) -> Certificate | None:
    """Return the certificate in the arrays of a policy file; None if there is none.

    Runs of version 0.1 have the certificate as a file in the run folder instead.
    """
    if "certificate" in arrays:
        return read_certificate_text(where, str(arrays["certificate"]))
    if not isinstance(where, Inside):
        return None
    beside = Inside(where.folder, "certificate.json")
    return parse_certificate(beside, load_json(beside, "clearance/certificate/1")) if exists_inside(beside) else None


def _say_uncertified(where: AnyPath, certificate: Certificate | None) -> None:
    """Warn if the verdict of a certificate is not CERTIFIED.

    The warning points to the line that called the caller of this function, `load_policy`.
    """
    if certificate is not None and certificate.verdict != "CERTIFIED":
        text = f"{where}: the policy is not certified, its verdict is {certificate.verdict}"
        warnings.warn(text, NotCertifiedWarning, stacklevel=3)
