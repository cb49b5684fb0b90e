"""The commands read tables as they read lines of JSON."""

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run
from tests.jobs_helpers import write_data

OPTIONS = (
    *("--text-column", "title", "--text-column", "body"),
    *("--label-column", "tags", "--label-separator", "|"),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the same rows as rows.jsonl, rows.csv.gz and rows.tsv."""
    folder = tmp_path_factory.mktemp("files")
    source = write_data(folder / "source.jsonl", 150, seed=3)
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    parts = [(*row["text"].split(" ", 1), [*row["labels"], "all"]) for row in rows]
    lines = [json.dumps({"text": f"{title}\n{body}", "labels": labels}) for title, body, labels in parts]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    for name, mark in (("rows.csv", ","), ("rows.tsv", "\t")):
        table = [["body", "tags", "title"], *([body, "|".join(tags), title] for title, body, tags in parts)]
        (folder / name).write_text("\n".join(mark.join(cells) for cells in table))
    (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes()))
    return folder


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.tsv"])
@pytest.mark.parametrize("how", [("label-tree",), ("plt", "-p", "solver=sgd", "--stream")])
def test_tables_are_read_by_every_command(
    run_here: Run, files: Path, tmp_path: Path, name: str, how: tuple[str, ...]
) -> None:
    store = tmp_path / "store"
    found: dict[str, list[Any]] = {}
    for model, file, options in (("a", files / "rows.jsonl", ()), ("b", files / name, OPTIONS)):
        data = ("--data", file, *options, "--json")
        answers = found.setdefault(model, [])
        trained = answer(run_here("train", *how, "--model", model, "--valid", file, *data, store=store))
        answers.append(trained["metrics"])
        answers.append(answer(run_here("estimate", *data, store=store)))
        evaluated = answer(run_here("evaluate", model, *data, store=store))
        del evaluated["us_per_row"]
        answers.append(evaluated)
        tuned = answer(run_here("thresholds", model, "--test", file, *data, store=store))
        answers.append([tuned["test_macro_f"], tuned["labels"]])
        done = run_here("predict", model, *data, store=store)
        assert done.returncode == 0, done.stderr
        answers.append([json.loads(line)["labels"] for line in done.stdout.splitlines()])
    assert len(found["a"][-1]) == 150
    assert found["a"] == found["b"]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("rows.tsv",), "rows.tsv:1: expected one column 'text', found columns 'body', 'tags', 'title'"),
        (("rows.jsonl", "--label-column", "tags"), "expected a file that ends in .csv, .tsv, .parquet"),
        (("rows.tsv", "--text-column", "a=0"), "text column 'a': expected a weight from 1 to 9, found 0"),
    ],
)
def test_what_is_wrong_with_columns_is_told(
    run_here: Run, files: Path, tmp_path: Path, arguments: tuple[str, ...], fault: str
) -> None:
    name, *options = arguments
    done = run_here(
        "train", "ovr", "--model", "m", "--data", files / name, *options, store=tmp_path / "store"
    )
    assert done.returncode == 2 and fault in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_table_that_breaks_off_while_it_is_predicted(run_here: Run, files: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    answer(
        run_here(
            "train", "ovr", "--model", "m", "--data", files / "rows.tsv", *OPTIONS, "--json", store=store
        )
    )
    broken = tmp_path / "broken.csv"
    broken.write_text('text\nfirst1\n"first2\n')
    done = run_here("predict", "m", "--data", broken, store=store)
    assert done.returncode == 2 and "broken.csv:3: expected a closing quote" in done.stderr


@pytest.mark.parametrize("how", [("label-tree",), ("plt", "-p", "solver=sgd", "--stream")])
def test_a_directory_of_documents_is_read_where_a_labelled_file_is(
    run_here: Run, files: Path, tmp_path: Path, how: tuple[str, ...]
) -> None:
    folder, store = tmp_path / "corpus", tmp_path / "store"
    folder.mkdir()
    for number, line in enumerate((files / "rows.jsonl").read_text().splitlines()):
        row = json.loads(line)
        (folder / f"{number:03}.txt").write_text(row["text"])
        (folder / f"{number:03}.key").write_text("\n".join(row["labels"]))
    found: dict[str, list[Any]] = {}
    for model, data in (("a", files / "rows.jsonl"), ("b", folder)):
        options = ("--data", data, "--json")
        trained = answer(run_here("train", *how, "--model", model, "--valid", data, *options, store=store))
        estimated = answer(run_here("estimate", *options, store=store))
        evaluated = answer(run_here("evaluate", model, *options, store=store))
        del evaluated["us_per_row"]
        tuned = answer(run_here("thresholds", model, *options, store=store))
        found[model] = [trained["metrics"], estimated, evaluated, tuned["validation_macro_f"]]
        assert "warnings" not in trained
    assert found["a"] == found["b"]
    (folder / "007.key").unlink()
    trained = answer(run_here("train", *how, "--model", "c", "--data", folder, "--json", store=store))
    assert trained["warnings"] == ["1 of 150 documents have no file of subjects: rows without labels"]
