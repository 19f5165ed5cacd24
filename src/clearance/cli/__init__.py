"""The command line: one module per command, imported when that command is used."""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; without `argv`, read sys.argv and exit if interrupted."""
    from clearance.cli import interrupts

    try:
        with interrupts.handled(until_exit=argv is None):
            from clearance.cli import command_line

            status = command_line.main(argv)
    except KeyboardInterrupt:  # before the command has begun, or after its end
        interrupts.say_interrupted()
        status = interrupts.exit_status()
    if argv is None and interrupts.was_interrupted():
        interrupts.leave(status)
    return status
