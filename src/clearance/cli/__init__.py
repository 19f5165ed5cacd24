"""The command line: one file per command, loaded when that command is used."""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    from clearance.cli import command_line

    return command_line.main(argv)
