"""The `xylem` command: it opens the standard streams, prepares the
process, then runs the command line.
"""

import os
import sys
from importlib import import_module

START = "xylem.base.start"
COMMAND_LINE = "xylem.cli.entry"
"""What the command runs, by their names: the command line uses the
client, which imports nothing of it.
"""


def main() -> None:
    """Run the command line and exit."""
    open_streams()
    import_module(START).prepare()
    import_module(COMMAND_LINE).main()


def open_streams() -> None:
    """Open what is closed of standard input, output and error,
    before a file of ours gets its number.

    Standard input is empty then, and errors go nowhere. Standard output refuses what is written, as
    a full disk does: an answer that nobody gets is a failure.
    """
    flags = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for name in flags:
        if getattr(sys, name) is None:
            number = os.open(os.devnull, flags[name])  # the lowest that is free
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))
