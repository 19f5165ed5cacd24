"""The rooms and their floors: what may import what, and where things may lie (docs/development/design.md)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import import_graph
import pytest

import clearance as cl

KNOWN = import_graph.modules()
FOUND = import_graph.imports()
HOME = import_graph.SOURCE / import_graph.PACKAGE
# Packages whose own names are public: `clearance.NAME`, `clearance.zoo.NAME` with `simulated`, `clearance.cli:main`.
PUBLIC = ("", "zoo", "zoo/simulated", "cli")


def test_nothing_is_imported_upwards_or_sideways() -> None:
    wrong = import_graph.broken_floors(FOUND)
    assert not wrong, "\n".join(f"{i.source}:{i.line} imports {i.target}" for i in wrong)


def test_there_is_no_cycle() -> None:
    assert import_graph.cycles(FOUND) == []


def test_no_file_name_occurs_twice() -> None:
    assert import_graph.repeated_names(KNOWN) == {}


def test_every_room_has_a_floor() -> None:
    assert import_graph.rooms_without_floor(KNOWN) == []


def test_only_packages_lie_at_the_top() -> None:
    files = {path.name for path in HOME.iterdir() if path.is_file()}
    assert files == {"__init__.py", "__main__.py", "py.typed"}
    folders = [path for path in HOME.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert folders and all((path / "__init__.py").exists() for path in folders)


PACKAGES = sorted(path for path in KNOWN.values() if path.name == "__init__.py")


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: str(path.parent.relative_to(HOME)))
def test_a_package_says_what_lives_there_and_nothing_else(path: Path) -> None:
    """No re-exports: `exact.optimum` is always the module, never the function of the same name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "says nothing about what lives there"
    name = path.parent.relative_to(HOME).as_posix()
    assert len(tree.body) == 1 or ("" if name == "." else name) in PUBLIC, "holds more than its docstring"


def test_nobody_goes_through_the_lazy_table() -> None:
    """`import clearance` inside the package would reach every room, unseen: only the version is taken from there."""
    for name, path in KNOWN.items():
        if name == import_graph.PACKAGE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert import_graph.PACKAGE not in [alias.name for alias in node.names], f"{name}:{node.lineno}"
            if isinstance(node, ast.ImportFrom) and node.module == import_graph.PACKAGE:
                taken = {a.name for a in node.names if f"{import_graph.PACKAGE}.{a.name}" not in KNOWN}
                assert taken <= {"__version__"}, f"{name}:{node.lineno}"


def test_public_names_are_listed_where_they_are_defined() -> None:
    for name, home in cl._HOME.items():
        assert getattr(cl, name).__module__ == f"{import_graph.PACKAGE}.{home}", name


def test_the_tree_of_the_design_is_the_tree() -> None:
    """Every package is named in docs/development/design.md, and every file that is named there exists."""
    text = (HOME.parents[1] / "docs/development/design.md").read_text(encoding="utf-8")
    shown = re.findall(r"[\w/]+(?:\.py\b|/(?!\w))", text[text.index("## The tree") : text.index("## One pipeline")])
    packages = {f"{path.parent.name}/" for path in PACKAGES}
    assert packages <= {f"{name.rstrip('/').rpartition('/')[2]}/" for name in shown if name.endswith("/")}
    files = {path.name for path in KNOWN.values()}
    assert not [name for name in shown if name.endswith(".py") and name not in files]


# ------------------------------------------------------------------------------------------- the checker itself


def tree(place: Path, **files: str) -> Path:
    """A package of this name with these files, `room__module="text"`; every room has an empty `__init__.py`."""
    home = place / import_graph.PACKAGE
    for name, text in {"__init__": "", **files}.items():
        path = home / ("__init__.py" if name == "__init__" else f"{name.replace('__', '/')}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    return place


def imported(source: Path) -> list[import_graph.Import]:
    return import_graph.imports(source)


@pytest.mark.parametrize(
    "text, inner",
    [
        ("from clearance.runs import solve", False),
        ("import clearance.runs.solve", False),
        ("from clearance.runs.solve import f", False),
        ("from ..runs import solve", False),
        ("from ..runs.solve import f", False),
        ("def g():\n    from clearance.runs.solve import f", True),
        ("class C:\n    def g(self):\n        import clearance.runs.solve", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from clearance.runs.solve import f", False),
        ("try:\n    from clearance.runs.solve import f\nexcept ImportError:\n    pass", False),
    ],
)
def test_an_import_upwards_is_noticed(tmp_path: Path, text: str, inner: bool) -> None:
    (wrong,) = import_graph.broken_floors(imported(tree(tmp_path, exact__optimum=text, runs__solve="f = 1")))
    assert (wrong.source, wrong.target) == ("clearance.exact.optimum", "clearance.runs.solve")
    assert wrong.inner == inner and wrong.line == text.count("\n") + 1 - text.count("\nexcept") * 2


def test_an_import_sideways_is_noticed_and_one_downwards_is_not(tmp_path: Path) -> None:
    source = tree(
        tmp_path,
        finite__cmdp="from clearance.simulator import env",
        simulator__env="from clearance.core import errors",
        core__errors="",
    )
    assert [i.source for i in import_graph.broken_floors(imported(source))] == ["clearance.finite.cmdp"]


def test_a_cycle_is_noticed(tmp_path: Path) -> None:
    """Within one room, and through the body of a function."""
    source = tree(
        tmp_path,
        exact__a="from clearance.exact import b",
        exact__b="def f():\n    from clearance.exact.c import x",
        exact__c="from clearance.exact import a\nx = 1",
        exact__d="from clearance.exact import a",
    )
    circle = [f"clearance.exact.{name}" for name in "abc"]
    assert import_graph.broken_floors(imported(source)) == [] and import_graph.cycles(imported(source)) == [circle]


def test_a_name_used_twice_and_a_room_without_floor_are_noticed(tmp_path: Path) -> None:
    known = import_graph.modules(tree(tmp_path, exact__grid="", zoo__grid="", attic__box="import clearance.cli"))
    assert import_graph.repeated_names(known) == {"grid.py": ["clearance.exact.grid", "clearance.zoo.grid"]}
    assert import_graph.rooms_without_floor(known) == ["attic"]


def test_the_drawing_has_every_room() -> None:
    drawn = import_graph.draw(FOUND, KNOWN)
    assert all(f">{path.name}/</text>" in drawn for path in HOME.iterdir() if (path / "__init__.py").exists())
