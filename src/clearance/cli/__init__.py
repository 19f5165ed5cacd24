"""The command line: one module per command, which is imported only when the command is used."""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    `argv` are the words after the program's name. If it is None, they are read from sys.argv, and an interrupted
    command ends the process.
    """
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
