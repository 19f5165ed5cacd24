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
    for thing, axes in ((results["Solution"], 3), (results["Frontier"], 2), (compared, 6)):
        figure = thing.plot()
        assert len(figure.axes) == axes and not plt.get_fignums()
        figure.savefig(tmp_path / "figure.png")
    assert results["Frontier"].plot().axes[1].get_xlabel().startswith("the upper limit of")


def test_plot_shows_costs_with_their_limits(results: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib")
    lines = results["Solution"].plot().axes[2].get_lines()
    assert all(np.min(line.get_ydata()) >= 0 for line in lines) and lines[-1].get_ydata()[0] == 1.5


def test_a_figure_is_about_one_problem() -> None:
    pytest.importorskip("matplotlib")
    models = {"a": cl.zoo.two_state(), "b": cl.zoo.two_state()}
    both = cl.compare(models, methods=["cnpgpd"], seeds=1, budget=1e4, K=5)
    with pytest.raises(cl.InputError, match="problem is missing: one figure is about one problem; there are a, b"):
        both.plot()
    with pytest.raises(cl.InputError, match="problem 'c' is none of a, b"):
        both.plot("c")
    with pytest.raises(cl.InputError, match="there are none"):
        cl.Comparison().plot()
    assert both.plot("b").get_suptitle().startswith("b: mean over 1 seeds")


# -------------------------------------------------------------------------------------------------------------- frames


def test_results_as_data_frames(results: dict[str, Any], tmp_path: Any) -> None:
    pandas = pytest.importorskip("pandas")
    solution, curve = results["Solution"], results["Frontier"]
    trace = solution.trace.to_frame(solution.statement.names)
    assert len(trace) == len(solution.trace) and np.array_equal(trace["J.reward"], solution.trace.J[:, 0])
    assert list(solution.trace.to_frame())[-1].startswith("J.g")
    curve.save(tmp_path / "curve.csv")
    pandas.testing.assert_frame_equal(curve.to_frame(), pandas.read_csv(tmp_path / "curve.csv"), check_dtype=False)
    compared = cl.compare(cl.zoo.two_state(), methods=["cnpgpd", "npgpd"], seeds=2, budget=1e4, K=5)
    frame = compared.to_frame()
    assert frame["seed"].tolist() == [0, 1, 0, 1] and frame["method"].tolist() == ["cnpgpd"] * 2 + ["npgpd"] * 2
    assert frame["gap last"].tolist() == [r.gap("last") for r in compared]
    assert cl.Comparison().to_frame().empty


def test_data_frames_without_pandas_name_the_extra(results: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    for thing in (results["Solution"].trace, results["Frontier"], cl.Comparison()):
        with pytest.raises(cl.MissingExtraError, match=r"pandas is not installed: pip install '\.\[pandas\]'"):
            thing.to_frame()
