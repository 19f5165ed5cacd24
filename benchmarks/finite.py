"""Finite models: how fast are sampling, learning and solving, as ratios measured in one run.

    python benchmarks/finite.py                 the whole table (about ten minutes)
    python benchmarks/finite.py --quick         without the largest models and the long LPs
    python benchmarks/finite.py --write         and writes docs/research/performance.md

Every ratio compares two things in this process on this machine, alternating, best of several repetitions.
"""

from __future__ import annotations

import argparse
import platform
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from plain import iteration as plain_iteration
from scipy import sparse

import clearance as cl
from clearance.core.compiled import walks as kernels
from clearance.core.compiled.alias_tables import LOW, G, U, alias_mask, below, even, fold, geometric, mix
from clearance.core.compiled.compilation import kernel
from clearance.core.random_streams import key_of
from clearance.exact import linear_program
from clearance.learning.state import State
from clearance.zoo import bai2023, bai2023_policy, garnet

METHOD = cl.CNPGPD(K=1000, N=100, kappa=0.0, lam_max=243.0)
LINES: list[str] = []
NOTES = "\n## Notes\n"  # what stands below this heading is written by hand, and kept

walk = kernel(kernels.walks.py_func)  # as kernels call it, but from Python


def say(text: str = "") -> None:
    print(text, flush=True)
    LINES.append(text)


def best_rate(run: Callable[[], float], repeats: int = 5) -> float:
    """Units of work per second, best of several."""
    rates = []
    for _ in range(repeats):
        began = time.perf_counter()
        work = run()
        rates.append(work / (time.perf_counter() - began))
    return max(rates)


@njit(nogil=True)
def bare_walk(key, cells, width, origin, h, A, pol, tail, guide, inv_log_gamma, N):
    """The bare random walk: same tables, same generator, one signal, geometric stop, one walk at a time."""
    total, steps, mask = 0.0, 0, alias_mask(A)
    for n in range(N):
        x = fold(key, n)
        T = geometric(x, tail, guide, inv_log_gamma)
        x += G
        word = even(mix(x), len(origin))
        i = below(word, len(origin))
        s = np.int64(origin[i, 1] if (word & LOW) < U(origin[i, 0]) else origin[i, 2])
        for t in range(T):
            x += G
            word = even(mix(x), A)
            i = below(word, A)
            packed = pol[s * A + i]
            row = s * A + (i if (word & LOW) < (packed >> U(32)) else np.int64(packed & mask))
            total += h[row, 0]
            if t + 1 < T:
                x += G
                word = even(mix(x), width)
                i = row * width + below(word, width)
                s = np.int64(cells[i, 1] if (word & LOW) < U(cells[i, 0]) else cells[i, 2])
        steps += T
    return total, steps


def _steps(sampler: cl.Table, state: State, seed: int) -> int:
    """Environment steps of 1000 iterations in one compiled call."""
    advanced = sampler.advance(METHOD, key_of(seed), state, 1000, 243.0)
    assert advanced is not None, "the sampler has no compiled call for this method"
    return int(advanced[1].steps.sum())


def algorithm_rate() -> float:
    """Environment steps per second of whole Algorithm 1 at the paper's settings; exact evaluation is not part of it."""
    cmdp, policy = bai2023(), bai2023_policy()
    sampler = cl.Table(cmdp, policy)
    state = METHOD.init(policy.init(), 1)
    return best_rate(lambda: _steps(sampler, state, 0))


def bare_rate() -> float:
    cmdp, policy = bai2023(), bai2023_policy()
    sampler = cl.Table(cmdp, policy)
    t, rows = sampler.tables, sampler.rows(policy.init())
    args = (t.cells, t.width, t.start, t.h, t.A, rows.pol, t.tail, t.guide, t.inv_log_gamma, 400_000)
    bare_walk(key_of(0), *args)
    return best_rate(lambda: float(bare_walk(key_of(1), *args)[1]))


def sampling() -> None:
    say("## Sampling and Algorithm 1")
    say()
    say(
        "The problem is `bai2023` with the settings of its paper. M steps/s are millions of environment steps per "
        "second."
    )
    say()
    say("| what | measured | ratio | target |")
    say("|---|---|---|---|")
    whole, bare = algorithm_rate(), bare_rate()
    say(f"| (a) whole Algorithm 1, one core | {whole / 1e6:.1f} M steps/s ({2e9 / whole:.1f} µs per iteration) | | |")
    say(
        f"| bare random walk, one at a time | {bare / 1e6:.1f} M steps/s | "
        f"(a) has {whole / bare:.2f} of this speed | ≥ 0.5 |"
    )
    plain = plain_seconds()
    times = f"(a) is {plain * whole / 2000:.0f}× faster"
    say(f"| (b) plain Python and NumPy | {plain * 1e3:.1f} ms per iteration | {times} | ≥ 1000× |")
    one, two = (threads_rate(n) for n in (1, 2))
    say(
        f"| (c) 8 seeds, two threads against one | {two / 1e6:.1f} against {one / 1e6:.1f} M steps/s "
        f"| {two / one:.2f}× | ≥ 1.8× |"
    )


def plain_seconds() -> float:
    cmdp, features, rng = bai2023(), bai2023_policy().features, np.random.RandomState(0)
    theta, times = np.zeros(35), []
    for _ in range(20):
        began = time.perf_counter()
        theta, _ = plain_iteration(cmdp, features, theta, 1.0, 100, rng)
        times.append(time.perf_counter() - began)
    return min(times)


def threads_rate(threads: int) -> float:
    cmdp, policy = bai2023(), bai2023_policy()
    sampler = cl.Table(cmdp, policy)
    state = METHOD.init(policy.init(), 1)

    def one(seed: int) -> int:
        return _steps(sampler, state, seed)

    with ThreadPoolExecutor(threads) as pool:
        return best_rate(lambda: sum(pool.map(one, range(8))), repeats=4)


def walking(sizes: list[int]) -> None:
    say()
    say(
        "(d) The speed of the same compiled sampler depends on the number of states. The models are random, with 5 "
        "actions, 10 successors of\neach state and action, and γ = 0.8. The sampler uses one thread:"
    )
    say()
    say("| states | M steps/s | relative to 10 states |")
    say("|---|---|---|")
    rates = {}
    for S in sizes:
        cmdp = garnet(S, gamma=0.8)
        policy = cl.softmax(S, 5)
        sampler = cl.Table(cmdp, policy)
        tables, rows = sampler.tables, sampler.rows(policy.init())
        N = 400_000
        start, sums, last = np.full(N, -1), np.empty((N, 2)), np.empty(N, np.int64)
        work = kernels.workspace(5, 2)

        def run(tables=tables, rows=rows, start=start, sums=sums, last=last, work=work) -> int:
            return walk(key_of(0), tables, rows, kernels.READY, start, sums, last, work)

        run()
        rates[S] = best_rate(run)
        say(f"| {S:,} | {rates[S] / 1e6:.1f} | {rates[S] / rates[sizes[0]]:.2f} |")
    say()
    say(
        "The target is a relative speed of at least 0.2 at 10⁵ states. The tests check that the results are "
        "bit-identical\nfor any number of interleaved rollouts or threads."
    )


def torus(n: int, I: int = 3, gamma: float = 0.99, seed: int = 0) -> cl.CMDP:
    """A slow-mixing grid of n² states: stay or move to a neighbour, slip with probability 0.05; random r and g."""
    S, rng = n * n, np.random.default_rng(seed)
    x, y = np.divmod(np.arange(S), n)
    moves = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
    to = np.stack([np.clip(x + dx, 0, n - 1) * n + np.clip(y + dy, 0, n - 1) for dx, dy in moves], 1)
    chance = np.full((5, 5), 0.01) + 0.95 * np.eye(5)
    rows = np.repeat(np.arange(S * 5), 5)
    P = sparse.csr_array((np.tile(chance, (S, 1)).ravel(), (rows, np.repeat(to, 5, axis=0).ravel())), shape=(S * 5, S))
    r, g = rng.random((S, 1)) * np.ones(5), rng.random((I, S, 1)) * np.ones(5)
    cmdp = cl.CMDP(P, r, g, 0.0, gamma=gamma)
    return halfway(cmdp)


def halfway(cmdp: cl.CMDP) -> cl.CMDP:
    """Limits half-way between what the best policy for r alone keeps and what can be kept at once."""
    free = cl.optimum(cl.CMDP(cmdp.P, cmdp.r, gamma=cmdp.gamma), method="columns")
    b = cl.evaluate(cmdp, free.policy).J[1:]
    slater, _ = cl.slater_margin(cmdp.replace(b=b), method="columns")
    return cmdp.replace(b=b + slater / 2)


def solving(quick: bool) -> None:
    say()
    say("## Exact optimum: column generation against HiGHS")
    say()
    say(
        "All models have 5 actions and γ = 0.99, and I is the number of constraints. The proven gap is relative to the "
        'optimum. Each solver uses\none thread. "HiGHS best" is the fastest of its simplex, interior point and PDLP '
        "methods on the same model in the same run. A dash\nmarks models for which HiGHS would take hours and was not "
        "tried."
    )
    say()
    say("| model | states | I | seconds | proven gap | verdict | HiGHS best | ratio |")
    say("|---|---|---|---|---|---|---|---|")
    cases = [("random", garnet(1000, I=1)), ("random", garnet(1000, I=3)), ("grid", torus(32))]
    if not quick:
        cases += [
            ("random", garnet(10_000, I=3)),
            ("grid", torus(100)),
            ("random", garnet(100_000, I=3)),
            ("grid", torus(316)),
        ]
    for name, cmdp in cases:
        cl.optimum(cmdp.replace(b=cmdp.b - 1e3), method="columns")  # warm caches; another problem
        began = time.perf_counter()
        best = cl.optimum(cmdp, method="columns")
        seconds = time.perf_counter() - began
        verdict = cl.certify(cmdp, best.policy, best=best).verdict
        reference = highs_best(cmdp) if (1100 if quick else 10_000) >= cmdp.S else None
        text = "— | —" if reference is None else f"{reference[1]} {reference[0]:.1f} s | {reference[0] / seconds:.0f}×"
        say(f"| {name} | {cmdp.S:,} | {cmdp.I} | {seconds:.2f} | {best.gap / abs(best.J_r):.1e} | {verdict} | {text} |")


def highs_best(cmdp: cl.CMDP, limit: float = 45.0) -> tuple[float, str]:
    """Seconds of HiGHS's fastest method on the whole program, each stopped at `limit` seconds."""
    import multiprocessing as mp

    results: list[tuple[float, str]] = []
    for method in ("highs-ipm", "highs-ds", "pdlp"):
        budget = min([limit] + [r[0] for r in results if not r[1].startswith("> ")])
        queue: mp.Queue = mp.get_context("fork").Queue()
        child = mp.get_context("fork").Process(target=_highs_once, args=(cmdp, method, queue))
        child.start()
        child.join(budget + 2)
        if child.is_alive():
            child.kill()
            child.join()
            results.append((budget, f"> {method}"))
        elif not queue.empty():
            results.append((queue.get(), method))
    done = [r for r in results if not r[1].startswith("> ")]
    return min(done) if done else (limit, "> all three:")


def _highs_once(cmdp: cl.CMDP, method: str, queue) -> None:
    began = time.perf_counter()
    if method == "pdlp":
        import highspy  # noqa: F401  only where it is installed

        _pdlp(cmdp)
    else:
        limits = -cmdp.g.reshape(cmdp.I, -1)
        linear_program.highs(
            -cmdp.r.ravel(), limits, -cmdp.b, linear_program._flow(cmdp), cmdp.rho, linear_program._bounds(cmdp), method
        )
    queue.put(time.perf_counter() - began)


def _pdlp(cmdp: cl.CMDP) -> None:
    """HiGHS PDLP to 1e-7, with the right-hand side scaled by |S| (it diverges otherwise)."""
    import highspy

    A: Any = sparse.csr_array(sparse.vstack([linear_program._flow(cmdp), sparse.csr_array(cmdp.g.reshape(cmdp.I, -1))]))
    scale = cmdp.S * (1 - cmdp.gamma)
    model: Any = highspy.HighsLp()
    model.num_col_, model.num_row_ = A.shape[1], A.shape[0]
    model.col_cost_ = -cmdp.r.ravel()
    model.col_lower_, model.col_upper_ = np.zeros(A.shape[1]), np.full(A.shape[1], np.inf)
    model.row_lower_ = np.append(scale * cmdp.rho, scale * cmdp.b)
    model.row_upper_ = np.append(scale * cmdp.rho, np.full(cmdp.I, np.inf))
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = A.indptr, A.indices, A.data
    solver = highspy.Highs()
    solver.silent()
    for option, value in (("solver", "pdlp"), ("pdlp_optimality_tolerance", 1e-7), ("threads", 1)):
        solver.setOptionValue(option, value)
    solver.passModel(model)
    solver.run()


def million() -> None:
    say()
    say("## A million states")
    say()
    from clearance.zoo.garnet import million as model

    began = time.perf_counter()
    cmdp = model()
    built = time.perf_counter()
    best = cl.optimum(cmdp)
    solved = time.perf_counter()
    certificate = cl.certify(cmdp, best.policy, best=best)
    proved = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    say(
        f"The model `clearance.zoo.garnet:million` has 5·10⁷ transitions and was built in {built - began:.0f} s. "
        f"It was solved in {solved - built:.0f} s to a relative\ngap of {best.gap / best.J_r:.1e}. The policy was "
        f"{certificate.verdict} in {proved - solved:.0f} s, with a proven interval of width "
        f"{certificate.J_upper[0] - certificate.J_lower[0]:.1e} for the reward. The process\n"
        f"needed {memory:.1f} GiB of memory."
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    cpu = next(
        (x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), "?"
    )
    say("# Performance on finite models")
    say()
    say("    python benchmarks/finite.py --write")
    say()
    say(
        f"Measured on two cores, which other programs used at the same time: {cpu}, {platform.system()}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}."
    )
    say()
    sampling()
    walking([10, 1000, 100_000] + ([] if args.quick else [1_000_000]))
    solving(args.quick)
    if not args.quick:
        million()
    if args.write:
        page = Path(__file__).parents[1] / "docs" / "research" / "performance.md"
        _, mark, notes = page.read_text().partition(NOTES) if page.exists() else ("", "", "")
        page.write_text("\n".join(LINES) + "\n" + mark + notes)


if __name__ == "__main__":
    main()
