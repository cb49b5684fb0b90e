"""The `xylem` command: opens the standard streams, prepares the process, runs the command line."""

import os
import sys
from importlib import import_module

# The modules that the command runs, by name.
#
# They are not imported here: the command line uses the client, which must import nothing of it.
START = "xylem.base.start"
COMMAND_LINE = "xylem.cli.entry"


def main() -> None:
    """Run the command line and exit."""
    open_streams()
    import_module(START).prepare()
    import_module(COMMAND_LINE).main()


def open_streams() -> None:
    """Open those of standard input, output and error that are closed.

    Otherwise a file that the command opens would get their descriptor. Standard input is then
    empty, and errors go nowhere. Standard output refuses what is written, like a full disk: an
    answer that nobody receives is a failure.
    """
    flags = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for name in flags:
        if getattr(sys, name) is None:
            number = os.open(os.devnull, flags[name])  # the system takes the lowest free number
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))
