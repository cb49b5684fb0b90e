"""The first step of the `xylem` command and of models in Python: that the packages to import are our own.

A file `service.py` that PYTHONPATH leads to, or that stands beside a notebook, stands before the package
`service`: an error of Python's own would name neither.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("service", "model_store")

START = "service.base.start"
COMMAND_LINE = "service.cli.entry"
"""What the command runs, by their names: the command line uses the client, which imports nothing of it."""

FAILED = 1


def main() -> None:
    """Run the command line and exit; 1 where another module has the name of a package of ours."""
    open_streams()
    try:
        refuse_shadows()
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(FAILED)
    import_module(START).prepare()
    import_module(COMMAND_LINE).main()


def open_streams() -> None:
    """Open what is closed of standard input, output and error, before a file of ours gets its number.

    Standard input is empty then, and errors go nowhere. Standard output refuses what is written, as a full
    disk does: an answer that nobody gets is a failure.
    """
    flags = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for name in flags:
        if getattr(sys, name) is None:
            number = os.open(os.devnull, flags[name])  # the lowest that is free
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))


def refuse_shadows() -> None:
    """Raise ImportError where another module has the name of a package of ours."""
    for name in PACKAGES:
        if (found := shadow_of(name)) is not None:
            raise ImportError(f"xylem: {found}", name=name)


def shadow_of(name: str) -> str | None:
    """Return what is wrong with where a package of ours is found; None: it is the one beside this package."""
    home = Path(__file__).resolve().parents[1] / name
    spec = find_spec(name)
    if spec is None:
        return f"expected the package {name} in {home}, found none: install xylem-serve again"
    origin = Path(spec.origin or ".").resolve()
    if origin == home / "__init__.py":
        return None
    hint = "rename it, or take its folder from sys.path (PYTHONPATH, that of a notebook or script)"
    return f"expected the package {name} in {home}, found {origin}, which shadows it: {hint}"
