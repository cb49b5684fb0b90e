"""The commands read tables, and directories of documents, as they read lines of JSON."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.jobs_helpers import write_data
from tests.unit.cli.conftest import Cli

OPTIONS = (
    *("--text-column", "title", "--text-column", "body"),
    *("--label-column", "tags", "--label-separator", "|"),
)
TRAINERS = pytest.mark.parametrize(
    "how", [("label-tree",), ("plt", "-p", "solver=sgd", "--stream")]
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the same rows as rows.jsonl, rows.csv.gz and rows.tsv."""
    folder = tmp_path_factory.mktemp("files")
    source = write_data(folder / "source.jsonl", 150, seed=3)
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    parts = [(*row["text"].split(" ", 1), [*row["labels"], "all"]) for row in rows]
    lines = [{"text": f"{title}\n{body}", "labels": labels} for title, body, labels in parts]
    write_lines(folder / "rows.jsonl", lines)
    for name, mark in (("rows.csv", ","), ("rows.tsv", "\t")):
        table = [
            ["body", "tags", "title"],
            *([body, "|".join(tags), title] for title, body, tags in parts),
        ]
        (folder / name).write_text("\n".join(mark.join(cells) for cells in table))
    (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes()))
    return folder


def answers_of(cli: Cli, how: tuple[str, ...], model: str, file: Path, *options: str) -> list[Any]:
    """What commands answer that train a model on a file, and that read the file for it."""
    data = ("--data", file, *options)
    trained = cli.answers("train", *how, "--model", model, "--valid", file, *data)
    evaluated = cli.answers("evaluate", model, *data)
    estimated = cli.answers("estimate", *data)
    for figure in ("us_per_row", "data"):
        del evaluated[figure]
    assert estimated.pop("data")["rows"] == trained["data"]["rows"]
    tuned = cli.answers("thresholds", model, "--test", file, *data)
    assert all(text.endswith("(repeated-rows)") for text in trained.get("warnings", ()))
    figures = [tuned["validation_macro_f"], tuned["test_macro_f"], tuned["labels"]]
    return [trained["metrics"], estimated, evaluated, figures]


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.tsv"])
@TRAINERS
def test_tables_are_read_by_every_command(
    cli: Cli, files: Path, name: str, how: tuple[str, ...]
) -> None:
    rows, table = files / "rows.jsonl", files / name
    assert answers_of(cli, how, "a", rows) == answers_of(cli, how, "b", table, *OPTIONS)
    predicted = [
        [line["labels"] for line in cli.lines("predict", model, "--data", *data)]
        for model, data in (("a", (rows,)), ("b", (table, *OPTIONS)))
    ]
    assert len(predicted[0]) == 150
    assert predicted[0] == predicted[1]


@pytest.mark.parametrize(
    ("name", "options", "fault"),
    [
        (
            "rows.tsv",
            ("--text-column", "text"),
            "rows.tsv:1: expected one column 'text', found columns 'body', 'tags', 'title'",
        ),
        (
            "rows.jsonl",
            ("--label-column", "tags"),
            "expected a file that ends in .csv, .tsv, .parquet",
        ),
        (
            "rows.tsv",
            ("--text-column", "a=0"),
            "text column 'a': expected a weight from 1 to 9, or auto, found 0",
        ),
    ],
)
def test_what_is_wrong_with_columns_is_told(
    cli: Cli, files: Path, name: str, options: tuple[str, ...], fault: str
) -> None:
    cli.refuses(fault, "train", "ovr", "--model", "m", "--data", files / name, *options)


def test_a_table_that_breaks_off_while_it_is_predicted(
    cli: Cli, files: Path, tmp_path: Path
) -> None:
    cli.says("train", "ovr", "--model", "m", "--data", files / "rows.tsv", *OPTIONS)
    broken = tmp_path / "broken.csv"
    broken.write_text('text\nfirst1\n"first2\n')
    done = cli("predict", "m", "--data", broken)
    assert done.returncode == 2 and "broken.csv:3: expected a closing quote" in done.stderr


@TRAINERS
def test_a_directory_of_documents_is_a_labelled_file(
    cli: Cli, files: Path, tmp_path: Path, how: tuple[str, ...]
) -> None:
    folder, rows = tmp_path / "corpus", files / "rows.jsonl"
    folder.mkdir()
    for number, line in enumerate(rows.read_text().splitlines()):
        row = json.loads(line)
        (folder / f"{number:03}.txt").write_text(row["text"])
        (folder / f"{number:03}.key").write_text("\n".join(row["labels"]))
    assert answers_of(cli, how, "a", rows) == answers_of(cli, how, "b", folder)
    (folder / "007.key").unlink()
    trained = json.loads(cli.says("train", *how, "--model", "c", "--data", folder, "--json"))
    assert trained["warnings"] == ["1 of 150 documents have no subjects: rows without labels"]
