"""The import graph of the package: which rooms import which, and whether the floors hold.

    python tools/import_graph.py                  print the rooms, their floors and every import that breaks a rule
    python tools/import_graph.py --svg graph.svg  draw the graph of the rooms

Every import counts: at module level, inside functions and under TYPE_CHECKING. The lazy table of the package's own
`__init__.py` is the one exception.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src"
PACKAGE = "clearance"

# From the ground up; rooms of one floor do not know each other.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("cluster",),
    ("learning", "certificates"),
    ("finite", "simulator"),
    ("exact",),
    ("zoo", "exchange", "deploy"),
    ("runs",),
    ("studies",),
    ("reporting",),
    ("cli",),
)
FLOOR_OF = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


class Import(NamedTuple):
    """One import of one module by another; `inner` where it stands inside a function."""

    source: str
    target: str
    line: int
    inner: bool


def modules(source: Path = SOURCE) -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    found = {}
    for path in sorted(source.glob(f"{PACKAGE}/**/*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(source: Path = SOURCE) -> list[Import]:
    """Return every import between modules of the package, but for the package's own lazy table."""
    known = modules(source)
    return [i for name, path in known.items() if name != PACKAGE for i in _imports_of(name, path, known)]


def _imports_of(name: str, path: Path, known: dict[str, Path]) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    inner = {id(node) for f in ast.walk(tree) if isinstance(f, functions) for node in ast.walk(f)}
    for node in ast.walk(tree):
        for target in _targets(node, name, path, known):
            if target in known and target not in (name, PACKAGE):
                yield Import(name, target, node.lineno, id(node) in inner)  # type: ignore[attr-defined]


def _targets(node: ast.AST, name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            up = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*up, *([node.module] if node.module else [])])
        for alias in node.names:
            full = f"{base}.{alias.name}"
            yield full if full in known else base


def room_of(module: str) -> str:
    """Return the top-level package that a module lives in; "" for the package's own modules."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in FLOOR_OF else ""


def broken_floors(found: list[Import]) -> list[Import]:
    """Return the imports that go upwards, or sideways to another room of the same floor."""
    wrong = []
    for i in found:
        here, there = room_of(i.source), room_of(i.target)
        if here and there and here != there and FLOOR_OF[there] >= FLOOR_OF[here]:
            wrong.append(i)
    return wrong


def cycles(found: list[Import]) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle (Tarjan's algorithm)."""
    edges: dict[str, set[str]] = defaultdict(set)
    for i in found:
        edges[i.source].add(i.target)
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(v: str) -> None:
        order[v] = low[v] = len(order)
        stack.append(v)
        for w in sorted(edges[v]):
            if w not in order:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], order[w])
        if low[v] == order[v]:
            group = stack[stack.index(v) :]
            del stack[stack.index(v) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for v in sorted(edges):
        if v not in order:
            visit(v)
    return groups


def repeated_names(known: dict[str, Path]) -> dict[str, list[str]]:
    """Return the file names that occur more than once, `__init__.py` apart."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for name, path in known.items():
        if path.name != "__init__.py":
            by_name[path.name].append(name)
    return {file: names for file, names in by_name.items() if len(names) > 1}


def rooms_without_floor(known: dict[str, Path]) -> list[str]:
    """Return the top-level packages that no floor names: their imports would go unchecked."""
    packages = {
        name.split(".")[1] for name, path in known.items() if name.count(".") >= 1 and path.name == "__init__.py"
    }
    return sorted(packages - set(FLOOR_OF))


def draw(found: list[Import], known: dict[str, Path]) -> str:
    """Return the graph of the rooms as SVG: the ground floor below, one curve for each pair of rooms that is imported.

    The wider the curve, the more imports; one over several floors passes the rooms between them on a side.
    """
    width, step = 980, 84
    height = step * len(FLOORS) + 20
    present = {room_of(name) for name in known}
    floors = [[room for room in rooms if room in present] for rooms in FLOORS]
    floors = [rooms for rooms in floors if rooms]
    at = {
        room: (int(width * (n + 1) / (len(rooms) + 1)), height - 45 - h * step, h)
        for h, rooms in enumerate(floors)
        for n, room in enumerate(rooms)
    }
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for i in found:
        if room_of(i.source) != room_of(i.target):
            counts[room_of(i.source), room_of(i.target)] += 1
    lines = []
    for (a, b), n in sorted(counts.items()):
        if a in at and b in at:
            (x1, y1, h1), (x2, y2, h2) = at[a], at[b]
            over = abs(h1 - h2) - 1
            side = (-1 if (h1 + h2) % 2 else 1) * (over * 62 + 40 if over > 0 else 0)
            curve = f"M{x1},{y1} C{x1 + side},{y1 + step // 2} {x2 + side},{y2 - step // 2} {x2},{y2}"
            lines.append(
                f'<path d="{curve}" fill="none" stroke="#0072b2" stroke-opacity=".5" '
                f'stroke-width="{min(1 + n / 12, 6):.1f}"><title>{a} imports {b}: {n}</title></path>'
            )
    boxes = [
        f'<rect x="{x - 62}" y="{y - 17}" width="124" height="34" rx="6" fill="#fff" stroke="#333"/>'
        f'<text x="{x}" y="{y + 5}" text-anchor="middle" font-family="sans-serif" font-size="15">{room}/</text>'
        for room, (x, y, _) in at.items()
    ]
    paper = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    body = "\n".join([paper, *lines, *boxes])
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">\n{body}\n</svg>\n'


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--svg", metavar="FILE", help="draw the graph of the rooms")
    args = parser.parse_args()
    known, found = modules(), imports()
    wrong, circles, twice = broken_floors(found), cycles(found), repeated_names(known)
    homeless = rooms_without_floor(known)
    inner = sum(i.inner for i in found)
    print(f"{len(known)} modules, {len(found)} imports between them, {inner} of them inside functions")
    for i in wrong:
        print(f"upwards or sideways: {i.source}:{i.line} imports {i.target}")
    for group in circles:
        print(f"cycle of {len(group)}: {', '.join(group)}")
    for file, names in twice.items():
        print(f"file name twice: {file}: {', '.join(names)}")
    for room in homeless:
        print(f"no floor: {room}/ is not in FLOORS")
    print(f"{len(circles)} cycles, {len(wrong)} imports upwards or sideways, {len(twice)} file names twice")
    if args.svg:
        Path(args.svg).write_text(draw(found, known), encoding="utf-8")
    return int(bool(wrong or circles or twice or homeless))


if __name__ == "__main__":
    raise SystemExit(main())
