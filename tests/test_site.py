"""The documentation site: it builds offline with every link whole, its generated pages say what the code says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pages
import pytest
from browser import Browser, browser  # noqa: F401
from documents import blocks, parse, run_blocks
from documents import commands as commands_in

import clearance as cl
from clearance.cli import command_line as cli

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    env = os.environ | {
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    # Not --quiet: it hides warnings from --strict as well.
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_page_of_docs_is_on_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    for name in cl.zoo.MODELS:
        assert (site / "reference" / "zoo" / f"{name}.html").exists()


def test_nothing_on_the_site_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetched = re.findall(
            r"<(?:script|img|iframe|link)[^>]*?(?:src|href)=\"?(https?:[^\s\">]*)", page.read_text("utf-8")
        )
        assert not fetched, (page, fetched)


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "page",
    ["index.html", "reference/api/solve_certify_resume.html", "concepts/cmdp.html", "reference/zoo/inventory.html"],
)
def test_a_browser_is_content(browser: Browser, address: str, page: str) -> None:  # noqa: F811
    for width in (375, 1200):
        browser.open(address + page, width=width)
        assert [line for line in browser.console() if "favicon" not in line] == []
        assert all(url.startswith((address, "data:", "blob:")) for url in browser.requests())
        assert browser.overflow() <= 0


# ------------------------------------------------------------------------------------------------- generated pages


def test_the_command_line_is_all_there() -> None:
    text = pages.command_line()
    for command, parser in next(a for a in cli._parser()._actions if a.dest == "command").choices.items():  # type: ignore[union-attr]
        assert f"## clearance {command}\n" in text
        for action in parser._actions:
            for flag in action.option_strings:
                assert f"`{flag}" in text or flag in ("-h", "--help"), (command, flag)


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    """Each once, on the page of its group; what has arguments has a signature."""
    shown = {title: (site / "reference/api" / f"{pages.slug(title)}.html").read_text("utf-8") for title in pages.GROUPS}
    for name in cl._HOME:
        where = [t for t, text in shown.items() if f'id="{pages._home(name)}"' in text]
        assert len(where) == 1, (name, where)
    assert "cost:ArrayLike|None=None" in re.sub(r"<[^>]*>|\s", "", shown["Finite models"]), (
        "the constructor of CMDP has a signature"
    )
    solve = re.sub(r"<[^>]*>", " ", shown["Solve, certify, resume"])
    assert "argument meaning" in " ".join(solve.split()), "arguments are in tables"


@pytest.mark.parametrize("title", pages.GROUPS)
def test_the_example_of_each_group_runs(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(f"import clearance as cl\n{pages.GROUPS[title][1]}", {})
    assert capsys.readouterr().out.strip()


def test_mathematics_is_drawn_without_a_script(site: Path) -> None:
    text = (site / "concepts" / "cmdp.html").read_text("utf-8")
    assert text.count("<math") >= 3 and "```math" not in text and "$`" not in text


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ("two-state", "inventory") else pytest.mark.slow) for n in cl.zoo.MODELS]
)
def test_pages_of_the_zoo_are_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = pages.zoo_page(name)
    best = cl.optimum(cl.zoo.MODELS[name]())
    assert f"{best.J_r:.9g}" in text
    assert len(blocks(text)) >= 3 and commands_in(text)
    for argv in commands_in(text):
        parse(argv)
    run_blocks(text, name, tmp_path, monkeypatch)
