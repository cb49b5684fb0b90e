"""The `xylem` command: thin commands over `service.workflows.train`, the store and the server.

What a command needs is imported when it runs, so that `xylem --help` answers at once.
"""

import os
import sys
from typing import Annotated

import typer

from model_store.compiled.faults import BadProcessor
from model_store.errors import StoreError, StoreUnreadable, StoreUnwritable
from service.base.errors import BadInput, XylemError, located
from service.cli.console import complain, print_line

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print_line(version("xylem-serve"))
        raise typer.Exit


def application() -> typer.Typer:
    """Return the command line, all commands imported but not what they need."""
    from service.cli import aliases, combine, denied, feedback, jobs, keys, labels, models, remote, schedules
    from service.cli.derive import calibrate, import_vectorizer
    from service.cli.evaluate import compare, evaluate
    from service.cli.extend import extend
    from service.cli.predict import predict, score
    from service.cli.serve import serve, worker
    from service.cli.thresholds import thresholds
    from service.cli.train import estimate, train
    from service.cli.trying import try_file
    from service.cli.tune import tune

    app = typer.Typer(
        name="xylem", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )
    app.callback()(_root)
    app.command("try")(try_file)
    of_models = (
        train,
        tune,
        evaluate,
        compare,
        predict,
        score,
        calibrate,
        combine.combine,
        extend,
        thresholds,
        estimate,
    )
    for command in (*of_models, import_vectorizer, serve, worker):
        app.command()(command)
    store = typer.Typer(help=models.app.info.help, no_args_is_help=True)
    of_aliases = (aliases.app, denied.app)
    for part in (models.app, *of_aliases, remote.app, labels.app, combine.app):
        store.add_typer(part)
    app.add_typer(store, name="models")
    app.add_typer(keys.app, name="keys")
    app.add_typer(jobs.app, name="jobs")
    app.add_typer(schedules.app, name="schedules")
    app.add_typer(feedback.app, name="feedback")
    return app


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Find the right labels for texts, out of thousands or millions: train, measure, publish, serve."""


def _found(error: Exception) -> str:
    """Return what stood where a number of some range was expected, as pydantic tells typer; else nothing."""
    details = getattr(error.__cause__, "errors", None)
    return f", found {details()[0]['input']!r}" if details else ""


def main() -> None:
    """Run the command line and exit: 0 done, 2 bad input or usage, 1 anything else, 130 after Ctrl-C."""
    sys.exit(run())


def run() -> int:
    """Run the command line; return its exit status. What went wrong is one line on standard error."""
    try:
        status: int = application()(standalone_mode=False) or DONE
        if status == INTERRUPTED:  # so typer returns Ctrl-C
            complain("interrupted")
        return status
    except typer.TyperException as error:
        if message := error.format_message():  # none: a group without a command, whose help is printed
            complain(f"{message}{_found(error)} (see xylem --help)")
        return error.exit_code
    except (StoreUnreadable, StoreUnwritable) as error:
        complain(str(error))
        return FAILED
    except BadInput as error:
        complain(located(error))
        return BAD_INPUT
    except (StoreError, BadProcessor) as error:
        complain(str(error))
        return BAD_INPUT
    except BrokenPipeError:
        # The reader has gone; Python would complain once more when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        if error.filename is None:
            complain(str(error))
        else:
            complain(f"{error.filename}: expected to read or write it, found: {error.strerror}")
        return FAILED
    except (XylemError, MemoryError) as error:
        complain(str(error) or "out of memory")
        return FAILED
