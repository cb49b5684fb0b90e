"""The command line has the options of the commands that are called, and lists the others."""

from typing import Any

import typer

from xylem.cli.application import application, with_options_of


def _options(commands: Any, *words: str) -> dict[tuple[str, ...], list[str]]:
    """Return the names of the options of each command, by the words that call it."""
    options = {}
    for name, command in commands.commands.items():
        if hasattr(command, "commands"):
            options.update(_options(command, *words, name))
        else:
            options[*words, name] = [parameter.name for parameter in command.params]
    return options


def _help_of(app: typer.Typer) -> str:
    command: Any = typer.main.get_command(app)
    lines = []
    for group in (command, *command.commands.values()):
        for name, listed in getattr(group, "commands", {}).items():
            lines.append(f"{group.name} {name}: {listed.get_short_help_str()}")
    return "\n".join(lines)


def test_a_called_command_has_all_its_options() -> None:
    whole = _options(typer.main.get_command(application()))
    assert len(whole) > 40
    for words, options in whole.items():
        called = _options(typer.main.get_command(with_options_of(words, application())))
        assert called[words] == options


def test_commands_that_are_not_called_are_listed_alike() -> None:
    app = with_options_of(["--help"], application())
    assert _help_of(app) == _help_of(application())
    assert not any(_options(typer.main.get_command(app)).values())
