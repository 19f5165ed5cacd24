"""Help texts of the command line: one line and two examples for each command, and a short guide."""

from __future__ import annotations

COMMANDS = {
    "solve": "learn a policy, choose the best one that meets every limit, and certify it",
    "optimum": "compute the exact optimum of a finite model, with a certified policy",
    "certify": "test whether a policy meets every limit: with a proof, or from samples",
    "evaluate": "show returns and costs of a policy's episodes on a simulator",
    "watch": "record episodes of a policy as a GIF or a video",
    "check": "check that a problem is well formed and that its limits can be met",
    "frontier": "show what a limit costs: the best reward for each value of the limit",
    "report": "write an HTML report about one run, or about several side by side",
    "export": "write a model, a policy or the trace of a run in another format",
    "zoo": "list the ready-made problems",
    "sweep": "solve every point of a grid of settings, each in its own run folder",
    "compare": "compare learning algorithms on finite models with the exact optimum",
    "plan": "show which settings Theorem 1 of Bai et al. (2023) requires",
    "reproduce": "repeat the experiment of Bai et al. (2023)",
    "completion": "print a script that completes commands in bash, zsh or fish",
}

EXAMPLES = {
    "solve": (
        "clearance solve inventory --out run",
        "clearance solve velocity-hopper --budget 2e6 --out hopper",
    ),
    "optimum": (
        "clearance optimum inventory",
        "clearance optimum plant.csv --gamma 0.99 --limit breakdowns=1 --out best.csv",
    ),
    "certify": ("clearance certify inventory run/policy.npz", "clearance certify --check run"),
    "evaluate": (
        "clearance evaluate velocity-hopper hopper",
        "clearance evaluate velocity-hopper hopper --episodes 200 --out episodes.png",
    ),
    "watch": (
        "clearance watch gym:CartPole-v1 run --out episode.gif",
        "clearance watch mine:make run --out episode.gif",
    ),
    "check": ("clearance check inventory", "clearance check mine:make --limits 3 --horizon 50 --bounds 0,1"),
    "frontier": (
        "clearance frontier inventory",
        'clearance frontier inventory --constraint "lost sales" --out price.png',
    ),
    "report": ("clearance report run", "clearance report first second --out both.html"),
    "export": ("clearance export run --to policy.csv", "clearance export inventory --to inventory.csv"),
    "zoo": ("clearance zoo", "clearance zoo --json"),
    "sweep": ("clearance sweep two-state --grid seed=0:3 --out grid", "clearance sweep --resume grid"),
    "compare": (
        "clearance compare two-state bai2023",
        "clearance compare two-state --methods cnpgpd,crpo --seeds 3",
    ),
    "plan": ("clearance plan bai2023 --epsilon 0.1", "clearance plan two-state --epsilon 0.01 --json"),
    "reproduce": ("clearance reproduce bai2023", "clearance reproduce bai2023 --seeds 4 --K 1000 --out quick"),
    "completion": (
        "clearance completion bash >> ~/.bash_completion",
        "clearance completion fish > ~/.config/fish/completions/clearance.fish",
    ),
}

EXIT_STATUS = """\
exit status:
  0 done and, where a policy results, certified; 2 bad input; 3 infeasible;
  4 not certified; 130, 143 or 129 after Ctrl-C, SIGTERM or SIGHUP
"""

GUIDE = """\
clearance finds policies that meet your limits, and certifies them.

Try a ready-made problem:
  clearance zoo                        list the problems
  clearance optimum inventory          the best policy within the limit, proven
  clearance frontier inventory         what the limit costs
  clearance solve inventory --out run  learn a policy, and write a run folder
  clearance report run                 an HTML report about that run

Use your own problem in place of "inventory":
  a model file    plant.csv, plant.npz, plant.drn, plant.umb
  an environment  gym:ENV_ID, or package.module:factory
Start with "clearance check PROBLEM".

All commands: clearance --help. One command: clearance solve --help.
"""


def epilog(command: str) -> str:
    """Return the text below the flags of a command: examples and exit statuses."""
    examples = "".join(f"  {line}\n" for line in EXAMPLES[command])
    return f"examples:\n{examples}\n{EXIT_STATUS}"
