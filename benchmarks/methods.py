"""All methods side by side: Table 1 measured, sample complexity, last iterates, and time per environment step.

    python benchmarks/methods.py table       optimality and violation at one budget, three problems
    python benchmarks/methods.py slopes      error against samples over two decades, fitted slopes
    python benchmarks/methods.py last        last iterates on Ding 2023's problem (a figure)
    python benchmarks/methods.py general     the rows for general parametrisation, on the paper's class of 35 features
    python benchmarks/methods.py speed       time per environment step against C-NPG-PD, in one run
    python benchmarks/methods.py docs        the tables of table1.md and sample_complexity.md in docs/research

Each section writes its data to results/methods/. --only PROBLEM splits the work.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import clearance as cl
from clearance.core.random_streams import key_of
from clearance.learning.loop import iterate
from clearance.studies import compare as side

DATA = Path("results/methods")
PROBLEMS = ("ding2023", "bai2023", "altman-queue-discounted")
BUDGETS = np.geomspace(1e4, 1e6, 5)
BASE = 1e5  # where the settings of the slopes are found


def problem(name: str) -> cl.CMDP:
    return cl.zoo.MODELS[name]()


# ------------------------------------------------------------------------------------------------- sample complexity

# How a method's paper lets its iterations and its two settings grow with the budget B: K ~ B^p, x ~ B^q, y ~ B^s.
# Table 1's exponent of 1/ε, or None where the row is not in it. N takes what is left of the budget.
SCHEDULES: dict[str, tuple[float, float, float, float | None]] = {
    "cnpgpd": (1 / 2, 0, -1 / 4, 4),  # K ~ ε⁻², N ~ ε⁻², η₂ ~ K^(−1/2)
    "npgpd": (1.0, 0, -1 / 2, 2),  # softmax row: N constant, η₂ ~ K^(−1/2)
    "npgpd-weighted": (1 / 2, 0, -1 / 4, 4),  # JMLR: ε⁻⁴ (Table 1 has ε⁻⁶ for the theorem of 2020)
    "pdanpg": (1 / 2, 0, -1 / 4, 2),
    "crpo": (1 / 2, -1 / 4, 0, 4),  # T ~ ε⁻², α ~ T^(−1/2); the tolerance has its own 1/√K
    "crpo-neural": (1 / 3, -1 / 6, 0, 6),
    "pmdpd": (1 / 3, 0, 0, 3),  # K ~ ε⁻¹, N ~ ε⁻²
    "pmdpd-zero": (1 / 3, 0, 0, 3),
    "pdnac": (1.0, -5 / 6, -5 / 6, 6),  # steps between updates constant; α, η ~ T^(−5/6)
    "rpgpd": (1 / 2, -1 / 4, -1 / 4, None),
    "opgpd": (1 / 2, 0, 0, None),
    "omwupd": (1 / 2, 0, 0, None),
    "regularised": (1 / 2, 0, 0, None),
    "modelbased": (1 / 2, 0, -1 / 4, 2),  # planning only: K and η as for its O(1/√K)
    "modelbased-lp": (0, 0, 0, 2),
}
BASE_K = {"npgpd": 500, "pdnac": 1000}


def error(result: side.Result) -> float:
    """max(gap, violation) of the method's own output: the ε of Table 1, in units of (1−γ)J of range 1."""
    own = result.output
    return max(result.gap(own), result.violation(own))


def slopes(names: list[str], methods: list[str], seeds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        cmdp = problem(name)
        r, _ = cmdp.signal_ranges
        for method in methods:
            p, q, s, _ = SCHEDULES[method]
            base_K = BASE_K.get(method, 200)
            tried = [side.run(name, cmdp, method, pair, side.TUNING_SEED, BASE, base_K) for pair in side.LADDER]
            x, y = side.LADDER[int(np.argmax([side.score(t) for t in tried]))]
            errors = []
            for budget in BUDGETS:
                grown = budget / BASE
                K = max(2, round(base_K * grown**p))
                pair = (x * grown**q, y * grown**s)
                runs = [side.run(name, cmdp, method, pair, seed, budget, K) for seed in range(seeds)]
                errors.append([error(run) * (1 - cmdp.gamma) / r for run in runs])
            found[f"{name}/{method}"] = {"errors": errors, "x": x, "y": y}
            print(name, method, np.round(np.mean(errors, axis=1), 4), slope_of(errors), flush=True)
    return found


def slope_of(errors: Any) -> tuple[float, float, float]:
    """Least-squares slope of log mean error in log budget, with a 90 % bootstrap interval over seeds."""
    errors, rng = np.maximum(np.asarray(errors), 1e-12), np.random.default_rng(0)

    def fit(e: np.ndarray) -> float:
        return float(np.polyfit(np.log(BUDGETS), np.log(e.mean(1)), 1)[0])

    n = errors.shape[1]
    again = [fit(errors[:, rng.integers(n, size=n)]) for _ in range(400)]
    low, high = np.quantile(again, [0.05, 0.95])
    return round(fit(errors), 3), round(float(low), 3), round(float(high), 3)


def draw_slopes(found: dict[str, Any], path: Path) -> None:
    from clearance.core.figures import pyplot_for_files
    from clearance.studies.comparison_figure import STYLES

    plt = pyplot_for_files()
    fig, axes = plt.subplots(1, len(PROBLEMS), figsize=(12.5, 4.8), sharey=True, layout="constrained")
    for ax, name in zip(axes, PROBLEMS, strict=True):
        for method, (colour, dash) in zip(SCHEDULES, STYLES, strict=False):
            mean = np.mean(found[f"{name}/{method}"]["errors"], axis=1)
            ax.loglog(BUDGETS, np.maximum(mean, 1e-5), color=colour, linestyle=dash, marker=".", label=method)
        grown = BUDGETS / BUDGETS[0]
        ax.loglog(BUDGETS, 0.6 * grown**-0.5, color="0.5", linewidth=0.8, label="slope −1/2")
        ax.loglog(BUDGETS, 0.6 * grown**-0.25, color="0.5", linewidth=0.8, linestyle=":", label="slope −1/4")
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("environment steps")
        ax.grid(alpha=0.25, which="both", linewidth=0.4)
    axes[0].set_ylabel("ε = (1−γ) max(gap, violation), mean over seeds")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    fig.savefig(path, dpi=100)
    plt.close(fig)


# -------------------------------------------------------------------------------------------------- general rows


def general(seeds: int, budget: float = 1e6) -> dict[str, Any]:
    """The rows for general parametrisation on the paper's own class (35 features): NPG-PD, PD-ANPG, C-NPG-PD."""
    cmdp, policy = cl.zoo.bai2023(), cl.zoo.bai2023_policy()
    best = cl.optimum(cl.class_model(cmdp, policy))
    found: dict[str, Any] = {"optimum": best.J_r}
    for name, make in {
        "npgpd": lambda x, y, K, N: cl.NPGPD(K=K, N=N, eta1=x * 0.04, eta2=y * 0.2),
        "npgpd-weighted": lambda x, y, K, N: cl.NPGPD(
            K=K, N=N, eta1=x * 0.04, eta2=y * 0.2, direction=cl.WeightedSGD()
        ),
        "pdanpg": lambda x, y, K, N: cl.PDANPG(K=K, N=N, eta1=x * 0.04, eta2=y * 0.2),
        "cnpgpd": lambda x, y, K, N: cl.CNPGPD(K=K, N=N, eta1=x * 0.04, eta2=y * 0.2, kappa="auto"),
    }.items():

        def J(x: float, y: float, seed: int, budget: float, make: Any = make) -> np.ndarray:
            K = round(500 * (budget / 1e6) ** 0.5)
            method = make(x, y, K, max(1, int(budget * 0.2 / (4 * K))))
            return cl.solve(cmdp, method, policy=policy, seed=seed, exact_J=True).trace.J.mean(0)

        tried = [J(x, y, side.TUNING_SEED, 1e5) for x, y in side.LADDER]
        x, y = side.LADDER[int(np.argmax([t[0] - 2.2 * best.lam[0] * max(-t[1], 0) for t in tried]))]
        rows = [[J(x, y * (b / 1e5) ** -0.25, s, b).tolist() for s in range(seeds)] for b in BUDGETS]
        errors = [[0.2 * max(best.J_r - r, -g) for r, g in row] for row in rows]
        found[name] = {"errors": errors, "J": rows, "x": x, "y": y}
        print("features", name, np.round(np.mean(errors, axis=1), 4), slope_of(errors), np.mean(rows[-1], axis=0))
    return found


# ---------------------------------------------------------------------------------------------------- last iterates


def last(path: Path) -> dict[str, float]:
    """Exact runs on Ding 2023's problem: gap and violation of the last iterate, signed."""
    from clearance.core.figures import BLUE, GREEN, ORANGE, PURPLE, VERMILION, pyplot_for_files

    cmdp, K = cl.zoo.ding2023(), 4000
    best, policy = cl.optimum(cmdp), cl.softmax(20, 5)
    methods = {
        "NPG-PD (η₁ = η₂ = .1)": (cl.NPGPD(K=K, direction=cl.Tabular()), VERMILION),
        "RPG-PD (η = .1, τ = .08)": (cl.RPGPD(K=K), ORANGE),
        "PMD-PD (α = .2, η' = 1)": (cl.PMDPD(K=K), PURPLE),
        "OPG-PD (η = .1)": (cl.OPGPD(K=K), BLUE),
        "OMWU-PD (η = .1)": (cl.OPGPD(K=K, geometry="entropic"), GREEN),
    }
    plt = pyplot_for_files()
    fig, axes = plt.subplots(2, 1, figsize=(8.5, 6.2), sharex=True, layout="constrained")
    said = {}
    for name, (method, colour) in methods.items():
        J = iterate(cl.Exact(cmdp, policy), method, key_of(0), 50.0, d_sum=np.zeros((cmdp.S, cmdp.A))).trace.J
        for ax, y in zip(axes, (best.J_r - J[:, 0], cmdp.b[0] - J[:, 1]), strict=True):
            ax.plot(np.arange(1, K + 1), y, color=colour, linewidth=1.2, label=name)
        late = J[-500:]
        worst = np.abs(np.column_stack([best.J_r - late[:, 0], np.maximum(cmdp.b[0] - late[:, 1], 0)])).max()
        said[name] = float(worst)
        print(f"{name}: largest |gap| or violation over the last 500 iterates {worst:.2e}")
    for ax, what in zip(axes, ("gap $J^* - J_r$", "violation $b - J_g$"), strict=True):
        ax.axhline(0, color="black", linewidth=0.7)
        ax.set_yscale("symlog", linthresh=1e-3)
        ax.set_xscale("log")
        ax.set_ylabel(what + ", signed")
        ax.grid(alpha=0.25, linewidth=0.5)
    axes[1].set_xlabel("iteration k")
    axes[0].legend(fontsize=8)
    axes[0].set_title("Last iterates on Ding et al. 2023's problem, exact", fontsize=11)
    fig.savefig(path, dpi=100)
    plt.close(fig)
    return said


# ------------------------------------------------------------------------------------------------------------ speed


def speed(budget: float = 1e7, K: int = 100, repeats: int = 5) -> dict[str, Any]:
    """Seconds per environment step of learning alone, on Ding 2023's problem, in turn; medians and ratios."""
    cmdp = problem("ding2023")
    unit, _ = side.in_units(cmdp)
    times: dict[str, list[float]] = {name: [] for name in side.CONTESTANTS}
    for repeat in range(repeats + 1):
        for name, contestant in side.CONTESTANTS.items():
            method: Any
            sampler: Any
            method, sampler = contestant.make(unit, side.Budget(budget, K, 0.1), 1.0, 1.0)
            if method.kappa == "auto":
                from dataclasses import replace

                method = replace(method, kappa=0.0)
            began = time.perf_counter()
            run = iterate(sampler, method, key_of(repeat), 50.0)
            seconds = time.perf_counter() - began
            if repeat:  # the first is for compilation
                times[name].append(seconds / run.trace.steps.sum())
    median = {name: float(np.median(t)) for name, t in times.items()}
    return {n: {"ns per step": 1e9 * m, "ratio": m / median["cnpgpd"]} for n, m in median.items()}


# ------------------------------------------------------------------------------------------------------------- docs

# Rows of Table 1: as printed (parametrisation, algorithm, samples, violation), and the contestant behind each.
TABLE1 = (
    ("softmax", "PMD-PD", "ε⁻³", "zero", "pmdpd-zero"),
    ("softmax", "PD-NAC", "ε⁻⁶", "zero (its abstract: falls like K^(−1/6))", "pdnac"),
    ("softmax", "NPG-PD", "ε⁻²", "O(ε)", "npgpd"),
    ("softmax", "CRPO", "ε⁻⁴", "O(ε)", "crpo"),
    ("general", "NPG-PD", "ε⁻⁶ (JMLR: ε⁻⁴)", "O(ε)", "features/npgpd-weighted"),
    ("general", "CRPO", "ε⁻⁶", "O(ε)", "crpo-neural"),
    ("general", "C-NPG-PD", "ε⁻⁴", "zero", "features/cnpgpd"),
    ("lower bound", "model-based, primal-dual", "ε⁻²", "zero", "modelbased"),
    ("lower bound", "model-based, LP", "ε⁻²", "zero", "modelbased-lp"),
    ("not in the table", "C-NPG-PD, softmax", "", "", "cnpgpd"),
    ("not in the table", "NPG-PD, weighted SGD", "ε⁻⁴", "O(ε)", "npgpd-weighted"),
    ("not in the table", "PD-ANPG", "ε⁻²", "O(ε)", "pdanpg"),
    ("not in the table", "PD-ANPG, 35 features", "ε⁻²", "O(ε)", "features/pdanpg"),
    ("not in the table", "PMD-PD", "ε⁻³", "O(ε)", "pmdpd"),
    ("not in the table", "RPG-PD", "", "", "rpgpd"),
    ("not in the table", "OPG-PD", "", "", "opgpd"),
    ("not in the table", "OMWU-PD", "", "", "omwupd"),
    ("not in the table", "regularised C-NPG-PD", "", "", "regularised"),
)


def loaded() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    found: dict[str, Any] = {}
    for name in PROBLEMS:
        found |= json.loads((DATA / f"slopes-{name}.json").read_text())
    tables = {name: json.loads((DATA / f"table-{name}.json").read_text()) for name in PROBLEMS}
    return found, tables, json.loads((DATA / "general.json").read_text())


def _slope(errors: Any) -> str:
    value, low, high = slope_of(errors)
    return f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"


def table1_lines() -> list[str]:
    found, tables, features = loaded()
    head = ["parametrisation", "algorithm", "samples, printed", "violation, printed"]
    head += [f"{name}: slope; gap, violation at 10⁶; runs feasible" for name in PROBLEMS]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for kind, label, samples, violation, name in TABLE1:
        cells = []
        for problem_name in PROBLEMS:
            if name.startswith("features/"):
                cells.append(_features_cell(features, name[9:]) if problem_name == "bai2023" else "—")
                continue
            row = next(r for r in tables[problem_name] if r["method"] == name)
            own = row["output"]
            slope = _slope(found[f"{problem_name}/{name}"]["errors"])
            cells.append(f"{slope}; {row[f'gap {own}']:+.3f}, {row[f'violation {own}']:+.3f}; {row['kept']:.0%}")
        lines.append("| " + " | ".join([kind, label, samples, violation, *cells]) + " |")
    return lines


def _features_cell(features: dict[str, Any], name: str) -> str:
    J = np.array(features[name]["J"][-1])
    gap, violation = features["optimum"] - J[:, 0].mean(), -J[:, 1].mean()
    return f"{_slope(features[name]['errors'])}; {gap:+.3f}, {violation:+.3f}; {np.mean(J[:, 1] >= 0):.0%}"


def compare_lines(name: str) -> list[str]:
    _, tables, _ = loaded()
    keys = {
        "gap average": "{:+.4f}",
        "violation average": "{:+.4f}",
        "gap last": "{:+.4f}",
        "violation last": "{:+.4f}",
        "gap best": "{:+.4f}",
        "certified": "{:.0%}",
        "feasible iterates": "{:.0%}",
        "regret of violation": "{:.4f}",
        "x": "{:g}",
        "y": "{:g}",
        "seconds": "{:.2f}",
    }
    lines = ["| method | " + " | ".join(keys) + " |", "|---" * (1 + len(keys)) + "|"]
    for row in tables[name]:
        lines.append(f"| {row['method']} | " + " | ".join(form.format(row[k]) for k, form in keys.items()) + " |")
    return lines


def slope_lines() -> list[str]:
    found, _, features = loaded()
    lines = ["| method | expected slope | " + " | ".join(PROBLEMS) + " | bai2023, 35 features |", "|---" * 6 + "|"]
    for method, (*_, exponent) in SCHEDULES.items():
        expected = "" if exponent is None else f"−1/{exponent:g}"
        cells = [_slope(found[f"{name}/{method}"]["errors"]) for name in PROBLEMS]
        cells.append(_slope(features[method]["errors"]) if method in features else "")
        lines.append(f"| {method} | {expected} | " + " | ".join(cells) + " |")
    return lines


def write_docs() -> None:
    """The measured tables, between the marks of the pages."""
    speeds = json.loads((DATA / "speed.json").read_text())
    speed_lines = ["| method | ns per environment step | ratio to C-NPG-PD |", "|---|---|---|"]
    speed_lines += [f"| {n} | {v['ns per step']:.1f} | {v['ratio']:.2f} |" for n, v in speeds.items()]
    put("docs/research/table1.md", "table1", table1_lines())
    put("docs/research/table1.md", "speed", speed_lines)
    for name in PROBLEMS:
        put("docs/research/table1.md", name, compare_lines(name))
    put("docs/research/sample_complexity.md", "slopes", slope_lines())
    found, _, _ = loaded()
    draw_slopes(found, Path("docs/figures/sample-complexity.png"))


def put(page: str, mark: str, lines: list[str]) -> None:
    """Replace what stands between <!-- mark --> and <!-- /mark -->."""
    text = Path(page).read_text()
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, rest = text.split(begin)
    _, after = rest.split(end)
    Path(page).write_text(before + begin + "\n\n" + "\n".join(lines) + "\n\n" + end + after)


# ------------------------------------------------------------------------------------------------------------- main


def store(name: str, data: Any) -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / f"{name}.json").write_text(json.dumps(data, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=["table", "slopes", "general", "last", "speed", "docs"])
    parser.add_argument("--only", help="one problem")
    parser.add_argument("--methods", default=",".join(SCHEDULES), help="of the slopes, with commas between them")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    names = [args.only] if args.only else list(PROBLEMS)
    if args.section == "table":
        for name in names:
            results = side.compare({name: problem(name)}, seeds=args.seeds, budget=1e6, threads=1)
            store(f"table-{name}", side.summary(results))
            results.plot().savefig(f"docs/figures/compare-{name}.png", dpi=100)
    elif args.section == "slopes":
        for name in names:
            path = DATA / f"slopes-{name}.json"
            before = json.loads(path.read_text()) if path.exists() else {}
            store(path.stem, before | slopes([name], args.methods.split(","), args.seeds))
    elif args.section == "general":
        store("general", general(args.seeds))
    elif args.section == "last":
        store("last", last(Path("docs/figures/last-iterate.png")))
    elif args.section == "speed":
        store("speed", speed())
        print(json.dumps(json.loads((DATA / "speed.json").read_text()), indent=1))
    else:
        write_docs()


if __name__ == "__main__":
    main()
