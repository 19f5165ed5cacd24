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

# Rooms or modules of the public names, in the order of the page; the longest one that fits a name's home counts.
GROUPS = {
    "Finite models": ("finite.cmdp", "finite.evaluation"),
    "Models in, policies out": ("exchange",),
    "Simulators": ("simulator.gymnasium_envs", "simulator.jax_envs", "simulator.remote_lanes", "core.spaces"),
    "The optimum, and what limits cost": (
        "exact.optimum",
        "exact.feasibility",
        "exact.infeasibility",
        "studies.frontier",
    ),
    "Solve, certify, resume": ("runs.solve", "runs.certify", "runs.resume", "runs.solution", "certificates"),
    "Methods": ("learning.methods", "exact.model_based", "learning.direction"),
    "Policies": ("finite", "simulator.policies"),
    "Samplers": ("finite.samplers",),
    "Runs and reports": ("learning.trace", "runs.run_reader", "reporting"),
    "Policies in use": ("deploy",),
    "Many runs": ("studies", "cluster"),
    "Errors and warnings": ("core.errors", "runs"),
}


def api() -> str:
    """Every public name, grouped; mkdocstrings fills in signature and docstring."""
    parts = ["# The library", "`import clearance as cl`: every name below is `cl.NAME`. Shapes stand in brackets."]
    group = {name: _group(home) for name, home in cl._HOME.items()}
    for title in [*GROUPS, "More"]:
        names = [n for n in cl.__all__ if group.get(n) == title]
        if names:
            parts += [f"## {title}", *(f"::: {_home(n)}" for n in names)]
    return "\n\n".join(parts) + "\n"


def _group(home: str) -> str:
    """The group of a module: that of its longest prefix."""
    fits = [(len(p), title) for title, modules in GROUPS.items() for p in modules if f"{home}.".startswith(f"{p}.")]
    return max(fits)[1] if fits else "More"


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
        {"reference/command_line.md": command_line(), "reference/api.md": api()}
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
        level = InclusionLevel.NOT_IN_NAV if path.startswith("reference/zoo/") else InclusionLevel.INCLUDED
        files.append(File.generated(config, path, content=text, inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The table of the zoo leads to its pages; files beside docs/ are not on the site, and only named."""
    if page.file.src_uri == "reference/zoo.md":
        markdown = re.sub(r"^\| `([\w-]+)` \|", r"| [`\1`](zoo/\1.md) |", markdown, flags=re.MULTILINE)
    outside = r"\]\((?:\.\./)+(?!figures/)(?:benchmarks|examples|tests|src|README|SECURITY|LICENSE)[^)]*\)"
    return re.sub(rf"\[([^\]]+){outside}", r"\1", markdown)
