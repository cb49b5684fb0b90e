"""The options of a training: one declaration of each, for the command, the job and the rules."""

import inspect
import re
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field
from tests.helpers.checkout import ROOT

from xylem.admin.jobs.requests import TrainingJob
from xylem.base import training_options
from xylem.base.parameters import CommandOption
from xylem.base.training_options import (
    ROWS_IN_MEMORY,
    DirectOptions,
    Needs,
    TrainingFacts,
    TrainingOptions,
)
from xylem.cli.train import train

FACTS = TrainingFacts(
    options=dict(DirectOptions()),
    trainer="plt",
    has_valid=True,
    from_stdin=False,
    is_stream=False,
    in_blocks=False,
    scores_sum_to_one=False,
    passes=3,
    can_add_passes=True,
    learners="plt",
)


def test_command_and_job_have_the_options_help_and_defaults() -> None:
    options = inspect.signature(train).parameters
    properties = TrainingJob.model_json_schema()["properties"]
    for name, field in DirectOptions.model_fields.items():
        (option,) = options[name].annotation.__metadata__
        assert (options[name].default, option.help) == (field.default, field.description)
        if name in TrainingOptions.model_fields:
            schema = properties[field.alias or name]
            assert (schema["default"], schema["description"]) == (field.default, field.description)


def test_one_declaration_adds_an_option_and_its_rule() -> None:
    class MoreOptions(DirectOptions):
        loud: Annotated[
            bool, Field(description="Say more."), Needs(ROWS_IN_MEMORY), CommandOption()
        ] = False

    assert "loud" in [name for name, *_ in MoreOptions.command_options()]
    stream = FACTS._replace(is_stream=True)
    assert list(MoreOptions(loud=True).faults(FACTS)) == []
    assert list(MoreOptions().faults(stream)) == []
    assert list(MoreOptions(loud=True).faults(stream)) == [
        ("loud", "expected rows in memory, found a stream")
    ]


@pytest.mark.parametrize("name", DirectOptions.model_fields)
def test_every_option_is_on_the_pages(name: str) -> None:
    option = DirectOptions.model_fields[name].alias or name
    assert f"--{option.replace('_', '-')}" in (ROOT / "docs" / "commands.md").read_text()
    if name in TrainingOptions.model_fields:
        assert f"`{option}`" in (ROOT / "docs" / "jobs.md").read_text()


def test_the_declaration_on_the_page_is_in_the_code() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert example in Path(training_options.__file__).read_text()


@pytest.mark.parametrize(
    ("options", "facts", "fault"),
    [
        ({"calibrate": True}, {"has_valid": False}, "validation rows to fit to, found none"),
        ({"calibrate": True}, {"from_stdin": True}, "a file, found standard input"),
        (
            {"calibrate": True},
            {"scores_sum_to_one": True},
            "a score for each label by itself, found plt, whose scores sum to 1",
        ),
        ({"rerank": True, "calibrate": True}, {}, "uncalibrated scores, found calibrate"),
        ({"base": "m", "thresholds": "ofo", "stream": True}, {}, "tuned later, found thresholds"),
        ({"keep_state": True}, {"passes": 0}, "one of plt, found plt"),
        ({"until": 1}, {}, "keep_state, so that a training can go on, found none"),
        ({"until": 4, "keep_state": True}, {}, "a pass of 1 to 3, found 4"),
        (
            {"keep_state": True},
            {"can_add_passes": False},
            "until below the 3 passes, because plt cannot make more passes later, found none",
        ),
        ({"thresholds": "ofo"}, {}, "--stream, found rows in memory: xylem thresholds"),
        ({"ray": "auto"}, {"is_stream": True}, "rows in memory, label-tree or ovr, found a stream"),
        ({"label_names": None, "stream": True}, {"from_stdin": True}, "a file, found standard"),
    ],
)
def test_each_rule_says_what_is_needed(
    options: dict[str, object], facts: dict[str, object], fault: str
) -> None:
    requested = DirectOptions(**options)
    known = FACTS._replace(options=dict(requested), **facts)
    assert any(fault in message for _, message in requested.faults(known))
    assert not list(DirectOptions().faults(FACTS._replace(**facts)))
