"""The exact optimum and its certificate at 10⁵ states under each criterion: discounted, average and a horizon.

    python benchmarks/criteria.py                       both families, 100,000 states (some minutes)
    python benchmarks/criteria.py --states 10000        smaller models
    python benchmarks/criteria.py --family random       one family

The models are the two families of the table of discounted optima (`benchmarks/finite.py`): random ones (`garnet`), and
grids that mix slowly (`torus`). Each has 5 actions and one limit. For each criterion, the limit lies half-way between
what the best policy without limits has and the best possible value, so it binds and leaves room. Times are CPU seconds
of this process, after a run on a small model that compiles and loads what is needed.
"""

from __future__ import annotations

import argparse
import time

from finite import torus

import clearance as cl
from clearance.zoo import garnet

FAMILIES = {"random": lambda S: garnet(S, I=1), "grid": lambda S: torus(int(S**0.5), I=1)}


def restated(cmdp: cl.CMDP, criterion: str, H: int) -> cl.CMDP:
    """Return the model under a criterion, with a limit half-way between free optimum and safest policy."""
    if criterion == "horizon":
        cmdp = cmdp.replace(horizon=H)
    elif criterion != "discounted":
        cmdp = cmdp.replace(criterion=criterion)
    none = cmdp.replace(h=cmdp.h, b=[-1e9])
    free = cl.optimum(none, method="columns")
    safest, _ = cl.slater_margin(none.replace(b=[free.J[1]]), method="columns")
    return none.replace(b=[free.J[1] + safest / 2])


def measure(name: str, cmdp: cl.CMDP, criterion: str) -> str:
    began = time.process_time()
    best = cl.optimum(cmdp, method="columns")
    solved = time.process_time()
    verdict = cl.certify(cmdp, best.policy, best=best).verdict
    proved = time.process_time()
    words = f"{name} | {cmdp.S:,} | {criterion} | {solved - began:.1f} | {proved - solved:.1f}"
    return f"| {words} | {best.gap / abs(best.J_r):.1e} | {verdict} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=100_000)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--family", choices=list(FAMILIES), default=None)
    args = parser.parse_args()
    print("| model | states | criterion | optimum | certificate | proven gap | verdict |")
    print("|---|---|---|---|---|---|---|")
    for name in [args.family] if args.family else FAMILIES:
        small, large = FAMILIES[name](400), FAMILIES[name](args.states)
        for criterion in ("discounted", "average", "horizon"):
            measure(name, restated(small, criterion, args.horizon), criterion)
            words = f"horizon {args.horizon}" if criterion == "horizon" else criterion
            print(measure(name, restated(large, criterion, args.horizon), words), flush=True)


if __name__ == "__main__":
    main()
