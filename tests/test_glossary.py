"""One meaning per word: JSON keys, labels and column headings stand in the glossary or among the JSON keys, once."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from folders import simulator_run, small_run

import clearance as cl
from clearance.certificates.price_words import PRICE
from clearance.cli import compare_command, main
from clearance.core.labels import LABELS

DOCS = Path(__file__).resolve().parents[1] / "docs"
GLOSSARY = (DOCS / "concepts/glossary.md").read_text(encoding="utf-8")
KEYS = (DOCS / "reference/json_keys.md").read_text(encoding="utf-8")
TERMS = re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY, re.MULTILINE)
ROWS = re.findall(r"^\| `(\w+)` \| (.+?) \|", KEYS, re.MULTILINE)


def test_every_term_and_key_stands_once() -> None:
    assert len(TERMS) > 60 and len(ROWS) > 50
    for found in (TERMS, [key for key, _ in ROWS]):
        assert not [term for term, times in Counter(found).items() if times > 1]


def test_labels_are_those_of_the_page_and_of_the_glossary() -> None:
    shown = dict(ROWS)
    assert not {key: label for key, label in LABELS.items() if shown.get(key) != label}
    assert not [label for label in LABELS.values() if label not in TERMS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("glossary")


COMMANDS = [
    "optimum inventory --show-policy --out best.npz",
    "optimum bad.npz",
    "solve two-state --K 20 --out run",
    "certify inventory best.npz --evidence samples --budget 2e3",
    "certify --check run",
    "check inventory",
    "check bad.npz",
    "frontier inventory --points 3 --learned 1",
    "compare two-state --methods crpo --seeds 1 --budget 2e3 --K 20",
    "report run",
    "export run --to trace.csv",
    "sweep two-state --grid seed=0:1 --K 20 --out grid",
    "zoo",
    "optimum nowhere",
]


def test_every_key_that_a_command_prints_is_explained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    cl.zoo.inventory().replace(limit=-1.0).save("bad.npz")
    known, missing = {key for key, _ in ROWS}, set()
    for words in COMMANDS:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
            main([*words.split(), "--json"])
        missing |= {(words.split()[0], key) for key in json.loads(said.getvalue()) if key not in known}
    assert not missing, f"docs/reference/json_keys.md lacks {sorted(missing)}"


def test_the_labels_of_a_report_are_in_the_glossary(folder: Path) -> None:
    for run in (small_run(folder / "model"), simulator_run(folder / "robot")):
        text = cl.report(run).read_text("utf-8")
        tiles = set(re.findall(r"<dt>(.*?)</dt>", text))
        cards = re.search(r'<table class="by-card">.*?</thead>', text, re.DOTALL)
        assert cards is not None and len(tiles) >= 3
        heads = set(re.findall(r'<th scope="col">([^<]+)</th>', cards[0]))
        assert heads and not (tiles | heads) - set(TERMS)


def test_the_headings_of_tables_are_in_the_glossary() -> None:
    heads = {head for head in compare_command.SHOWN} | {"at worst", "in conflict", "relax alone by", "relaxed limit"}
    heads |= {"given up so far", "learned at", "smallest step", "largest step", "smallest slack"}
    assert not heads - set(TERMS)


def test_the_price_has_one_sentence() -> None:
    assert f"| **price λ** | {PRICE} |" in GLOSSARY
    words = " ".join((DOCS / "concepts/cmdp.md").read_text(encoding="utf-8").split())
    assert PRICE in words
