"""`clearance completion`: the scripts complete what the parsers have, in the shells that are installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from clearance.cli import guide, main
from clearance.cli.completion_command import list_commands
from clearance.zoo import MODELS


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def needs(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


def say(*words: str) -> list[str]:
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0 and not found.stderr, found.stderr
    return found.stdout.split()


BASH = """cd {folder}; source {file}
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); _clearance; echo "${{COMPREPLY[@]}}\""""


@pytest.mark.parametrize(
    ("words", "wanted", "unwanted"),
    [
        ("clearance so", {"solve"}, {"sweep"}),
        ("clearance optimum --li", {"--limits", "--limit"}, {"--gamma"}),
        ("clearance solve --evidence ''", {"exact", "samples"}, {"solve"}),
        ("clearance solve --evidence s", {"samples"}, {"exact"}),
        ("clearance optimum two", {"two-state"}, {"queue"}),
        ("clearance optimum pl", {"plant.csv"}, set()),
        ("clearance export a --what ''", {"trace", "policy", "model"}, set()),
        ("clearance completion ''", {"bash", "zsh", "fish"}, set()),
    ],
)
def test_bash(
    words: str, wanted: set[str], unwanted: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("bash")
    (tmp_path / "c.bash").write_text(script("bash", capsys))
    (tmp_path / "plant.csv").touch()
    found = set(say("bash", "-c", BASH.format(folder=tmp_path, file=tmp_path / "c.bash", words=words)))
    assert wanted <= found and not unwanted & found


def test_fish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs("fish")
    (tmp_path / "c.fish").write_text(script("fish", capsys))
    for line, wanted in (
        ("clearance so", "solve"),
        ("clearance solve --evid", "--evidence"),
        ("clearance solve --evidence sa", "samples"),
        ("clearance optimum two-", "two-state"),
    ):
        assert wanted in say("fish", "--no-config", "-c", f"source {tmp_path}/c.fish; complete -C '{line}'")


def test_zsh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script is valid, and hands the right words to zsh's own functions."""
    needs("zsh")
    (tmp_path / "_clearance").write_text(script("zsh", capsys))
    subprocess.run(["zsh", "-n", str(tmp_path / "_clearance")], check=True)
    stubs = "_describe() { print -l -- ${(P)@[-1]}; }; compadd() { print -l -- $@[2,-1]; }; _files() { print FILES; }"
    for words, wanted in (
        (["clearance", "so"], f"solve:{guide.COMMANDS['solve']}"),
        (["clearance", "solve", "--evid"], "--evidence:"),
        (["clearance", "solve", "--evidence", ""], "samples"),
        (["clearance", "optimum", "two"], "two-state"),
    ):
        quoted = " ".join(f"'{w}'" for w in words)
        text = f"{stubs}; words=({quoted}); CURRENT={len(words)}; source {tmp_path}/_clearance"
        assert wanted in " ".join(say("zsh", "-f", "-c", text))


def test_everything_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    commands = {c.name: c for c in list_commands()}
    assert commands.keys() == guide.COMMANDS.keys() and set(MODELS) <= set(commands["optimum"].words)
    assert {"--limit", "--gamma", "--help", "--json"} <= {f.name for f in commands["optimum"].flags}
    for shell in ("bash", "zsh", "fish"):
        text = script(shell, capsys)
        assert all(name in text for name in commands) and ("show-policy" in text)
    assert main(["completion", "bash", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["script"].startswith("# bash completion")
    assert main(["completion", "tcsh"]) == 2
