"""The report: its numbers are those of the run, everything from the user is text, bad folders are named in one line."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from folders import HOSTILE, hostile_run, seal, simulator_run, small_run, solved
from hypothesis import given
from hypothesis import strategies as st

import clearance as cl
from clearance.cli import command_line
from clearance.reporting import curves, svg_plots
from clearance.reporting.html_elements import document, el
from clearance.reporting.report_figures import number
from clearance.reporting.run_view import read_view


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("runs") / "run")


class Page(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data + " "


# ------------------------------------------------------------------------------------------------------- the numbers


def test_a_curve_keeps_means_ranges_and_the_average_so_far() -> None:
    rng = np.random.default_rng(0)
    steps, y = rng.integers(1, 9, 1000), rng.normal(size=1000)
    found = curves.curve(steps, y, bins=10)
    assert len(found.x) == 10 and found.x[-1] == steps.sum()
    assert np.allclose(found.mean, y.reshape(10, 100).mean(1))
    assert np.allclose(found.low, np.quantile(y.reshape(10, 100), 0.05, axis=1))
    assert np.allclose(found.high, np.quantile(y.reshape(10, 100), 0.95, axis=1))
    assert np.allclose(found.so_far, [y[: 100 * n].mean() for n in range(1, 11)])
    alone = curves.curve(np.array([7]), np.array([2.5]))
    assert (alone.x[0], alone.mean[0], alone.so_far[0]) == (7.0, 2.5, 2.5)


@given(st.floats(-1e9, 1e9), st.floats(1e-9, 1e9))
def test_ticks_are_round_few_and_inside(low: float, width: float) -> None:
    high = low + width
    if not high - low > 1e-6 * abs(low):
        return
    found = curves.ticks(low, high)
    assert 2 <= len(found) <= 7
    assert all(low - 1e-6 * width <= t <= high + 1e-6 * width for t in found)
    step = np.diff(found).mean()
    assert np.allclose(np.diff(found), step)
    lead = step / 10.0 ** np.floor(np.log10(step * (1 + 1e-9)))
    assert min(abs(lead - m) for m in (1, 2, 5, 10)) < 1e-6


@pytest.mark.parametrize(("x", "text"), [(0.25, "0.25"), (-3.0, "−3"), (1.45e-8, "1.45·10⁻⁸"), (None, "—"),
                                         (-2e22, "−2·10²²"), (1234567.0, "1.23457·10⁶")])  # fmt: skip
def test_numbers_are_for_people(x: float | None, text: str) -> None:
    assert number(x) == text


@pytest.mark.parametrize(("x", "text"), [(0.0, "0"), (1500.0, "1.5k"), (-2e6, "−2M"), (0.05, "0.05"), (3e12, "3e+12")])
def test_axes_have_short_numbers(x: float, text: str) -> None:
    assert svg_plots.short(x) == text


def test_points_stand_where_the_data_say() -> None:
    axes = svg_plots.Axes((0.0, 10.0), (-1.0, 1.0), "x", "y")
    assert axes.px(0.0) == svg_plots.LEFT and axes.px(10.0) == svg_plots.WIDTH - svg_plots.RIGHT
    assert axes.py(-1.0) == svg_plots.HEIGHT - svg_plots.BOTTOM and axes.py(1.0) == svg_plots.TOP


def test_a_decision_needs_the_first_part_only(tmp_path: Path) -> None:
    """Problem, verdict, limits with their price, other limits and the policy stand in sentences before all tables."""
    folder = tmp_path / "r"
    words = ["solve", "inventory", "--K", "300", "--N", "20", "--out", str(folder)]
    assert command_line.main(words) == 0
    page = Page(cl.report(folder))
    title, first = page.text.split("clearance", 1)[0], page.text.partition("For engineers")[0]
    assert "inventory: report" in title and "in a finite model with 6 states and 6 actions" in first
    assert "Limits: lost sales ≤ 1.65." in first and "Not covered: single episodes" in first
    best = cl.optimum(cl.zoo.inventory())
    assert f"lowering this limit by one unit costs at least {best.lam[0]:.4g} reward; raising it gains" in first
    free = cl.optimum(cl.zoo.inventory().replace(limit=1e6)).J_r
    assert f"Without this limit the best reward would be {number(free)}" in first and "The strictest limit" in first
    assert "stock 2 (order-0 with 0.5" in first and "J_g" not in first and "J_gi" not in first


def test_the_certificate_is_shown_with_its_numbers(run: Path) -> None:
    page, said = Page(cl.report(run)), json.loads((run / "certificate.json").read_text())
    assert f"{said['verdict']}" in page.text and said["message"] in page.text and said["scope"] in page.text
    best = cl.optimum(cl.zoo.altman_queue_discounted())
    for x in (said["J_r"], *said["J_g"], *said["slack"], *said["J_lower"], *said["J_upper"], best.J_r, *best.lam):
        assert number(x) in page.text
    assert number(best.bound - said["J_r"]) in page.text
    weights = np.load(run / "policy.npz")["weights"]
    assert all(f"{w:.2%}" in page.text for w in weights) or len(weights) == 1
    assert "started in Python" in page.text and "seed=0" in page.text


def test_the_page_needs_nothing_and_says_so(run: Path) -> None:
    page = Page(cl.report(run))
    assert not [t for t, _ in page.tags if t in ("script", "img", "iframe", "object", "embed")]
    links = [v for _, a in page.tags for k, v in a.items() if k in ("href", "src", "action", "data")]
    assert links == ["data:,"]
    rule = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert rule and rule.startswith("default-src 'none'")
    assert "url(http" not in (run / "report.html").read_text("utf-8")
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))


def test_the_command_is_shown_word_for_word(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    argv = ["solve", "two-state", "--K", "20", "--N", "5", "--seed", "7"]
    assert command_line.main([*argv, "--out", str(folder)]) == 0
    shown = re.search(r"clearance solve two-state[^<\n]*", (cl.report(folder)).read_text("utf-8"))
    assert shown and sorted(shown[0].split()) == sorted(["clearance", *argv])


def test_a_run_on_a_simulator(tmp_path: Path) -> None:
    """Its numbers, what J means, the network in words; no gap and no price, and no bound where there is none."""
    folder = simulator_run(tmp_path / "robot")
    page, said = Page(cl.report(folder)), json.loads((folder / "certificate.json").read_text())
    assert said["J_lower"][0] is None and said["J_upper"][0] is None
    for x in (said["J_r"], *said["J_g"], *said["slack"], *said["J_lower"][1:], *said["J_upper"][1:], *said["lam"]):
        assert number(x) in page.text
    assert "over the first 1000 steps of an episode" in page.text and "samples, confidence 0.99" in page.text
    assert "gap to the optimum, at most" not in page.text and "Not shown: it needs a finite model" in page.text
    assert "inf" not in re.sub(r"infinit|inform|infeasib", "", page.text) and "nan" not in page.text.lower()
    assert "1,360,000" in page.text and "started in Python" in page.text
    two = simulator_run(tmp_path / "other", K=30)
    assert "of one problem" in Page(cl.report([folder, two], tmp_path / "two.html")).text


def test_the_same_run_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    assert cl.report(run, tmp_path / "a.html").read_bytes() == cl.report(run, tmp_path / "b.html").read_bytes()


# ------------------------------------------------------------------------------------------------------ kinds of runs


def test_a_problem_without_limits(tmp_path: Path) -> None:
    two = cl.zoo.two_state()
    free = cl.CMDP(two.P, two.r, rho=two.rho, gamma=two.gamma)
    page = Page(cl.report(solved(free, tmp_path / "free", K=20)))
    assert "the problem has no limits" in page.text


def test_a_large_model_says_what_is_left_out(tmp_path: Path) -> None:
    grid = cl.zoo.grid_obstacles(size=14)
    page = Page(cl.report(solved(grid, tmp_path / "grid", K=3)))
    assert "--price computes it all the same" in page.text and "Not drawn" in page.text


def test_the_price_can_be_left_out(run: Path, tmp_path: Path) -> None:
    with_price, without = cl.report(run, tmp_path / "a.html"), cl.report(run, tmp_path / "b.html", price=False)
    assert "Price of “service”" in Page(with_price).text and "Price of “service”" not in Page(without).text


def test_one_iteration_is_enough_for_a_report(tmp_path: Path) -> None:
    assert "Reward" in Page(cl.report(solved(cl.zoo.two_state(), tmp_path / "one", K=1, N=1))).text


def test_a_run_without_certificate_is_called_unfinished(run: Path, tmp_path: Path) -> None:
    copy = copied(run, tmp_path)
    for name in ("certificate.json", "policy.npz"):
        (copy / name).unlink()
    seal(copy)
    page = Page(cl.report(copy))
    assert "UNFINISHED" in page.text and "CERTIFIED" not in page.text


def test_several_runs_need_a_name_and_share_their_axes(run: Path, tmp_path: Path) -> None:
    other = small_run(tmp_path / "other", seed=1)
    with pytest.raises(cl.InputError, match="out is missing"):
        cl.report([run, other])
    page = Page(cl.report([run, other], tmp_path / "both.html"))
    assert "the same axes" in page.text and "Comparison of 2 runs" in page.text
    ticks = re.findall(r'class="end tick">([^<]*)<', (tmp_path / "both.html").read_text("utf-8"))
    assert ticks.count(ticks[0]) >= 2
    with pytest.raises(cl.InputError, match="1 to 12"):
        cl.report([run] * 13, tmp_path / "many.html")


# ------------------------------------------------------------------------------------------------- hostile and broken


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    path = cl.report(hostile_run(tmp_path / "a&b"))
    assert HOSTILE not in path.read_text("utf-8")
    assert HOSTILE in Page(path).text and "a&b" in Page(path).text


@given(st.text())
def test_no_text_becomes_markup(text: str) -> None:
    made = document(el("html", el("p", text, title=text)))
    page = HTMLParser()
    seen: list[str] = []
    page.handle_starttag = lambda tag, attrs: seen.append(tag)  # type: ignore[method-assign]
    page.feed(made.decode("utf-8"))
    assert seen == ["html", "p"]


def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy", ignore=shutil.ignore_patterns("*.html")))


ALTERED = [
    ("verdict", "SAFE"), ("verdict", ["CERTIFIED"]), ("J_r", "many"), ("J_r", True), ("J_g", [1.0]), ("b", None),
    ("slack", {}), ("J_lower", [0.0]), ("J_upper", [1e999] * 3), ("bound", "x"), ("lam", [1.0]),
    ("complementarity", [None, None]), ("delta", []), ("worst_component_slack", {}), ("greedy_verdict", 3),
    ("worst_slack", {}), ("mode", 3),  # as version 0.1 called them
    ("evidence", None), ("components", 0), ("message", []), ("interval", [1]),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), ALTERED)
def test_an_altered_certificate_is_refused_by_field(run: Path, tmp_path: Path, key: str, value: object) -> None:
    """Even where the manifest was made to fit."""
    named = {"worst_slack": "worst_component_slack", "mode": "greedy_verdict"}.get(key, key)
    copy = copied(run, tmp_path)
    said = json.loads((copy / "certificate.json").read_text()) | {key: value}
    (copy / "certificate.json").write_text(json.dumps(said))
    seal(copy)
    with pytest.raises(cl.InputError, match=rf"certificate.json: {named} "):
        read_view(copy)


def test_the_command_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.html"
    assert command_line.main(["report", str(run), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["out"] == str(out) and out.stat().st_size > 20_000
    assert command_line.main(["report", str(run)]) == 0 and (run / "report.html").exists()


@pytest.mark.parametrize("case", ["nothing", "file", "empty", "suffix", "folder", "two"])
def test_bad_command_lines_are_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    argv = {
        "nothing": ["missing"],
        "file": [str(tmp_path / "file")],
        "empty": [str(tmp_path / "empty")],
        "suffix": [str(run), "--out", str(tmp_path / "r.pdf")],
        "folder": [str(run), "--out", str(tmp_path / "no" / "r.html")],
        "two": [str(run), str(run)],
    }[case]
    assert command_line.main(["report", *argv]) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1 and said.err.startswith("clearance: ")
    assert not list(tmp_path.glob("**/*.html"))
