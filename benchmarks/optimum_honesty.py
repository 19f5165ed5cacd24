"""Do `optimum`, `certify` and `solve` contradict each other? Random, widely scaled and degenerate models.

    python benchmarks/optimum_honesty.py             # 3,600 models, about three minutes on one core
    python benchmarks/optimum_honesty.py --models 90
    python benchmarks/optimum_honesty.py --solve 20  # and run all of `solve` on that many of each kind

Every model has a witness where one is known: a policy whose values were measured before the limits were placed below
them. What is counted, per kind of model:

    contradictions     status "optimal", and `certify` does not say CERTIFIED of that policy
    negative gaps      of `optimum`, or of the certificate of a policy that is CERTIFIED
    false infeasible   `optimum` or the first step of `solve` says that no policy meets the limits, and one is certified
    no diagnosis       it says so, and `diagnose` does not
    lost               a policy is certified, and `optimum` neither returns one nor says that the limits leave no room
    borderline         the limits leave no room, says `optimum`; with how many the witness is certified all the same
    wide gaps          optimal, with a proven gap above 10⁻⁶ of the scale of J_r
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import clearance as cl
from clearance.runs.worlds.finite_margin import exact_margin

Rng = np.random.Generator
COUNTED = ("models", "contradictions", "negative gaps", "false infeasible", "no diagnosis", "lost", "borderline",
           "borderline, witness certified", "wide gaps", "refused", "infeasible")  # fmt: skip


class Case(NamedTuple):
    """A model, and a policy that meets its limits where one is known."""

    cmdp: cl.CMDP
    witness: np.ndarray | None


def draw(rng: Rng, I: int | None = None, gamma: float | None = None, deterministic: bool = False) -> cl.CMDP:
    """A small model without limits to speak of, signals of size 1."""
    S, A = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    I = int(rng.integers(1, 4)) if I is None else I
    P = rng.dirichlet(np.full(S, 0.4), size=(S, A))
    P = np.eye(S)[rng.integers(S, size=(S, A))] if deterministic else P
    g = rng.uniform(-1, 1, (I, S, A)) if not deterministic else rng.integers(-2, 3, (I, S, A)).astype(float)
    gamma = float(rng.choice([0.5, 0.9, 0.99])) if gamma is None else gamma
    return cl.CMDP(P, rng.normal(size=(S, A)), g, np.zeros(I), rho=rng.dirichlet(np.ones(S)), gamma=gamma)


def a_policy(rng: Rng, cmdp: cl.CMDP) -> np.ndarray:
    return rng.dirichlet(np.full(cmdp.A, 0.5), size=cmdp.S)


def greedy(cmdp: cl.CMDP, i: int) -> np.ndarray:
    """The deterministic policy with the largest J_gi."""
    free = cl.CMDP(cmdp.P, cmdp.g[i], rho=cmdp.rho, gamma=cmdp.gamma)
    return np.eye(cmdp.A)[cl.optimum(free).policy.argmax(1)]


def at(cmdp: cl.CMDP, pi: np.ndarray, room: Any = 0.0) -> Case:
    """Limits that this policy meets, with so much room."""
    return Case(cmdp.replace(b=cl.evaluate(cmdp, pi).J[1:] - room), pi)


def rescale(case: Case, size: np.ndarray) -> Case:
    return Case(case.cmdp.replace(h=case.cmdp.h * size[:, None, None], b=case.cmdp.b * size[1:]), case.witness)


def ordinary(rng: Rng) -> Case:
    """Limits drawn at random around what the uniform policy has: some can be met and some cannot."""
    cmdp = draw(rng)
    J = cl.evaluate(cmdp, np.full((cmdp.S, cmdp.A), 1 / cmdp.A)).J[1:]
    return Case(cmdp.replace(b=J + rng.normal(scale=0.2, size=cmdp.I) / (1 - cmdp.gamma)), None)


def feasible(rng: Rng) -> Case:
    """Room from 1e-9 to 1 of the scale of J_g below a random policy."""
    cmdp = draw(rng)
    return at(cmdp, a_policy(rng, cmdp), 10 ** rng.uniform(-9, 0, cmdp.I) / (1 - cmdp.gamma))


def wide(rng: Rng) -> Case:
    """The same, with signals of scales from 1e-6 to 1e8."""
    case = feasible(rng)
    return rescale(case, 10 ** rng.uniform(-6, 8, 1 + case.cmdp.I))


def two_scales(rng: Rng) -> Case:
    """Costs of scales 1e-4 and 1e8, with room of 1e-11 to 1e-3 of each below a policy on the border."""
    cmdp = draw(rng, I=2)
    at_uniform = cmdp.replace(b=cl.evaluate(cmdp, np.full((cmdp.S, cmdp.A), 1 / cmdp.A)).J[1:])
    case = at(cmdp, cl.slater_margin(at_uniform)[1], 10 ** rng.uniform(-11, -3, 2) / (1 - cmdp.gamma))
    return rescale(case, np.array([1.0, 1e-4, 1e8]))


def at_the_maximum(rng: Rng) -> Case:
    cmdp = draw(rng, I=1)
    return at(cmdp, greedy(cmdp, 0))


def zero_width(rng: Rng) -> Case:
    """J_g ≥ c and −J_g ≥ −c."""
    cmdp = draw(rng, I=1)
    both = cl.CMDP(cmdp.P, cmdp.r, np.concatenate([cmdp.g, -cmdp.g]), 0.0, rho=cmdp.rho, gamma=cmdp.gamma)
    return at(both, a_policy(rng, cmdp))


def duplicates(rng: Rng) -> Case:
    """The same constraint three times, in other units, at its maximum or a little below."""
    cmdp = draw(rng, I=1)
    pi, size = greedy(cmdp, 0), np.array([1.0, 1.0, 3.0])[:, None, None]
    same = cl.CMDP(cmdp.P, cmdp.r, np.repeat(cmdp.g, 3, axis=0) * size, 0.0, rho=cmdp.rho, gamma=cmdp.gamma)
    return at(same, pi, rng.choice([0.0, 1e-12, 0.1]))


def constant(rng: Rng) -> Case:
    """All policies have the same J_g, and it is the limit."""
    cmdp, c = draw(rng, I=1), rng.normal()
    same = cmdp.replace(h=np.stack([cmdp.r, np.full_like(cmdp.r, c)]))
    return Case(same.replace(b=np.array([c / (1 - cmdp.gamma)])), a_policy(rng, cmdp))


def one_action(rng: Rng) -> Case:
    cmdp = draw(rng)
    only = cl.CMDP(cmdp.P[:, :1], cmdp.r[:, :1], cmdp.g[:, :, :1], 0.0, rho=cmdp.rho, gamma=cmdp.gamma)
    return at(only, np.ones((cmdp.S, 1)))


def no_constraints(rng: Rng) -> Case:
    cmdp = draw(rng, I=0)
    return Case(cmdp, a_policy(rng, cmdp))


def zero_signals(rng: Rng) -> Case:
    """No reward, and limits of 0 on signals that are 0 everywhere or in all but one pair."""
    cmdp = draw(rng, I=2)
    h = np.zeros_like(cmdp.h)
    h[2, 0, 0] = -1.0
    pi = np.eye(cmdp.A)[np.full(cmdp.S, cmdp.A - 1)]
    return Case(cmdp.replace(h=h), pi if cmdp.A > 1 else None)


def chain(rng: Rng) -> Case:
    """Deterministic moves, whole numbers, γ a power of two: limits that a deterministic policy meets exactly."""
    cmdp = draw(rng, I=int(rng.integers(1, 3)), gamma=float(rng.choice([0.5, 0.75])), deterministic=True)
    return at(cmdp, greedy(cmdp, 0))


def hardly_discounted(rng: Rng) -> Case:
    cmdp = draw(rng, I=1, gamma=float(rng.choice([1 - 1e-6, 1 - 1e-8])))
    return at(cmdp, a_policy(rng, cmdp), 10 ** rng.uniform(-6, -1) / (1 - cmdp.gamma))


def one_step(rng: Rng) -> Case:
    cmdp = draw(rng, gamma=1e-9)
    return at(cmdp, a_policy(rng, cmdp), rng.choice([0.0, 1e-12, 1e-3]))


USUAL: tuple[Callable[[Rng], Case], ...] = (ordinary, feasible, wide, two_scales)
DEGENERATE = (at_the_maximum, zero_width, duplicates, constant, one_action, no_constraints, zero_signals, chain,
              hardly_discounted, one_step)  # fmt: skip


def examine(case: Case) -> Iterator[str]:
    """What is to be counted of one model."""
    cmdp, witness = case
    yield "models"
    met = witness is not None and cl.certify(cmdp, witness, compare=False).verdict == "CERTIFIED"
    try:
        best = cl.optimum(cmdp)
    except (cl.SolverError, cl.InputError):
        yield "refused"
        if met:
            yield "lost"
        return
    seen = cl.certify(cmdp, best.policy, best=best)
    met |= seen.verdict == "CERTIFIED"
    if best.status == "optimal":
        if seen.verdict != "CERTIFIED":
            yield "contradictions"
        if best.gap > 1e-6 * (float(np.abs(cmdp.r).max()) or 1.0) / (1 - cmdp.gamma):
            yield "wide gaps"
    elif best.status == "borderline":
        yield "borderline"
        if met:
            yield "borderline, witness certified"
    else:
        yield "infeasible"
    if best.status != "infeasible" and (best.gap < 0 or (seen.gap or 0.0) < 0):
        yield "negative gaps"
    denied = best.status == "infeasible" or not _solve_begins(cmdp)
    if denied and met:
        yield "false infeasible"
        yield "lost"
    if denied and not _is_diagnosed(cmdp):
        yield "no diagnosis"


def _solve_begins(cmdp: cl.CMDP) -> bool:
    """Whether `solve` gets beyond its first step, the margin."""
    try:
        exact_margin(cmdp, cl.softmax(cmdp.S, cmdp.A, cmdp.available))
    except cl.InfeasibleError:
        return False
    return True


def _is_diagnosed(cmdp: cl.CMDP) -> bool:
    try:
        return cl.diagnose(cmdp).bound < 0
    except (cl.InputError, cl.SolverError):
        return False


def solved(case: Case) -> str:
    """How all of `solve` ends on a model: the verdict, or the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cl.solve(case.cmdp, budget=2e4).certificate.verdict
    except (cl.InfeasibleError, cl.InputError, cl.SolverError) as e:
        return type(e).__name__


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=750, help="of each usual kind; a tenth of it of each degenerate")
    parser.add_argument("--solve", type=int, default=0, help="run all of solve on so many of each kind")
    parser.add_argument("--only", help="one kind")
    args = parser.parse_args()
    total: Counter[str] = Counter()
    for number, kind in enumerate((*USUAL, *DEGENERATE)):
        if args.only not in (None, kind.__name__):
            continue
        count = args.models if kind in USUAL else max(args.models // 12, 1)
        cases = [kind(np.random.default_rng([17, number, seed])) for seed in range(count)]
        found = Counter(what for case in cases for what in examine(case))
        total += found
        print(f"{kind.__name__:18s}", ", ".join(f"{what} {found[what]}" for what in COUNTED if found[what]), flush=True)
        if args.solve:
            print(f"{'  solve':18s}", dict(Counter(solved(case) for case in cases[: args.solve])), flush=True)
    print("\n".join(f"{what:32s}{total[what]:6d}" for what in COUNTED))


if __name__ == "__main__":
    main()
