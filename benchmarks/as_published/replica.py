"""Replica of the experiment published for C-NPG-PD (Bai, Bedi, Aggarwal, AAAI 2023), departures included.

The published curves were not made by the algorithm that the paper states. This replica follows the published
experiment in every fact that touches the distribution of a run, so that its curves can be laid over the
published ones. It is evidence about those curves, never a learner to use. Departures from the paper:

B1  The rollout for V starts at the state whose number is the drawn action, not at the drawn state.
B2  The rollouts for V and for J_g have T - 1 terms, T ~ Geometric(1 - gamma): they estimate gamma V and
    gamma J_g.
B3  The direction is the last SGD iterate divided by N (1 - gamma), not the average of the iterates divided by
    1 - gamma: the policy step is N = 100 times shorter than stated.
B4  lam is clipped at 1e8, that is never, and not at 2 / ((1 - gamma) phi).
B5  (s, a) comes from the exact visitation started uniformly on S x A, not from a walk started at rho x pi.
B6  theta and lam start at U(0, 1) draws, not at zero.

Run it from anywhere: `python benchmarks/as_published/replica.py`; the exit code is 1 if the replica lies more
than three standard errors from the published means. `--effects` measures what each departure does instead.
"""

import argparse
import csv
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]

S, A, D = 10, 5, 35
GAMMA = 0.8
N = 100  # SGD samples, and rollouts of the J_g estimate, per iteration
ALPHA = ETA1 = ETA2 = 0.1
PHI_SLATER = 0.0411263785  # max J_g over the policies that the features can express
LAMBDA_PAPER = 2.0 / ((1.0 - GAMMA) * PHI_SLATER)
LAMBDA_NEVER = 1e8

PUBLISHED_RUNS = 40
CHECKED_K = (1000, 5000, 7000)
DEFAULT_PUBLISHED = Path(__file__).resolve().parents[2] / "src/clearance/studies/published/published_curves_fig2.csv"


class Instance(NamedTuple):
    """The one instance of the experiment. Row s * A + a of P and Phi belongs to the pair (s, a)."""

    P: Array
    r: Array
    g: Array
    rho: Array
    Phi: Array


class Departures(NamedTuple):
    """Which departures are in force; the replica has all of them."""

    B1: bool = True
    B2: bool = True
    B3: bool = True
    B4: bool = True
    B5: bool = True
    B6: bool = True


def make_instance() -> Instance:
    draw = np.random.RandomState(10)
    P = draw.uniform(size=(S * A, S))
    P /= P.sum(axis=1, keepdims=True)
    r = draw.uniform(size=(S, A))
    g = draw.uniform(size=(S, A)) - 0.71
    # One-hot for the first 35 pairs only: states 7, 8 and 9 keep the uniform policy for ever.
    return Instance(P, r, g, np.full(S, 1.0 / S), np.eye(S * A, D))


@njit(cache=True, nogil=True)
def row_cumsum(p):
    out = np.empty_like(p)
    for i in range(p.shape[0]):
        out[i] = np.cumsum(p[i])
    return out


@njit(cache=True, nogil=True)
def draw_index(rng, cumulative):
    u = rng.random() * cumulative[-1]  # the last entry may miss 1 by rounding
    i = 0
    while cumulative[i] <= u:
        i += 1
    return i


@njit(cache=True, nogil=True)
def softmax_policy(theta, Phi):
    logits = (Phi @ theta).reshape(S, A)
    pi = np.empty((S, A))
    for s in range(S):
        e = np.exp(logits[s] - logits[s].max())
        pi[s] = e / e.sum()
    return pi


@njit(cache=True, nogil=True)
def state_kernel(P, pi):
    P_pi = np.zeros((S, S))
    for s in range(S):
        for a in range(A):
            P_pi[s] += pi[s, a] * P[s * A + a]
    return P_pi


@njit(cache=True, nogil=True)
def exact_J(m, pi):
    occupancy = np.linalg.solve(np.eye(S) - GAMMA * state_kernel(m.P, pi).T, m.rho)
    J_r = 0.0
    J_g = 0.0
    for s in range(S):
        J_r += occupancy[s] * (pi[s] * m.r[s]).sum()
        J_g += occupancy[s] * (pi[s] * m.g[s]).sum()
    return J_r, J_g


@njit(cache=True, nogil=True)
def pair_visitation(m, pi, dep):
    """Discounted visitation of the pairs (s, a), exactly."""
    start = np.empty(S * A)
    later = np.empty(S * A)
    for s in range(S):
        # B5: the first action is uniform as well; the paper draws it from pi.
        start[s * A : (s + 1) * A] = m.rho[s] * (np.full(A, 1.0 / A) if dep.B5 else pi[s])
    after = np.linalg.solve(np.eye(S) - GAMMA * state_kernel(m.P, pi).T, start @ m.P)
    for s in range(S):
        later[s * A : (s + 1) * A] = after[s] * pi[s]
    return (1.0 - GAMMA) * (start + GAMMA * later)


@njit(cache=True, nogil=True)
def rollout(rng, s, terms, signal, P_cum, pi_cum):
    """Undiscounted sum of `terms` signals along a path from state s."""
    total = 0.0
    for _ in range(terms):
        a = draw_index(rng, pi_cum[s])
        total += signal[s, a]
        s = draw_index(rng, P_cum[s * A + a])
    return total


@njit(cache=True, nogil=True)
def terms_from_state(rng, dep):
    """Length of a rollout that starts with a state (for V and J_g)."""
    T = rng.geometric(1.0 - GAMMA)
    return T - 1 if dep.B2 else T  # B2: one term short, the expectation is gamma times the value.


@njit(cache=True, nogil=True)
def estimate_advantage(rng, s, a, signal, P_cum, pi_cum, dep):
    T = rng.geometric(1.0 - GAMMA)
    successor = draw_index(rng, P_cum[s * A + a])
    Q = signal[s, a] + rollout(rng, successor, T - 1, signal, P_cum, pi_cum)  # T terms: no bias here
    V_start = a if dep.B1 else s  # B1: the number of the action serves as a state.
    return Q - rollout(rng, V_start, terms_from_state(rng, dep), signal, P_cum, pi_cum)


@njit(cache=True, nogil=True)
def scores(pi, Phi):
    out = Phi.copy()
    for s in range(S):
        block = slice(s * A, (s + 1) * A)
        out[block] -= pi[s] @ Phi[block]
    return out


@njit(cache=True, nogil=True)
def natural_gradient(rng, m, pi, signal, P_cum, pi_cum, dep):
    score = scores(pi, m.Phi)
    visitation_cum = np.cumsum(pair_visitation(m, pi, dep))
    w = np.zeros(D)
    w_sum = np.zeros(D)
    for _ in range(N):
        pair = draw_index(rng, visitation_cum)
        advantage = estimate_advantage(rng, pair // A, pair % A, signal, P_cum, pi_cum, dep)
        w -= ALPHA * (score[pair] @ w - advantage) * score[pair]
        w_sum += w
    # B3: the last iterate over N, in the place of the average of the iterates.
    return (w if dep.B3 else w_sum) / (N * (1.0 - GAMMA))


@njit(cache=True, nogil=True)
def estimate_J_g(rng, m, P_cum, pi_cum, dep):
    rho_cum = np.cumsum(m.rho)
    total = 0.0
    for _ in range(N):
        s = draw_index(rng, rho_cum)
        total += rollout(rng, s, terms_from_state(rng, dep), m.g, P_cum, pi_cum)
    return total / N


@njit(cache=True, nogil=True)
def iterate(rng, m, theta, lam, kappa, K, dep):
    J_r = np.empty(K)
    J_g = np.empty(K)
    P_cum = row_cumsum(m.P)
    # B4: a bound that is never reached; with kappa = 1 the multiplier grows without end.
    lam_max = LAMBDA_NEVER if dep.B4 else LAMBDA_PAPER
    for k in range(K):
        pi = softmax_policy(theta, m.Phi)
        pi_cum = row_cumsum(pi)
        J_r[k], J_g[k] = exact_J(m, pi)  # of the iterate before its update: k = 1 is the start
        theta = theta + ETA1 * natural_gradient(rng, m, pi, m.r + lam * m.g, P_cum, pi_cum, dep)
        # The multiplier moves on an estimate for the same policy, before the update of theta.
        lam = min(max(lam - ETA2 * (estimate_J_g(rng, m, P_cum, pi_cum, dep) - kappa), 0.0), lam_max)
    return J_r, J_g


def run(kappa: float, seed: int, K: int, dep: Departures | None = None) -> tuple[Array, Array]:
    """Exact J_r and J_g of the iterates 1..K of one run."""
    dep = dep or Departures()
    rng = np.random.default_rng(seed)
    theta, lam = np.zeros(D), 0.0
    if dep.B6:  # B6: a random start.
        theta, lam = rng.random(D), rng.random()
    return iterate(rng, make_instance(), theta, lam, float(kappa), K, dep)


def run_seeds(kappa: float, seeds: int, K: int, dep: Departures | None = None) -> tuple[Array, Array]:
    """J_r and the violation -J_g of the iterates, each of shape (seeds, K)."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        J = np.array(list(pool.map(partial(run, kappa, K=K, dep=dep), range(seeds))))
    return J[:, 0], -J[:, 1]


def mean_se(x: Array) -> tuple[float, float]:
    return float(x.mean()), float(x.std(ddof=1) / np.sqrt(len(x)))


class Comparison(NamedTuple):
    kappa: int
    k: int
    quantity: str
    replica: tuple[float, float]
    published: tuple[float, float]

    @property
    def z(self) -> float:
        return (self.replica[0] - self.published[0]) / float(np.hypot(self.replica[1], self.published[1]))


def read_published(path: Path) -> dict[tuple[int, int, str], tuple[float, float]]:
    """(kappa, k, quantity) -> published mean and its standard error."""
    published = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            for quantity in ("J_r", "violation"):
                mean = float(row[f"mean_running_avg_{quantity}"])
                se = float(row[f"sd_running_avg_{quantity}"]) / np.sqrt(PUBLISHED_RUNS)
                published[int(row["kappa"]), int(row["k"]), quantity] = (mean, se)
    return published


def compare(seeds: int, K: int, path: Path) -> list[Comparison]:
    published = read_published(path)
    rows = []
    for kappa in (0, 1):
        curves = dict(zip(("J_r", "violation"), run_seeds(kappa, seeds, K), strict=True))
        for quantity, curve in curves.items():
            for k in (k for k in CHECKED_K if k <= K):
                replica = mean_se(curve[:, :k].mean(axis=1))
                rows.append(Comparison(kappa, k, quantity, replica, published[kappa, k, quantity]))
    return rows


def format_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def format_estimate(mean: float, se: float, sign: str = "") -> str:
    return f"{mean:{sign}.4f} ± {se:.4f}"


def print_comparison(rows: list[Comparison]) -> bool:
    print(format_row(["κ", "running average of", "k", "replica", "published", "difference / se"]))
    print(format_row(["---"] * 6))
    for row in rows:
        replica, published = format_estimate(*row.replica), format_estimate(*row.published)
        print(format_row([str(row.kappa), row.quantity, str(row.k), replica, published, f"{row.z:+.2f}"]))
    within = all(abs(row.z) <= 3.0 for row in rows)
    print(f"\n{'All' if within else 'NOT all'} means lie within three standard errors of the published ones.")
    return within


def print_effects(seeds: int, K: int) -> None:
    """Remove each departure in turn, then all six."""
    none = Departures(*[False] * 6)
    cases = {"nothing": Departures(), **{b: Departures()._replace(**{b: False}) for b in none._fields}}
    header = ["κ", "removed", "J_r", "violation", "change of J_r", "change of violation", "stuck"]
    print(f"Averages over k = 1..{K}; stuck: runs out of {seeds} whose last iterate violates the constraint.\n")
    print(format_row(header), format_row(["---"] * len(header)), sep="\n")
    for kappa in (0, 1):
        base: list[Array] = []
        for name, dep in {**cases, "all six": none}.items():
            J_r, violation = run_seeds(kappa, seeds, K, dep)
            means = [J_r.mean(axis=1), violation.mean(axis=1)]
            base = base or means
            change = [mean_se(x - y) for x, y in zip(means, base, strict=True)]
            cells = [format_estimate(*mean_se(x)) for x in means]
            cells += ["" if name == "nothing" else format_estimate(*c, sign="+") for c in change]
            print(format_row([str(kappa), name, *cells, str((violation[:, -1] > 0.0).sum())]), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Lay the replica over the published curves.")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--K", type=int, default=7000)
    parser.add_argument("--published", type=Path, default=DEFAULT_PUBLISHED, metavar="PATH")
    parser.add_argument("--effects", action="store_true", help="measure the effect of each departure instead")
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error("a standard error needs at least two seeds")
    if args.effects:
        print_effects(args.seeds, args.K)
        return 0
    if min(CHECKED_K) > args.K:
        parser.error(f"the comparison begins at k = {min(CHECKED_K)}")
    return 0 if print_comparison(compare(args.seeds, args.K, args.published)) else 1


if __name__ == "__main__":
    sys.exit(main())
