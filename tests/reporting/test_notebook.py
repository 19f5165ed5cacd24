"""HTML cards of results, and `plot`."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.core.html_card import MOST_ROWS, html_card, html_curve

EVIL = '<script>alert("1")</script>&'
VOID = {"circle", "polyline"}


class Page(HTMLParser):
    """Collects tags and text, and checks that every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")]
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def model() -> cl.CMDP:
    P, r = [[[1.0], [1.0]]], [[1.0, 0.0]]
    return cl.CMDP(P, r, g=[r], b=0.2, cost=[r], limit=1.5, gamma=0.5, names=["output", EVIL])


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    solution = cl.solve(model(), cl.CNPGPD(K=30, N=1))
    found = {"CMDP": model(), "Optimum": cl.optimum(model()), "Solution": solution}
    return found | {"Certificate": solution.certificate, "Frontier": cl.frontier(model(), EVIL, points=3)}


@pytest.mark.parametrize("name", ["CMDP", "Optimum", "Solution", "Certificate", "Frontier"])
def test_cards_are_small_escaped_and_without_scripts(results: dict[str, Any], name: str) -> None:
    html = results[name]._repr_html_()
    page = Page(html)
    assert "script" not in page.tags and EVIL in page.text and len(html) < 20_000 and name in page.text
    assert "1.5" in page.text and "-1.5" not in page.text, "a cost is a cost"


def test_the_card_of_a_solution_has_the_certificate_and_a_curve(results: dict[str, Any]) -> None:
    page = Page(results["Solution"]._repr_html_())
    assert "CERTIFIED" in page.text and {"svg", "polyline", "circle", "table"} <= page.tags


def test_long_tables_are_cut() -> None:
    page = Page(html_card("t", heads=["a"], rows=[[str(i)] for i in range(100)]))
    assert f"and {100 - MOST_ROWS} more" in page.text and "99" not in page.text.split()


@pytest.mark.parametrize(
    ("x", "y"), [([1.0], [2.0]), ([1.0, 2.0], [3.0, 3.0]), (list(range(5000)), [np.nan] * 4999 + [1.0]), ([], [])]
)
def test_curves_of_any_shape(x: list[float], y: list[float]) -> None:
    text = html_curve(x, y, "label", at=(1.0, np.inf))
    assert "nan" not in text and "inf" not in text and len(text) < 6000
    Page(text)


# ---------------------------------------------------------------------------------------------------------------- plot


def test_plot_returns_figures(results: dict[str, Any], tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    import matplotlib.pyplot as plt

    compared = cl.compare(cl.zoo.two_state(), methods=["cnpgpd"], seeds=1, budget=1e4, K=5)
    for thing, axes in ((results["Solution"], 3), (results["Frontier"], 2), (compared, 6), (compared[0], 6)):
        figure = cl.plot(thing)
        assert len(figure.axes) == axes and not plt.get_fignums()
        figure.savefig(tmp_path / "figure.png")
    assert cl.plot(results["Frontier"]).axes[1].get_xlabel().startswith("the upper limit of")


def test_plot_shows_costs_with_their_limits(results: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib")
    lines = cl.plot(results["Solution"]).axes[2].get_lines()
    assert all(np.min(line.get_ydata()) >= 0 for line in lines) and lines[-1].get_ydata()[0] == 1.5


def test_plot_refuses_other_things() -> None:
    pytest.importorskip("matplotlib")
    for thing in (model(), [], [1, 2], "run"):
        with pytest.raises(cl.InputError, match="plot takes a Solution, a Frontier, or results of compare"):
            cl.plot(thing)  # type: ignore[arg-type]
