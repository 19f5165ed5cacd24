"""Run every user page in a fresh environment that has only the extras that the page itself installs.

    python benchmarks/fresh_pages.py --folder /tmp/pages [PAGE ...]    all user pages unless given

For each set of extras a virtual environment is made in the folder, and kept there. Slow blocks run too with
CLEARANCE_SLOW_BLOCKS=1. Prints one line per page; the exit status is 1 if a block fails or prints something else.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def user_pages() -> list[Path]:
    folders = ("tutorials", "how_to", "concepts")
    inside = [page for folder in folders for page in sorted((ROOT / "docs" / folder).glob("*.md"))]
    return [ROOT / "README.md", ROOT / "docs/index.md", ROOT / "docs/install.md", *inside]


def extras_of(text: str) -> tuple[str, ...]:
    """Return the extras of the first installation that a page shows outside of prose."""
    found = re.search(r"^pip install '?\.(?:\[([\w,]+)\])?'?$", text, re.MULTILINE)
    return tuple(sorted((found[1] or "").split(","))) if found and found[1] else ()


def environment(folder: Path, extras: tuple[str, ...]) -> Path:
    """Return the interpreter of the environment with these extras; make it where there is none."""
    home = folder / ("-".join(extras) or "none")
    python = home / "bin/python"
    if not (home / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        what = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
        pip = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), what]
        subprocess.run(pip, check=True)
        (home / "ready").touch()
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the environments are made")
    parser.add_argument("pages", nargs="*", type=Path, help="pages to run (default: all user pages)")
    args = parser.parse_args()
    failed = 0
    for page in args.pages or user_pages():
        extras = extras_of(page.read_text(encoding="utf-8"))
        python = environment(args.folder.resolve(), extras)
        run = [str(python), str(ROOT / "tools/show_outputs.py"), "--check", str(page)]
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(run, capture_output=True, text=True, env=env, cwd=args.folder)
        good = done.returncode == 0
        failed += not good
        why = "" if good else f": {(done.stdout + done.stderr).strip().splitlines()[-1]}"
        print(f"{'ok' if good else 'FAILED'}  {page.name}  [{', '.join(extras) or 'no extra'}]{why}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
