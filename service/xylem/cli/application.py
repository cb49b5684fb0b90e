"""The command line as a whole: all commands, their exit statuses, and how errors are shown.

A command imports what it needs when it runs, so that `xylem --help` answers at once.
"""

import os
import sys
from collections.abc import Collection
from copy import copy
from typing import Annotated

import typer
from typer.main import get_command_name
from typer.models import CommandInfo

from xylem.base import BadInput, XylemError, located
from xylem.cli.console import complain, print_line
from xylem_store import BadProcessor, StoreError, StoreUnreadable, StoreUnwritable

DONE = 0
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version

        print_line(version("xylem-serve"))
        raise typer.Exit


def application() -> typer.Typer:
    """Return the command line; commands are imported, but not what they need."""
    from xylem.cli import (
        aliases,
        combine,
        denied,
        encoders,
        feedback,
        jobs,
        keys,
        labels,
        learn,
        models,
        remote,
        schedules,
    )
    from xylem.cli.derive import calibrate, extend, import_vectorizer
    from xylem.cli.evaluate import compare, evaluate
    from xylem.cli.inspect_data import inspect
    from xylem.cli.keys import usage
    from xylem.cli.predict import predict, score
    from xylem.cli.serve import serve, worker
    from xylem.cli.thresholds import thresholds
    from xylem.cli.train import estimate, train
    from xylem.cli.trying import try_file
    from xylem.cli.tune import tune

    app = typer.Typer(
        name="xylem", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )
    app.callback()(_root)
    app.command("try")(try_file)
    app.command("inspect")(inspect)
    make = (
        train,
        tune,
        evaluate,
        compare,
        predict,
        score,
        calibrate,
        combine.combine,
        extend,
        learn.learn,
    )
    for command in (*make, thresholds, estimate, import_vectorizer, serve, worker, usage):
        app.command()(command)
    store = typer.Typer(help=models.app.info.help, no_args_is_help=True)
    for part in (models, aliases, denied, remote, labels, combine, learn):
        store.add_typer(part.app)
    app.add_typer(store, name="models")
    for group in (encoders, keys, jobs, schedules, feedback):
        app.add_typer(group.app, name=group.__name__.rpartition(".")[2])
    return app


def with_options_of(words: Collection[str], app: typer.Typer) -> typer.Typer:
    """Return the command line in which only the commands that are among the words have options.

    The others are listed with their name and help. typer takes 100 ms to make the options of all
    commands, a third of `xylem --help`, and those of trainings import pydantic.
    """
    called = copy(app)
    called.registered_commands = [
        command if _name_of(command) in words else _without_options(command)
        for command in app.registered_commands
    ]
    called.registered_groups = []
    for group in app.registered_groups:
        if group.typer_instance is not None:
            called.add_typer(with_options_of(words, group.typer_instance), name=group.name)
    return called


def _name_of(command: CommandInfo) -> str:
    return command.name or get_command_name(getattr(command.callback, "__name__", ""))


def _without_options(command: CommandInfo) -> CommandInfo:
    listed = copy(command)
    listed.name = _name_of(command)
    listed.help = command.help or command.callback.__doc__
    listed.callback = lambda: None
    return listed


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Find the right labels for texts, out of millions: train, measure, publish, serve."""


def main() -> None:
    """Run the command line and exit.

    The status is 0 after success, 2 for bad input or usage, 130 after Ctrl-C, 1 for all else.
    """
    status = run()
    try:
        sys.stdout.flush()
    except OSError as error:
        if status == DONE:  # otherwise another error was reported already
            complain(f"standard output: expected to write it, found: {error.strerror}")
            status = FAILED
    sys.stdout = sys.stderr = None  # or Python tries to flush them, and exits with 120
    sys.exit(status)


def run() -> int:
    """Run the command line; return its exit status. An error is one line on standard error."""
    for argument in sys.argv[1:]:
        # Python marks bytes that are no UTF-8 by surrogates, which can be neither stored nor shown
        if argument.encode(errors="ignore").decode() != argument:
            complain(f"expected arguments in UTF-8, found {argument!a}")
            return BAD_INPUT
    try:
        # `xylem feedback NAME` is short for `xylem feedback send NAME`
        called = with_options_of(
            [*sys.argv[1:], *(["send"] if "feedback" in sys.argv[1:2] else [])], application()
        )
        status: int = called(standalone_mode=False) or DONE
        if status == INTERRUPTED:  # how typer returns Ctrl-C
            complain("interrupted")
        return status
    except typer.TyperException as error:
        # no message: a group without a command, whose help is printed
        if message := error.format_message():
            # the errors that pydantic found, such as a number out of its range
            details = getattr(error.__cause__, "errors", None)
            suffix = f", found {details()[0]['input']!r}" if details else ""
            complain(f"{message}{suffix} (see xylem --help)")
        return error.exit_code
    except (BadInput, StoreError, BadProcessor) as error:
        complain(located(error))
        return FAILED if isinstance(error, StoreUnreadable | StoreUnwritable) else BAD_INPUT
    except BrokenPipeError:
        # The reader of the pipe has closed it. Without /dev/null in its place Python would report
        # that once more, when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        complain(
            str(error)
            if error.filename is None
            else f"{error.filename}: expected to read or write it, found: {error.strerror}"
        )
        return FAILED
    except (XylemError, MemoryError) as error:
        complain(
            "out of memory: give the command more, or train with --stream, which holds a part of "
            f"the rows ({error})"
            if isinstance(error, MemoryError)
            else str(error)
        )
        return FAILED
    except Exception as error:
        # Ctrl-C while pydantic makes a model: it wraps the exception
        if "KeyboardInterrupt" not in str(error):
            raise
        complain("interrupted")
        return INTERRUPTED
