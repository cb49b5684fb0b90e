"""Options that go together reach a command as one, and typer as options."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from service.cli.options import grouped, in_panel


@in_panel("How hard", common=("pace",))
class Work(NamedTuple):
    """Options of which one must be given."""

    name: Annotated[str, typer.Option(help="Whose.")]
    threads: Annotated[int, typer.Option(min=1, help="How many.")] = 2
    pace: Annotated[int, typer.Option(help="How fast.")] = 1


class Others(NamedTuple):
    """Options with defaults."""

    loud: Annotated[bool, typer.Option("--loud", help="Shout.")] = False


class Clash(NamedTuple):
    """An option whose name another group has."""

    threads: Annotated[int, typer.Option()] = 3


app = typer.Typer()


@app.command()
@grouped
def work(
    context: typer.Context,
    place: Annotated[str, typer.Argument()],
    work: Work,
    others: Others,
    last: Annotated[str, typer.Option()] = "z",
) -> None:
    """Work somewhere."""
    typer.echo(f"{place} {work} {others} {last} {context.get_parameter_source('threads').name}")  # type: ignore[union-attr]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


def test_a_command_gets_its_options_as_groups() -> None:
    assert run("here", "--name", "a") == (
        0,
        "here Work(name='a', threads=2, pace=1) Others(loud=False) z DEFAULT\n",
    )
    code, text = run("here", "--name", "a", "--threads", "5", "--loud", "--last", "q")
    assert (code, text) == (0, "here Work(name='a', threads=5, pace=1) Others(loud=True) q COMMANDLINE\n")


def test_options_are_checked_and_shown_as_any() -> None:
    assert run("here")[0] == run("here", "--name", "a", "--threads", "0")[0] == 2
    code, text = run("--help")
    # what everybody needs comes first: the options of no panel, those that must be given, and the common ones
    order = ("--name", "--pace", "--loud", "--last", "How hard", "--threads")
    shown = [text.index(option) for option in order]
    assert (code, shown) == (0, sorted(shown))
    assert "Work somewhere." in text and "--work" not in text


def test_two_options_of_one_name_are_a_fault_of_the_command() -> None:
    def twice(work: Work, clash: Clash) -> None: ...

    with pytest.raises(ValueError, match="threads"):
        grouped(twice)
