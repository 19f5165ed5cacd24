"""Pages that are made from the code when the site is built: the command line, the names of the library, the zoo."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1] / "src"))

import docstrings  # noqa: E402

import clearance as cl  # noqa: E402
from clearance.cli import command_line as cli  # noqa: E402
from clearance.runs import method_settings  # noqa: E402

DOCS = HERE.parent

# ------------------------------------------------------------------------------------------------- the command line


def command_line() -> str:
    """Every command with its arguments, as argparse has them."""
    top = cli._parser()
    commands = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    about = {a.dest: a.help for a in commands._choices_actions}
    parts = ["# The command line", (cli.__doc__ or "").split("\n\n", 1)[1].strip()]
    for name, parser in commands.choices.items():
        usage = re.sub(r"\x1b\[[0-9;]*m", "", parser.format_usage()).removeprefix("usage: ").strip()
        parts += [
            f"## clearance {name}",
            f"{_sentence(about[name] or '')}",
            f"```text\n{usage}\n```",
            _arguments(parser),
        ]
    told = "Flags of `solve` and `sweep`. `clearance solve --method NAME --help` shows those of one method."
    return "\n\n".join([*parts, "## Settings of the methods", told, settings()]) + "\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _arguments(parser: argparse.ArgumentParser) -> str:
    rows = ["| argument | |", "|---|---|"]
    for a in parser._actions:
        if "--help" not in a.option_strings and a.help != argparse.SUPPRESS:
            rows.append(f"| {_argument(a)} | {_cell(a.help or '')}{_choices(a)} |")
    return "\n".join(rows)


def settings() -> str:
    """The settings of the methods: which method has which, with its default."""
    rows = ["| setting | | methods and their defaults |", "|---|---|---|"]
    for s in method_settings.built_in_settings().values():
        defaults = ", ".join(f"{name}: {method_settings._shown(value)}" for name, value in s.defaults.items())
        rows.append(f"| `--{s.name}` | {_cell(s.help)} | {_cell(defaults)} |")
    return "\n".join(rows)


def _argument(a: argparse.Action) -> str:
    takes = "" if a.nargs == 0 else f" {a.metavar or a.dest.upper()}"
    return ", ".join(f"`{flag}{takes}`" for flag in a.option_strings) or f"`{a.metavar or a.dest}`"


def _choices(a: argparse.Action) -> str:
    return f"; one of {', '.join(f'`{c}`' for c in a.choices)}" if a.choices else ""


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("*", r"\*").replace("%%", "%")


# ------------------------------------------------------------------------------------------------- the library's names

# Groups of the public names, one page each: the rooms or modules that belong to them (the longest one that fits the
# home of a name counts), and an example, which the tests run.
GROUPS: dict[str, tuple[tuple[str, ...], str]] = {
    "Finite models": (
        ("finite.cmdp", "finite.evaluation"),
        "P = [[[0.9, 0.1], [0.6, 0.4]], [[1, 0], [1, 0]]]\n"
        "model = cl.CMDP(P, [[6, 10], [0, 0]], cost=[[[0.1, 0.4], [0, 0]]], limit=3, gamma=0.95)\n"
        "print(model)\nprint(cl.evaluate(model, [[1, 0], [1, 0]]).J.round(2))",
    ),
    "Models in, policies out": (
        ("exchange",),
        "model = cl.zoo.inventory()\ncl.save_model(model, 'inventory.csv')\n"
        "cl.save_policy(cl.optimum(model), 'policy.json', model)\nprint(cl.load_model('inventory.csv', gamma=0.95))",
    ),
    "Simulators": (
        ("simulator.gymnasium_envs", "simulator.jax_envs", "simulator.remote_lanes", "core.spaces", "core.tail_limits"),
        "def tilt(obs, action, next_obs, info):\n    return float(abs(next_obs[2]) > 0.1)\n\n\n"
        "problem = cl.gymnasium('CartPole-v1', constraints=tilt, limits=5.0, horizon=200, bounds=(0, 1))\n"
        "print(problem.statement.meaning)",
    ),
    "Optimum and prices": (
        ("exact.optimum", "exact.episode_optimum", "exact.feasibility", "exact.infeasibility", "studies.frontier"),
        "model = cl.zoo.inventory()\nprint(cl.optimum(model))\nprint(cl.frontier(model, points=5))",
    ),
    "Solve, certify, resume": (
        (
            "runs.solve",
            "runs.certify",
            "runs.resume",
            "runs.solution",
            "runs.evaluate",
            "certificates",
            "runs.certificate_check",
        ),
        "solution = cl.solve(cl.zoo.two_state(), cl.RegularisedCNPGPD(K=100, N=10))\n"
        "print(solution.certificate.verdict)",
    ),
    "Methods": (
        ("learning.methods", "exact.model_based", "learning.direction"),
        "solution = cl.solve(cl.zoo.two_state(), cl.CRPO(K=100, alpha=0.05))\nprint(solution.certificate.verdict)",
    ),
    "Policies": (
        ("finite", "simulator.policies"),
        "model = cl.zoo.two_state()\nmixture = cl.Mixture.single(cl.optimum(model).policy)\n"
        "print(mixture.J(model).round(3))",
    ),
    "Samplers": (
        ("finite.samplers",),
        "model = cl.zoo.two_state()\nexact = cl.Exact(model, cl.softmax(model.S, model.A))\n"
        "print(cl.solve(model, cl.CNPGPD(K=20, direction=cl.Tabular()), sampler=exact).certificate.verdict)",
    ),
    "Runs and reports": (
        ("learning.trace", "runs.run_reader", "reporting"),
        "cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=50), out='run')\nrun = cl.run.load('run')\n"
        "print(run.status, len(run.trace), cl.report('run'))",
    ),
    "Policies in use": (
        ("deploy",),
        "cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=200), out='run')\n"
        "policy = cl.load_policy('run', seed=0)\npolicy.reset()\nprint(policy.certificate.verdict, policy.act(0))",
    ),
    "Many runs": (
        ("studies", "cluster"),
        "found = cl.sweep(cl.zoo.two_state(), {'seed': range(2)}, out='grid', method='cnpgpd', K=50)\n"
        "print([row['verdict'] for row in found.rows])",
    ),
    "Errors and warnings": (
        ("core.errors", "runs"),
        "try:\n    cl.CMDP([[[0.5], [1.0]]], [[1.0, 0.0]], gamma=0.5)\nexcept cl.InputError as e:\n    print(e)",
    ),
}


def api_index() -> str:
    """All public names by group, with links."""
    parts = [
        "# API",
        "Use `import clearance as cl`. Every name below is `cl.NAME`. Shapes stand in brackets: `[S, A]`.",
    ]
    for title in GROUPS:
        names = ", ".join(f"[`{n}`](api/{slug(title)}.md#{_home(n)})" for n in names_of(title))
        parts.append(f"**[{title}](api/{slug(title)}.md)**: {names}")
    return "\n\n".join(parts) + "\n"


def api(title: str) -> str:
    """The page of a group: an example, then each name; mkdocstrings fills in signature and docstring."""
    example = f"```python\nimport clearance as cl\n\n{GROUPS[title][1]}\n```"
    return "\n\n".join([f"# {title}", example, *(f"::: {_home(n)}" for n in names_of(title))]) + "\n"


def names_of(title: str) -> list[str]:
    return [n for n in cl.__all__ if n in cl._HOME and _group(cl._HOME[n]) == title]


def slug(title: str) -> str:
    return re.sub(r"\W+", "_", title.lower())


def _group(home: str) -> str:
    """The group of a module: that of its longest prefix."""
    fits = [(len(p), title) for title, (rooms, _) in GROUPS.items() for p in rooms if f"{home}.".startswith(f"{p}.")]
    if not fits:
        raise ValueError(f"GROUPS in docs/hooks/pages.py has no group for names of clearance.{home}")
    return max(fits)[1]


def _home(name: str) -> str:
    """The dotted name of a public name, where it is defined."""
    return f"clearance.{cl._HOME[name]}.{name}"


# --------------------------------------------------------------------------------------------------------------- zoo


def zoo_page(name: str) -> str:
    """The page of a zoo name: what zoo.md says of it, its optimum, and its function."""
    return _model(name, _sections((DOCS / "reference" / "zoo.md").read_text("utf-8")))


def _sections(text: str) -> dict[str, str]:
    """The sections of zoo.md by the function that they are about."""
    found = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        about = re.search(r"`clearance\.zoo\.(\w+)`", part)
        if about:
            found[about[1]] = part
    return found


def _model(name: str, sections: dict[str, str]) -> str:
    cmdp, function = cl.zoo.MODELS[name](), _function(name)
    title, _, told = sections.get(function.__name__, f"{name}\n").partition("\n")
    best = cl.optimum(cmdp)
    rows = [("states, actions", f"{cmdp.S}, {cmdp.A}"), ("γ", f"{cmdp.gamma:g}"), ("J_r*", f"{best.J_r:.9g}")]
    rows += [("Slater margin", f"{best.attained_margin:.6g}")]
    columns = (cmdp.names, cmdp.b, cl.evaluate(cmdp, best.policy).J[1:], best.lam)
    limits = [f"| {n} | {b:.6g} | {x:.6g} | {lam:.6g} |" for n, b, x, lam in zip(*columns, strict=True)]
    return "\n\n".join(
        [
            f"# {title}",
            told.strip().replace("](../figures/", "](../../figures/"),
            "## Solved",
            "\n".join(["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows)]).replace("J_r*", r"J_r\*"),
            "\n".join([r"| limit | b | J_g | λ\* |", "|---|---|---|---|", *limits]),
            "Computed when this page was built, by linear programming; J_g ≥ b.",
            "## Try it",
            f"```console\n$ clearance optimum {name}\n$ clearance frontier {name} --points 5\n```",
            f"```python\nimport clearance as cl\n\nbest = cl.optimum(cl.zoo.MODELS[{name!r}]())\n```",
            f"## {function.__name__}",
            f"```text\n{function.__name__}{inspect.signature(function)}\n```",
            docstrings.markdown(inspect.getdoc(function) or ""),
        ]
    )


def _function(name: str) -> Any:
    made = cl.zoo.MODELS[name]
    return cl.zoo.frozen_lake if made.__name__ == "<lambda>" else made


# -------------------------------------------------------------------------------------------------------------- hooks


def made() -> dict[str, str]:
    """All generated pages by their path."""
    return (
        {"reference/command_line.md": command_line(), "reference/api.md": api_index()}
        | {f"reference/api/{slug(title)}.md": api(title) for title in GROUPS}
        | {f"development/{name.lower()}.md": _from_root(name) for name in ("CONTRIBUTING", "CHANGELOG")}
        | {f"reference/zoo/{name}.md": zoo_page(name) for name in cl.zoo.MODELS}
    )


def _from_root(name: str) -> str:
    """A page that lies beside docs/, with its links as seen from docs/development."""
    text = (DOCS.parent / f"{name}.md").read_text("utf-8")
    return re.sub(r"\]\(docs/", "](../", text)


def on_config(config: Any) -> Any:
    """Every page stands in the table of contents: there is no bin for the others."""
    known = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    lost = sorted({str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")} - known)
    if lost:
        raise ValueError(f"nav of mkdocs.yml lacks {', '.join(lost)}")
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File, InclusionLevel

    for path, text in made().items():
        hidden = path.startswith(("reference/zoo/", "reference/api/"))
        level = InclusionLevel.NOT_IN_NAV if hidden else InclusionLevel.INCLUDED
        files.append(File.generated(config, path, content=text, inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The table of the zoo leads to its pages; files beside docs/ are not on the site, and only named."""
    if page.file.src_uri == "reference/zoo.md":
        known = "|".join(sorted(cl.zoo.MODELS, key=len, reverse=True))
        markdown = re.sub(rf"^(\| |- .*?)`({known})`", r"\1[`\2`](zoo/\2.md)", markdown, flags=re.MULTILINE)
        markdown = re.sub(rf"^(- \[.*?, )`({known})`", r"\1[`\2`](zoo/\2.md)", markdown, flags=re.MULTILINE)
    outside = r"\]\((?:\.\./)+(?!figures/)(?:benchmarks|examples|tests|src|README|SECURITY|LICENSE)[^)]*\)"
    return mathematics(re.sub(rf"\[([^\]]+){outside}", r"\1", markdown))


def mathematics(markdown: str) -> str:
    """LaTeX in blocks ```math and in $`…`$ as MathML, which browsers draw without a script."""
    from latex2mathml.converter import convert

    display = re.compile(r"^```math\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
    markdown = display.sub(
        lambda m: f"<div style='overflow: auto hidden; padding: .4em 0'>{convert(m[1], display='block')}</div>",
        markdown,
    )
    # A line that begins with <math would be taken for a block.
    return re.sub(r"(\n?)\$`(.+?)`\$", lambda m: (" " if m[1] else "") + convert(m[2]), markdown)
