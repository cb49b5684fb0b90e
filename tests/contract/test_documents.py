"""The documents name what there is: every command, trainer, parameter and error code."""

import inspect
import json
import re
from pathlib import Path

import pytest
import typer.main
from prometheus_client.metrics_core import Metric

import model_store.errors
import service.api.door.problems
import service.base.errors
from service import cli
from service.base.parameters import Parameters, expected_of
from service.base.settings import read_settings
from service.cli.options import TRAINER_NAMES
from service.features.parameters import PARAMETERS
from service.server.app import create_app
from service.trainers import TRAINERS

ROOT = Path(__file__).resolve().parents[2]
COMMANDS_PAGE = (ROOT / "docs/commands.md").read_text()


def commands() -> dict[str, list[str]]:
    """Every command with the long names of its options."""
    found: dict[str, list[str]] = {}

    def walk(prefix: str, group: object) -> None:
        for name, command in group.commands.items():  # type: ignore[attr-defined]
            if hasattr(command, "commands"):
                walk(f"{prefix}{name} ", command)
            else:
                found[prefix + name] = [option for parameter in command.params for option in parameter.opts]

    walk("", typer.main.get_command(cli.application()))
    return found


COMMANDS = commands()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_its_page_and_answers_in_json(command: str) -> None:
    assert f"| `xylem {command}" in COMMANDS_PAGE
    assert "--json" in COMMANDS[command]


def test_the_page_of_commands_names_none_that_is_not_there() -> None:
    named = set(
        re.findall(r"`xylem ((?:(?:models|jobs|keys|feedback|schedules) )?[a-z]+(?:-[a-z]+)*)", COMMANDS_PAGE)
    )
    assert named - {"models", "jobs", "keys", "feedback", "schedules"} <= COMMANDS.keys()
    assert len(named) > 10


def test_the_help_names_every_trainer() -> None:
    assert set(TRAINER_NAMES) == TRAINERS.keys()


def rows_of(parameters: type[Parameters]) -> list[str]:
    """The rows of the page of parameters: name, default, what it takes, what it does."""
    rows = []
    for name, field in parameters.model_fields.items():
        default = json.dumps(field.default).strip('"')
        expected = expected_of(parameters, name)
        rows.append(f"| `{parameters.prefix}{name}` | {default} | {expected} | {field.description} |")
    return rows


def test_every_parameter_of_every_trainer_is_documented_with_its_default() -> None:
    page = (ROOT / "docs" / "parameters.md").read_text()
    for name, spec in TRAINERS.items():
        assert f"`{name}`" in page
        missing = [row for row in rows_of(spec.parameters) if row not in page]
        assert not missing, "expected the rows:\n" + "\n".join(missing)


def test_every_parameter_of_the_features_is_documented_with_its_default() -> None:
    page = (ROOT / "docs" / "parameters.md").read_text()
    for kind, parameters in PARAMETERS.items():
        assert f"`{kind}`" in page
        missing = [row for row in rows_of(parameters) if row not in page]
        assert not missing, "expected the rows:\n" + "\n".join(missing)


def test_every_error_code_is_documented() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    modules = (model_store.errors, service.base.errors, service.api.door.problems)
    codes = {
        value.code
        for module in modules
        for _, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, Exception) and hasattr(value, "code")
    }
    missing = sorted(code for code in codes if f"`{code}`" not in page)
    assert not missing
    assert len(codes) > 20


def test_the_tutorial_says_of_feedback_what_its_plot_shows() -> None:
    plot = (ROOT / "docs" / "feedback.svg").read_text()
    drawn = {int(n): value for n, value in re.findall(r"<title>(\d+) events: ([\d.]+)</title>", plot)}
    first, *_, last = drawn.values()
    assert float(first) < float(last), "the plot shows no rise"
    page = (ROOT / "docs" / "tutorial.md").read_text().split("feedback_demo.py", 1)[1]
    told = re.findall(r"([\d.]+) after (?:all )?(\d+)", page)
    assert len(told) == 4
    assert all(drawn[int(n)] == value for value, n in told)
    for fixed in re.findall(r">(?:threshold 0.5|the best 5|tuned): ([\d.]+)</text>", plot):
        assert fixed in page


PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
FOREIGN = ("process_", "python_")
"""What the names of figures begin with that are not ours."""


def families(store: Path) -> list[Metric]:
    """Every kind of figure of a service that has answered nothing yet."""
    app = create_app(read_settings(store=store))
    return [family for family in app.state.metrics.registry.collect() if not family.name.startswith(FOREIGN)]


def name_of(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def test_every_figure_is_documented(tmp_path: Path) -> None:
    rows = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            name, kind, labels, says = (cell.strip() for cell in line.strip("|").split("|"))
            rows[name.strip("`")] = kind, says
            assert re.fullmatch(r"([a-z]+(, [a-z]+)*)?", labels)
    found = {name_of(family): (family.type, family.documentation) for family in families(tmp_path)}
    assert rows == found


PAPERS = (ROOT / "docs/papers.md").read_text()
PATHS = sorted(set(re.findall(r"`([\w./]+/[\w./]+\.(?:py|md))`", PAPERS)))
LINKS = sorted(set(re.findall(r"\]\(([\w./-]+\.md)\)", PAPERS)))


@pytest.mark.parametrize("path", PATHS)
def test_every_path_of_the_page_exists(path: str) -> None:
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("link", LINKS)
def test_every_link_of_the_page_leads_somewhere(link: str) -> None:
    assert (ROOT / "docs" / link).is_file()


def test_the_page_has_the_five_papers_and_says_where_each_line_lives() -> None:
    assert PAPERS.count("\n## ") == 5
    lines = [
        line
        for line in PAPERS.split("\n### ")[0].splitlines()
        if line.startswith("| ") and not line.startswith("| paper")
    ]
    for line in lines:
        where = line.split("|")[2]
        assert "`" in where or "](" in where or where.strip() == "not built", line
