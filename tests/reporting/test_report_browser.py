"""The report in a real browser: it opens offline, follows scheme and width, and shows hostile names as text."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, browser  # noqa: F401
from folders import HOSTILE, hostile_run, simulator_run, small_run

import clearance as cl


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cl.report(small_run(tmp_path_factory.mktemp("report") / "run"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    return cl.report([hostile_run(folder / "<script>alert(2)<"), small_run(folder / "tame")], folder / "both.html")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [320, 375, 1200])
def test_it_loads_in_silence_and_fits(browser: Browser, page: Path, width: int, dark: bool) -> None:  # noqa: F811
    browser.open(page, width=width, dark=dark)
    assert browser.console() == []
    assert browser.requests() == [page.resolve().as_uri()]  # and nothing else: no font, no script, no icon
    assert browser.overflow() <= 0
    assert browser.ask("document.querySelector('.verdict').innerText").endswith("CERTIFIED")
    ground = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == dark


def test_the_figures_are_there_and_drawn(browser: Browser, page: Path) -> None:  # noqa: F811
    """Reward, two slacks, multipliers, two prices, and one heat map per component; each with a text alternative."""
    browser.open(page)
    charts = browser.ask(
        "[...document.querySelectorAll('svg.chart')].map(s => ({label: s.getAttribute('aria-label'), role: "
        "s.getAttribute('role'), w: s.getBoundingClientRect().width, h: s.getBoundingClientRect().height, "
        "marks: s.querySelectorAll('polyline, .heat').length}))"
    )
    assert len(charts) >= 7
    assert all(c["role"] == "img" and len(c["label"]) > 60 for c in charts)
    assert all(c["w"] > 300 and c["h"] > 80 and c["marks"] >= 1 for c in charts)
    # What is drawn lies in the frame, and takes up a good part of it.
    box = browser.ask("(b => [b.width, b.height])(document.querySelector('polyline.c0').getBBox())")
    assert 200 < box[0] < 440 and 50 < box[1] < 270


def test_no_column_of_the_certificate_is_cut_on_a_phone(browser: Browser, page: Path) -> None:  # noqa: F811
    """Its rows become cards with the heads beside the values; tables that scroll say so."""
    browser.open(page, width=390)
    cells = browser.ask("[...document.querySelectorAll('.by-card td')].map(c => c.getBoundingClientRect().right)")
    assert len(cells) >= 15 and max(cells) <= 390
    heads = "getComputedStyle(document.querySelector('.by-card td'), '::before').content"
    assert browser.ask(heads) == '"value"'
    hints = "[...document.querySelectorAll('.hint')].every(h => getComputedStyle(h).display == 'block')"
    assert browser.ask(hints)
    browser.open(page, width=1280)
    assert browser.ask("getComputedStyle(document.querySelector('.hint')).display") == "none"


def test_tables_have_heads_and_text_has_contrast(browser: Browser, page: Path) -> None:  # noqa: F811
    for dark in (False, True):
        browser.open(page, dark=dark)
        assert browser.ask(
            "[...document.querySelectorAll('table')].every(t => t.caption && t.tHead.querySelector('th[scope=col]') && "
            "[...t.tBodies[0].rows].every(r => r.cells[0].matches('th[scope=row]')))"
        )
        for name in (".verdict", "figcaption", ".scope", "summary", "td"):
            assert contrast(browser, name) >= 4.5, (name, dark)


def contrast(browser: Browser, selector: str) -> float:  # noqa: F811
    """WCAG's ratio between an element's colour and the ground behind it."""
    text, ground = browser.ask(
        f"(e => {{ let style = getComputedStyle, c = style(e).color; while (e && /\\(0, 0, 0, 0\\)|transparent/.test("
        f"style(e).backgroundColor)) e = e.parentElement; return [c, style(e).backgroundColor] }})"
        f"(document.querySelector({selector!r}))"
    )
    light, dim = sorted((luminance(text), luminance(ground)), reverse=True)
    return (light + 0.05) / (dim + 0.05)


def luminance(rgb: str) -> float:
    c = np.array(re.findall(r"[\d.]+", rgb)[:3], float) / 255
    return float(np.where(c <= 0.03928, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])


def test_hostile_names_are_text(browser: Browser, hostile: Path) -> None:  # noqa: F811
    browser.open(hostile, width=375)
    assert browser.console() == [] and browser.requests() == [hostile.resolve().as_uri()]
    assert browser.ask("document.querySelectorAll('script, iframe, object, img, [onload], [onerror]').length") == 0
    assert browser.ask("window.hacked === undefined")
    shown = browser.ask("document.body.innerText")
    assert HOSTILE in shown and "<script>alert(2)<" in shown
    assert browser.overflow() <= 0


def test_runs_stand_side_by_side(browser: Browser, hostile: Path) -> None:  # noqa: F811
    """In two columns on a screen, one below the other on a phone; the first table compares them."""
    browser.open(hostile)
    places = "[...document.querySelectorAll('article')].map(a => a.getBoundingClientRect().x)"
    assert len(set(browser.ask(places))) == 2
    assert browser.ask("document.querySelector('table').tBodies[0].rows.length") == 2
    browser.open(hostile, width=375)
    assert len(set(browser.ask(places))) == 1
    assert browser.overflow() <= 0


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    runs = [simulator_run(folder / "robot", name=HOSTILE), small_run(folder / "queue")]
    return cl.report(runs, folder / "mixed.html")


@pytest.mark.parametrize(("width", "dark"), [(320, True), (1200, False)])
def test_a_simulator_beside_a_model(browser: Browser, mixed: Path, width: int, dark: bool) -> None:  # noqa: F811
    """Silent, fitting, hostile names as text; no optimum and no heat map where there is no model."""
    browser.open(mixed, width=width, dark=dark)
    assert browser.console() == [] and browser.requests() == [mixed.resolve().as_uri()] and browser.overflow() <= 0
    assert browser.ask("document.querySelectorAll('script, b, iframe, img, [onload], [onerror]').length") == 0
    words = browser.ask("[...document.querySelectorAll('.verdict')].map(v => v.innerText)")
    assert len(words) == 2 and all(w.endswith("CERTIFIED") for w in words)
    robot, queue = (f"document.querySelectorAll('article')[{n}]" for n in (0, 1))
    charts = browser.ask(f"[...{robot}.querySelectorAll('svg.chart')].map(s => s.getAttribute('aria-label'))")
    assert len(charts) == 4 and all("optimum" not in label for label in charts) and HOSTILE in charts[1]
    assert browser.ask(f"{queue}.querySelectorAll('svg.chart').length") >= 7
    shown = browser.ask(f"{robot}.textContent")
    assert "A mixture of 2 networks (categorical, hidden layers: none)" in shown and "robot <b>" in shown
    box = browser.ask(f"(b => [b.width, b.height])({robot}.querySelector('polyline.c0').getBBox())")
    assert 200 < box[0] < 440 and 50 < box[1] < 270


def test_a_bad_page_is_noticed(browser: Browser, tmp_path: Path) -> None:  # noqa: F811
    """What notices nothing would pass everything."""
    bad = tmp_path / "bad.html"
    bad.write_text("<div style='width: 2000px'>x</div><img src='missing.png'><script>console.error('oh')</script>")
    browser.open(bad, width=375)
    assert browser.overflow() > 0
    assert any("oh" in line for line in browser.console())
    assert any(url.endswith("missing.png") for url in browser.requests())
