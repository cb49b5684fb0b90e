"""The commands read fields of lines of JSON and of tables, and a version remembers them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.titled_rows import COLUMNS, line_of, titled_rows, write_titled
from tests.unit.cli.conftest import Cli


@pytest.fixture
def files(tmp_path: Path, cli: Cli) -> Path:
    """A directory of rows, and a version of fields and of texts, trained on them."""
    write_titled(tmp_path, 120)
    for model, name, options in (("fields", "rows", COLUMNS), ("texts", "rows-text", ())):
        data = tmp_path / f"{name}.jsonl"
        cli.says("train", "label-tree", "--model", model, "--data", data, *options)
    return tmp_path


def labels_of(lines: list[Any]) -> list[Any]:
    return [line["labels"] for line in lines]


def test_files_are_predicted_as_their_texts(cli: Cli, files: Path) -> None:
    expected = labels_of(cli.lines("predict", "texts", "--data", files / "rows-text.jsonl"))
    for name in ("rows.jsonl", "rows.csv", "rows-text.jsonl"):
        data = ("--data", files / name)
        assert labels_of(cli.lines("predict", "fields", *data)) == expected, name
        if "text" not in name:
            assert labels_of(cli.lines("predict", "texts", *data, *COLUMNS)) == expected, name
            out = files / f"answers-of-{name}"
            cli.says("predict", "fields", *data, "--out", out)
            lines = (out / "part-000000.jsonl").read_text().splitlines()
            assert labels_of(list(map(json.loads, lines))) == expected
    lines = (files / "rows.jsonl").read_text()
    assert labels_of(cli.lines("predict", "fields", input=lines)) == expected


def test_lines_on_standard_input(cli: Cli, files: Path) -> None:
    row, _ = titled_rows(2, 3)
    fields = {key: row[key] for key in ("title", "body")}
    ways: list[dict[str, Any]] = [{**row, "id": "a"}, {"fields": fields}, {**fields, "id": None}]
    answers = cli.lines("predict", "fields", input="".join(line_of(way).decode() for way in ways))
    assert answers[0]["id"] == "a"
    assert answers[0]["labels"] == answers[1]["labels"] == answers[2]["labels"]
    bad = [{"title": 3}, {"titel": "a"}, {"fields": {"titel": "a"}}, row]
    done = cli("predict", "fields", input="".join(line_of(way).decode() for way in bad) + "{\n")
    faults = [json.loads(line).get("error", {}) for line in done.stdout.splitlines()]
    expected = [
        "fields.title: expected a string, found 3",
        'expected one of {"text"}, {"fields"}, {"indices", "values"} and {"features"}, ',
        "fields: expected only title, body, found another field; did you mean title?",
        "",
        "expected JSON",
    ]
    for fault, start in zip(faults, expected, strict=True):
        assert fault.get("detail", "").startswith(start), fault
    scored = cli.lines("score", "fields", input=line_of(row).decode())
    assert scored[0]["labels"][0]["label"] == row["labels"][0]


def test_other_commands_use_the_fields(cli: Cli, files: Path) -> None:
    both = ("rows.jsonl", "rows.csv")
    for command, options, names in (
        ("evaluate", (), both),
        ("thresholds", ("--method", "fta"), both),
        ("calibrate", (), both[1:]),
    ):
        for name in names:
            cli.answers(command, "fields", "--data", files / name, *options)
        other = ("--data", files / "rows.jsonl", "--text-column", "body", "--text-column", "title")
        fault = "text column: expected the fields of the version, title=3, body, or no names, found"
        cli.refuses(fault, command, "fields", *other, *options)
    shown = cli.answers("models", "show", "fields")
    assert shown["features"]["fields"] == ["title=3", "body"]
    report = cli.answers("inspect", files / "rows.jsonl", *COLUMNS)
    assert report["data"]["without_fields"] == {"title": 7, "body": 6}


def test_a_weight_that_a_training_chooses(cli: Cli, files: Path) -> None:
    auto = ("--text-column", "title=auto", "--text-column", "body")
    data = ("--data", files / "rows.jsonl", *auto)
    report = cli.answers("train", "label-tree", "--model", "auto", *data)
    assert report["fields"]["chosen"].startswith("title=") and "gained" in report["fields"]
    output = cli.says("train", "label-tree", "--model", "auto", *data)
    assert "by 24 rows held out of 120" in output and "over weight 1" in output
    fault = "text column 'title': expected a weight as a number, found auto"
    cli.refuses(fault, "evaluate", "texts", *data)
    cli.refuses(fault, "try", files / "rows.jsonl", *auto, "--no-serve")
