"""Build the policy class, sampler and update direction from the texts of --policy, --sampler and --direction."""

from __future__ import annotations

from typing import Any

from clearance.core.array_files import read_arrays
from clearance.core.errors import InputError
from clearance.finite.cmdp import CMDP
from clearance.finite.samplers.algorithm2 import Table
from clearance.finite.samplers.exact_sampler import Exact
from clearance.finite.samplers.td_critic import Critic
from clearance.finite.softmax_policy import check_fits, linear_softmax, softmax
from clearance.learning.direction import SGD, LeastSquares, Tabular, WeightedSGD
from clearance.zoo import POLICIES

WEIGHTED = ("exact", "critic")  # samplers whose draws have weights


def make_policy_class(text: str | None, cmdp: CMDP) -> Any:
    """Return the policy class that the text of --policy names.

    It is tabular softmax (None or "tabular"), the class of a zoo model, or softmax over the features in an .npz file.
    """
    if text is None or text == "tabular":
        return softmax(cmdp.S, cmdp.A, cmdp.available)
    if text in POLICIES:
        policy = POLICIES[text]()
    elif text.endswith(".npz"):
        arrays = read_arrays(text, ("features",))
        if "features" not in arrays:
            raise InputError(f"{text}: features is missing; the file must hold features [S, A, d]")
        features = arrays["features"]  # so that an error about their shape comes first
        fits = features.shape[:2] == (cmdp.S, cmdp.A)
        policy = linear_softmax(features, cmdp.available if fits else None)
    else:
        raise InputError(
            f"--policy {text!r} is neither tabular, nor a zoo class ({', '.join(POLICIES)}), nor an .npz file"
        )
    check_fits(cmdp, policy)
    return policy


def make_sampler(text: str | None, cmdp: CMDP, policy: Any) -> Any:
    """Return the sampler that the text of --sampler names; None if the text is None, so that the method chooses one."""
    if text is None:
        return None
    if text == "critic":
        return Critic(cmdp, policy)
    return Exact(cmdp, policy) if text == "exact" else Table(cmdp, policy, resets=text == "table")


def make_direction(
    text: str | None, *, sampler: str | None, tabular: bool, alpha: float | None, printed: bool, ridge: float | None
) -> Any:
    """Return the estimator of the update direction ω in Algorithm 1; None if the method's default is to be used.

    text     the value of --direction, or None;  sampler: the value of --sampler
    tabular  whether the policy is tabular softmax on a finite model
    alpha    step size of SGD;  printed: whether SGD follows the printed algorithm;  ridge: ridge term of least squares
    """
    weighted = sampler in WEIGHTED
    if text in ("sgd", "weighted-sgd") and weighted:
        what = f"--direction {text} wants draws of equal weight, --sampler {sampler} weighs them"
        raise InputError(f"{what}: use least-squares")
    if text == "tabular" and not tabular:
        raise InputError("--direction tabular is for tabular policies of finite models: use sgd or least-squares")
    if text == "tabular" or (weighted and tabular and text is None):
        return Tabular()
    if text == "least-squares" or weighted:
        return LeastSquares(ridge=0.0 if ridge is None else ridge)
    if text == "weighted-sgd":
        return WeightedSGD()
    if text is None and alpha is None and not printed:
        return None
    return SGD(alpha=0.05 if alpha is None else alpha, printed=printed)
