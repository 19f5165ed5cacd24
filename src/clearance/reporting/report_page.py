"""Build the page of a report: verdict, certificate, figures, settings. Several runs are compared, each in a column."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib import resources
from typing import Any
from xml.etree.ElementTree import Element

from clearance import __version__
from clearance.certificates.price_words import PRICE, prices
from clearance.certificates.verdict_words import as_written
from clearance.core.criterion import short_words
from clearance.core.labels import label
from clearance.reporting import report_figures
from clearance.reporting.html_elements import document, el
from clearance.reporting.number_words import number
from clearance.reporting.report_figures import table
from clearance.reporting.report_words import (
    limits_words,
    policy_sentences,
    problem_name,
    problem_words,
    verdict_words,
)
from clearance.reporting.run_view import View
from clearance.runs.start_file import BY_RULE

MARKS = {"CERTIFIED": "✓", "VIOLATED": "✗", "UNDECIDED": "?", "UNFINISHED": "…"}
# Nothing is fetched and no script runs, whatever the page contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
COMMANDS = (["clearance", "solve"],)  # that write run folders
ICON = "data:,"  # or the browser would ask for /favicon.ico


def page(views: Sequence[View]) -> bytes:
    """Return a report on these runs as one self-contained HTML document."""
    title = f"{problem_name(views[0])}: report" if len(views) == 1 else f"Comparison of {len(views)} runs"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="generator", content=f"clearance {__version__}"),
        el("title", title),
        el("link", rel="icon", href=ICON),
        style(),
    )
    parts = [_run(views[0], "r0", _ranges(views), alone=True)] if len(views) == 1 else _several(views, title)
    foot = el("footer", el("p", f"Written by clearance {__version__}. This file needs no network and runs no script."))
    return document(el("html", head, el("body", el("main", *parts), foot), lang="en"))


def style() -> Element:
    sheet = Element("style")
    sheet.text = resources.files("clearance.reporting").joinpath("style.css").read_text("utf-8")
    return sheet


def _several(views: Sequence[View], title: str) -> list[Element]:
    shared = _ranges(views) if _same_problem(views) else None
    columns = [_run(v, f"r{n}", shared or _ranges([v]), alone=False) for n, v in enumerate(views)]
    note = "The runs are of one problem: their figures have the same axes." if shared else (
        "The runs are of different problems: their figures have axes of their own."
    )  # fmt: skip
    return [el("header", el("h1", title), el("p", note)), _comparison(views), el("div", *columns, class_="columns")]


def _same_problem(views: Sequence[View]) -> bool:
    """Return whether all runs have the same problem: same limits, same optimum and, on simulators, same description."""
    known = (v.statement and (v.statement.name, v.statement.meaning) for v in views)
    found = zip(views, known, strict=True)
    return len({(v.names, tuple(v.b), None if v.best is None else v.best.J_r, words) for v, words in found}) == 1


def _ranges(views: Sequence[View]) -> list[tuple[float, float]]:
    return [report_figures.range_of(views, i) for i in range(1 + min(len(views[0].names), report_figures.MOST_LIMITS))]


def _comparison(views: Sequence[View]) -> Element:
    heads = ("run", "verdict", label("J_r"), label("gap"), "smallest slack", "method", label("env_steps"), "seed")
    rows = [(v.title, _word(v), *_numbers(v), _method(v), f"{_steps(v):,}", _seed(v)) for v in views]
    return el("section", table(heads, rows, "The runs side by side", cards=True))


def _numbers(view: View) -> tuple[str, str, str]:
    said = view.certificate
    return number(said.get("J_r")), number(view.gap), number(min(said.get("slack", ()), default=None))


def _word(view: View) -> str:
    return view.certificate.get("verdict", "UNFINISHED")


def _steps(view: View) -> int:
    return int(view.settings.get("env_steps") or view.trace.steps.sum())


def _method(view: View) -> str:
    method = view.settings["run"].get("method")
    return str(method.get("name", "—")) if isinstance(method, dict) else "—"


def _seed(view: View) -> str:
    return str(view.settings["asked"].get("seed", "—"))


def _run(view: View, name: str, ranges: Sequence[tuple[float, float]], *, alone: bool) -> Element:
    """Return the article about one run: at first, sentences for a decision; then numbers and figures for engineers.

    `name` makes ids in the page unique; `ranges` are the vertical axes; `alone` says that the page has only this run.
    """
    heading = el("h1" if alone else "h2", problem_name(view) if alone else view.title)
    return el(
        "article",
        el("header", heading, *_verdict(view), _facts(view)),
        _section("The problem", *(el("p", line) for line in problem_words(view))),
        _section("What the verdict means", *(el("p", line) for line in verdict_words(view)[1:])),
        _limits(view),
        _section("What the policy does", *_policy_in_words(view)),
        el("p", "For engineers: numbers, figures and settings", class_="part"),
        _section("Certificate", _certificate(view)),
        _section(
            "Learning",
            el("p", "The iterates while learning, which may break limits; the verdict is about the chosen policy."),
            _cards([*report_figures.over_steps(view, name, ranges), report_figures.multipliers(view, name)]),
        ),
        _section("Price of safety", *_prices(view, name)),
        _section("Policy", *_policy(view)),
        _section("Settings", *_settings(view)),
        class_="alone" if alone else "beside",
    )


def _limits(view: View) -> Element | None:
    """Return the section on the limits: each with its value, its price and the rewards at other limits.

    Return None if there are no limits.
    """
    items = [el("li", el("strong", head), *(el("p", line) for line in lines)) for head, lines in limits_words(view)]
    return _section("The limits and what they cost", el("ul", *items, class_="limits")) if items else None


def _policy_in_words(view: View) -> list[Element]:
    lines = policy_sentences(view) or [_network(view) if view.statement is not None else "There is no policy yet."]
    return [el("p", line) for line in lines]


def _section(title: str, *parts: Element | str | None) -> Element:
    return el("section", el("h3", title), *parts)


def _cards(found: Sequence[Element | None]) -> Element:
    return el("div", *found, class_="cards")


def _verdict(view: View) -> list[Element]:
    word = _word(view)
    mark = el("span", MARKS.get(word, "?"), class_="mark", aria_hidden="true")
    return [el("p", mark, word, class_=f"verdict {word.lower()}"), el("p", verdict_words(view)[0])]


def _facts(view: View) -> Element:
    """Return the list of the run's most important numbers, below its verdict."""
    facts = [] if not view.certificate else _findings(view)
    facts.append((label("env_steps"), f"{_steps(view):,}", ""))
    items = [
        el("div", el("dt", k), el("dd", el("strong", v), el("small", note) if note else None)) for k, v, note in facts
    ]
    return el("dl", *items, class_="facts")


def _findings(view: View) -> list[tuple[str, str, str]]:
    said, gap = view.certificate, view.gap
    exact = said.get("evidence") == "exact"
    J_r = said["J_r"] if view.check is None or view.check.J_r is None else view.check.J_r
    share = "" if gap is None or J_r <= 0 else f"{J_r / (J_r + gap):.2%} of the optimum"
    facts = [(label("J_r"), number(said["J_r"]), share)]
    if gap is not None:
        facts.append((label("gap"), number(gap), ""))
    if said["slack"]:
        facts.append(("smallest slack", number(min(said["slack"])), "distance from the nearest limit"))
    return [
        *facts,
        (label("evidence"), "exact: proven" if exact else f"samples, confidence {1 - (said.get('delta') or 0):g}", ""),
    ]


def _certificate(view: View) -> Element:
    said = view.certificate
    if not said:
        return el("p", "None yet.")
    lam, product = prices(said), said.get("complementarity")
    low, high = ("proven at least", "proven at most") if said.get("evidence") == "exact" else ("at least", "at most")
    priced = [] if lam is None else [label("lam"), "λ·slack"]
    heads = ("", "value", low, high, "limit", "slack", *priced)
    lower, upper = said["J_lower"], said["J_upper"]
    none = ["—"] * (2 + len(priced))
    rows: list[Sequence[str]] = [(label("J_r"), number(said["J_r"]), number(lower[0]), number(upper[0]), *none)]
    for i, (name, cost) in enumerate(zip(view.names, view.costs, strict=True)):
        ends = sorted((as_written(lower[1 + i], cost=cost), as_written(upper[1 + i], cost=cost)))
        limit = f"{'≤' if cost else '≥'} {number(as_written(view.b[i], cost=cost))}"
        some = (number(x) for x in (as_written(said["J_g"][i], cost=cost), *ends))
        price = [] if lam is None else [number(lam[i]), number(product[i] if product else None)]
        rows.append((name, *some, limit, number(said["slack"][i]), *price))
    shown = table(heads, rows, "Values and limits", cards=True)
    return el("div", shown, *(el("p", n, class_="scope") for n in _notes(view)))


def _notes(view: View) -> list[str]:
    said = view.certificate
    if said.get("evidence") == "exact":
        return [f"Price λ: {PRICE}."] if prices(said) else []
    return [f"Bounds hold with confidence {1 - said['delta']:g} each, at any stopping time."] if said["delta"] else []


def _prices(view: View, name: str) -> list[Element]:
    if view.no_price or not view.prices:
        return [el("p", f"Not shown: {view.no_price or 'the solver gave up on this model'}.")]
    found = [
        report_figures.price(view, f, f"{name}-p{n}") for n, f in enumerate(view.prices[: report_figures.MOST_LIMITS])
    ]
    return [
        el("p", "The best reward that a policy can earn, for each value of one limit; the others stay as they are."),
        _cards(found),
    ]


def _policy(view: View) -> list[Element]:
    if view.statement is not None:
        return [el("p", _network(view))]
    if view.policy is None:
        return [el("p", "Not shown: there is none yet, or it is no table of a finite model.")]
    M, drawn = view.policy.M, report_figures.policies(view)
    how = f"A mixture of {M}: one is drawn at the beginning of an episode and followed to its end." if M > 1 else (
        "One policy that depends on the step." if view.policy.pi.ndim == 4 else "One stationary policy."
    )  # fmt: skip
    if not drawn:
        S, A = view.policy.pi.shape[-2:]
        limits = f"{report_figures.MOST_STATES} states and {report_figures.MOST_ACTIONS} actions"
        return [el("p", how), el("p", f"Not drawn: {S:,} states × {A} actions, drawn are up to {limits}.")]
    left = f" The {len(drawn)} of largest weight are shown." if len(drawn) < M else ""
    return [el("p", how + left), _cards(drawn)]


def _network(view: View) -> str:
    """Return a sentence that describes a policy network, which cannot be drawn as a table."""
    if not view.certificate:
        return "None yet."
    M, asked = view.certificate["components"], view.settings["asked"]["policy"].get("design")
    design = asked if isinstance(asked, dict) else {}
    layers = _plain(design.get("hidden")) or "none"
    kind = f"{_plain(design.get('kind'))}, hidden layers: {layers}"
    if str(view.certificate.get("origin") or "").startswith(BY_RULE):
        what = "one policy" if M == 1 else f"a mixture of {M} policies"
        return f"Chosen among networks ({kind}) and the rule that learning began from: {what}, as the scope above says."
    if M == 1:
        return f"One network ({kind}), with its actions drawn. It is in policy.npz."
    how = "one is drawn at the beginning of an episode and followed to its end"
    return f"A mixture of {M} networks ({kind}): {how}. They are in policy.npz."


def _settings(view: View) -> list[Element]:
    rows = [("run folder", view.title), *_about(view), *((key, _plain(value)) for key, value in _flat(view.settings))]
    return [
        el("h4", "Repeat this run"),
        _command_line(view),
        el("details", el("summary", "All settings"), table(("setting", "value"), rows, "Settings")),
    ]


def _about(view: View) -> list[tuple[str, str]]:
    """Return table rows (label, value) that describe the problem."""
    if view.cmdp is not None:
        return [
            ("states", f"{view.cmdp.S:,}"),
            ("actions", str(view.cmdp.A)),
            ("criterion", short_words(view.cmdp.full_criterion)),
        ]
    s = view.statement
    return [] if s is None else [("simulator", s.name), ("J", s.meaning)]


def _command_line(view: View) -> Element:
    """Return an element with the stored command, quoted for a shell.

    For a run started in Python, the element has a sentence on how to repeat the run. The command is read from the
    folder, which may come from a stranger: it is shown only if it is a `clearance` command.
    """
    command = view.settings["asked"].get("command")
    if not command:
        seed = _seed(view)
        return el("p", f"The run was started in Python: call solve with the settings below and seed={seed}.")
    if command[:2] not in COMMANDS:
        return el("p", "Not shown: the command in settings.json is not a command of clearance.")
    shown = el("pre", el("code", shlex.join(command)))
    return el("div", el("p", "This command comes from the run folder; read it before you run it."), shown)


def _flat(data: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Return nested settings as a flat list of (name, value); names are joined by dots and start with `before`."""
    found = []
    for key, value in data.items():
        found += _flat(value, f"{before}{key}.") if isinstance(value, dict) else [(f"{before}{key}", value)]
    return found


def _plain(value: Any) -> str:
    return ", ".join(_plain(v) for v in value) if isinstance(value, list) else "—" if value is None else str(value)
