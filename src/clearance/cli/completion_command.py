"""`clearance completion`: print a shell script that completes commands, flags, their values, zoo names and files."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from clearance.cli import command_line, guide, tables
from clearance.zoo import MODELS, SIMULATORS

ABOUT = "bash, zsh or fish; for zsh: completion zsh > ~/.zfunc/_clearance, with fpath+=~/.zfunc before compinit"


class Flag(NamedTuple):
    """A flag of a command: its name, its help in one line, its possible values, and whether it takes a value.

    `values` is empty if the values cannot be listed.
    """

    name: str
    help: str
    values: tuple[str, ...]
    takes_value: bool


class Command(NamedTuple):
    """A command: its name, help and flags.

    words  the words that may be given without a flag, such as names of zoo problems; file names are always possible
    """

    name: str
    help: str
    flags: list[Flag]
    words: tuple[str, ...]


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    p.add_argument("shell", choices=list(WRITERS), metavar="SHELL", help=ABOUT)


def run(args: argparse.Namespace) -> int:
    script = "\n".join(WRITERS[args.shell](list(list_commands()))) + "\n"
    if args.json:
        tables.answer(args, {"status": "done", "shell": args.shell, "script": script})
    else:
        tables.say(script)
    return 0


def list_commands() -> Iterator[Command]:
    """Yield every command with its flags, as read from its parser."""
    for name, parser in command_line.parsers().items():
        flags = [f for action in parser._actions for f in _flags(action)]
        words = [w for action in parser._actions if not action.option_strings for w in _words(action)]
        yield Command(name, guide.COMMANDS[name], flags, tuple(words))


def _flags(action: argparse.Action) -> Iterator[Flag]:
    help = " ".join((action.help or "").replace("%%", "%").split())
    for name in action.option_strings:
        if name.startswith("--"):
            yield Flag(name, help if action.help != argparse.SUPPRESS else "", _values(action), action.nargs != 0)


def _values(action: argparse.Action) -> tuple[str, ...]:
    """Return the possible values of a flag: its choices, or the words in a metavar such as {exact,samples}."""
    if action.choices is not None:
        return tuple(map(str, action.choices))
    listed = re.fullmatch(r"\{([\w,.-]+)\}", action.metavar if isinstance(action.metavar, str) else "")
    return tuple(listed[1].split(",")) if listed else ()


def _words(action: argparse.Action) -> tuple[str, ...]:
    return (*MODELS, *SIMULATORS) if action.dest in ("problem", "problems") else _values(action)


# ------------------------------------------------------------------------------------------------------- the scripts


def write_bash(commands: list[Command]) -> list[str]:
    names = " ".join(c.name for c in commands)
    lines = [
        "# bash completion for clearance",
        "_clearance() {",
        '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"',
        '  local command="${COMP_WORDS[1]}" flags="" words=""',
        f'  if [ "$COMP_CWORD" -eq 1 ]; then words="{names} --help --version"',
        '    COMPREPLY=($(compgen -W "$words" -- "$cur")); return; fi',
        '  case "$command $prev" in',
        *(f'    "{c.name} {f.name}") words="{" ".join(f.values)}";;' for c, f in _with_values(commands)),
        "  esac",
        '  if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$cur")); return; fi',
        '  case "$command" in',
    ]
    for c in commands:
        lines.append(f'    {c.name}) flags="{" ".join(f.name for f in c.flags)}"; words="{" ".join(c.words)}";;')
    return [
        *lines,
        "  esac",
        '  if [[ "$cur" == -* ]]; then COMPREPLY=($(compgen -W "$flags" -- "$cur"))',
        '  else COMPREPLY=($(compgen -W "$words" -- "$cur") $(compgen -f -- "$cur")); fi',
        "}",
        "complete -o filenames -F _clearance clearance",
    ]


def write_zsh(commands: list[Command]) -> list[str]:
    lines = [
        "#compdef clearance",
        "_clearance() {",
        "  local -a commands flags names",
        "  commands=(",
        *(f"    {_quote(f'{c.name}:{_plain(c.help)}')}" for c in commands),
        "  )",
        "  if (( CURRENT == 2 )); then _describe -t commands command commands; return; fi",
        '  case "$words[2] $words[CURRENT-1]" in',
    ]
    for c, f in _with_values(commands):
        lines.append(f"    {_quote(f'{c.name} {f.name}')}) compadd -- {' '.join(map(_quote, f.values))}; return;;")
    lines += ["  esac", '  case "$words[2]" in']
    for c in commands:
        flags = " ".join(_quote(f"{f.name}:{_plain(f.help)}") for f in c.flags)
        lines.append(f"    {c.name}) flags=({flags}); names=({' '.join(map(_quote, c.words))});;")
    return [
        *lines,
        "  esac",
        '  if [[ "$words[CURRENT]" == -* ]]; then _describe -o flag flags; else compadd -- $names; _files; fi',
        "}",
        '_clearance "$@"',
    ]


def write_fish(commands: list[Command]) -> list[str]:
    lines = ["# fish completion for clearance"]
    for c in commands:
        lines.append(f"complete -c clearance -f -n __fish_use_subcommand -a {c.name} -d {_quote(c.help)}")
    for c in commands:
        where = f"complete -c clearance -n '__fish_seen_subcommand_from {c.name}'"
        if c.words:
            lines.append(f"{where} -a {_quote(' '.join(c.words))}")
        for f in c.flags:
            takes = f" -x -a {_quote(' '.join(f.values))}" if f.values else " -r" if f.takes_value else ""
            lines.append(f"{where} -l {f.name[2:]}{takes}" + (f" -d {_quote(f.help)}" if f.help else ""))
    return lines


def _with_values(commands: list[Command]) -> Iterator[tuple[Command, Flag]]:
    """Yield (command, flag) for all flags with a list of possible values."""
    return ((c, f) for c in commands for f in c.flags if f.values)


def _quote(text: str) -> str:
    """Quote a text as one word for bash, zsh and fish."""
    return "'" + text.replace("'", "'\\''") + "'"


def _plain(text: str) -> str:
    """Escape the colons in a text, as zsh's `_describe` requires."""
    return text.replace(":", "\\:")


WRITERS: dict[str, Callable[[list[Command]], list[str]]] = {"bash": write_bash, "zsh": write_zsh, "fish": write_fish}
