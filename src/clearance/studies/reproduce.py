"""Reproduce published experiments: `clearance reproduce bai2023`."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clearance.cluster.executor import Executor, run_all
from clearance.core.arrays import Array
from clearance.core.csv_files import write_csv
from clearance.core.errors import InputError
from clearance.exact.optimum import optimum
from clearance.finite.cmdp import CMDP
from clearance.finite.softmax_policy import SoftmaxPolicy, class_model
from clearance.learning.direction import SGD
from clearance.learning.methods.cnpgpd import CNPGPD
from clearance.learning.trace import running_average
from clearance.runs.solve import solve
from clearance.zoo import bai2023, bai2023_policy

FEASIBLE_KAPPA = 0.01  # a quarter of the Slater margin 0.0411 of the class


class Setting(NamedTuple):
    """One setting of the experiment: a margin κ, and a variant of the SGD that estimates the update direction ω."""

    label: str
    kappa: float
    direction: SGD


SETTINGS = (
    Setting("κ = 0", 0.0, SGD(alpha=0.05)),
    Setting("κ = 0, printed", 0.0, SGD(alpha=0.125, printed=True)),
    Setting(f"κ = {FEASIBLE_KAPPA:g}", FEASIBLE_KAPPA, SGD(alpha=0.05)),
    Setting("κ = 0.5", 0.5, SGD(alpha=0.05)),
    Setting("κ = 1", 1.0, SGD(alpha=0.05)),
)


@dataclass(frozen=True, eq=False)
class Runs:
    """The runs of one setting with all seeds.

    J        exact values [seeds, K, 2] of the K iterates of each run: reward and constraint
    lam      the last multiplier λ [seeds];  steps, seconds: environment steps and seconds of each run
    """

    setting: Setting
    J: Array
    lam: Array
    steps: Array
    seconds: Array

    @property
    def averages(self) -> Array:
        """The running averages [seeds, K, 2] of J over the iterates, as plotted in the paper."""
        return np.stack([running_average(J) for J in self.J])


@dataclass(frozen=True, eq=False)
class Study:
    """The results of the whole reproduction, with the exact optimum and Slater margin for comparison.

    Values whose names begin with `class_` are for the paper's policy class; all other values are for all policies.
    """

    cmdp: CMDP
    class_optimum: float
    class_slater: float
    slater: float
    optimum: float
    lam_max: float
    runs: list[Runs]
    seconds: float

    def table(self) -> list[dict[str, float | str]]:
        """Return one row per setting, with means over seeds."""
        return [self._row(r) for r in self.runs]

    def _row(self, runs: Runs) -> dict[str, float | str]:
        average = runs.J.mean(1)  # [seeds, 2]: J of the uniform mixture of each run
        se = average.std(0, ddof=1) / np.sqrt(len(average)) if len(average) > 1 else np.full(2, np.nan)
        return {
            "setting": runs.setting.label,
            "average J_r": average[:, 0].mean(),
            "± J_r": se[0],
            "average J_g": average[:, 1].mean(),
            "± J_g": se[1],
            "last J_r": runs.J[:, -1, 0].mean(),
            "last J_g": runs.J[:, -1, 1].mean(),
            "feasible iterates": (runs.J[:, :, 1] >= 0).mean(),
            "runs, avg J_g ≥ 0": (average[:, 1] >= 0).mean(),
            "last λ": runs.lam.mean(),
            "of class optimum": average[:, 0].mean() / self.class_optimum,
            "env steps": runs.steps.mean(),
            "seconds": runs.seconds.mean(),
        }

    def published_columns(self) -> list[dict[str, float | str]]:
        """Return one row per published curve: the paper's own results at the last iteration, from its 40 runs."""
        K = self.runs[0].J.shape[1]
        return [
            {
                "setting": f"published, κ = {c.kappa:g}",
                "average J_r": c.J_r[c.k <= K][-1],
                "± J_r": c.sd_J_r[c.k <= K][-1] / np.sqrt(40),
                "average J_g": -c.violation[c.k <= K][-1],
                "± J_g": c.sd_violation[c.k <= K][-1] / np.sqrt(40),
                "of class optimum": c.J_r[c.k <= K][-1] / self.class_optimum,
            }
            for c in published()
            if c.sd_J_r is not None and c.sd_violation is not None
        ]

    def finding(self) -> str:
        """Return a sentence on the paper's choices of κ, which exceed the Slater margin."""
        return (
            f"κ = 0.5 (body) and κ = 1 (appendix) both exceed the Slater margin of the paper's own instance: "
            f"max J_g = {self.slater:.4f} over all policies, {self.class_slater:.4f} in the class of its 35 features. "
            f"No policy keeps such a margin, so λ runs into its bound Λ = {self.lam_max:.0f}."
        )


class Published(NamedTuple):
    """One published curve.

    k [n]              iterations
    J_r, violation     running averages [n] of the reward, and of the violation −J_g
    sd_J_r, sd_violation  their standard deviations over runs [n]; None for a single run
    """

    label: str
    kappa: float
    k: Array
    J_r: Array
    violation: Array
    sd_J_r: Array | None
    sd_violation: Array | None


def published() -> list[Published]:
    """Return the published curves of Bai et al. 2023, from the authors' public result data."""
    curves = []
    for file, label in (
        ("published_curves_fig2.csv", "published, 40 runs"),
        ("published_curves_fig1.csv", "published, one run"),
    ):
        text = (resources.files("clearance.studies") / "published" / file).read_text()
        rows = list(csv.DictReader(io.StringIO(text)))
        for kappa in sorted({float(r["kappa"]) for r in rows}):
            part = [r for r in rows if float(r["kappa"]) == kappa]
            mean = "mean_" if "mean_running_avg_J_r" in part[0] else ""
            column = {c: np.array([float(r[c]) for r in part]) for c in part[0]}
            curves.append(
                Published(
                    label,
                    kappa,
                    column["k"],
                    column[f"{mean}running_avg_J_r"],
                    column[f"{mean}running_avg_violation"],
                    column.get("sd_running_avg_J_r"),
                    column.get("sd_running_avg_violation"),
                )
            )
    return curves


def run_bai2023(
    seeds: int = 40,
    K: int = 7000,
    N: int = 100,
    *,
    threads: int = 2,
    settings: Iterable[Setting] = SETTINGS,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
) -> Study:
    """Run the experiment of Bai et al. 2023 on its single instance, with step sizes η₁ = η₂ = 0.1.

    Algorithm 1 is used in the form for which the theorem is proven.

    seeds, K, N  number of seeds, iterations, and samples per iteration
    settings     the margins κ and the variants of SGD to run
    """
    if seeds < 1:
        raise InputError(f"seeds must be a whole number ≥ 1, got {seeds}")
    began = time.perf_counter()
    cmdp, policy = bai2023(), bai2023_policy()
    best, best_class = optimum(cmdp), optimum(class_model(cmdp, policy))
    lam_max = 2 / ((1 - cmdp.gamma) * best_class.attained_margin)  # the paper's Λ, with r in [0, 1]
    settings = list(settings)
    jobs = [(setting, seed) for setting in settings for seed in range(seeds)]

    def one(job: tuple[Setting, int]) -> tuple[Array, float, int, float]:
        return _one_run(cmdp, policy, job[0], K, N, lam_max, job[1])

    results = run_all(one, jobs, threads=threads, progress=progress, executor=executor)
    runs = [_collect(setting, results[i * seeds : (i + 1) * seeds]) for i, setting in enumerate(settings)]
    seconds = time.perf_counter() - began
    slater = best_class.attained_margin, best.attained_margin  # small models: these are the Slater margins
    return Study(cmdp, best_class.J_r, *slater, best.J_r, lam_max, runs, seconds)


def _one_run(cmdp: CMDP, policy: SoftmaxPolicy, setting: Setting, K: int, N: int, lam_max: float, seed: int):
    method = CNPGPD(K=K, N=N, kappa=setting.kappa, lam_max=lam_max, direction=setting.direction)
    solution = solve(cmdp, method, policy=policy, seed=seed, exact_J=True)
    return solution.trace.J, float(solution.lam[0]), solution.env_steps, solution.seconds


def _collect(setting: Setting, results: list[tuple[Array, float, int, float]]) -> Runs:
    J, lam, steps, seconds = zip(*results, strict=True)
    return Runs(setting, np.stack(J), np.array(lam), np.array(steps, float), np.array(seconds))


def write_bai2023(study: Study, folder: str | Path) -> list[Path]:
    """Write the table and the running averages as CSV files to a folder, and return their paths."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        rows = study.table()
        write_csv(folder / "table.csv", rows[0], (list(row.values()) for row in rows))
        write_csv(folder / "curves.csv", CURVES, _curves(study))
        return [folder / "table.csv", folder / "curves.csv"]
    except OSError as e:
        raise InputError(f"{folder}: cannot write: {e.strerror or e}") from None


CURVES = ("setting", "k", "mean J_r", "sd J_r", "mean violation", "sd violation")


def _curves(study: Study) -> Iterator[list[Any]]:
    for runs in study.runs:
        mean, sd = runs.averages.mean(0), runs.averages.std(0)
        for k in range(0, len(mean), max(1, len(mean) // 100)):
            yield [runs.setting.label, k + 1, mean[k, 0], sd[k, 0], -mean[k, 1], sd[k, 1]]
