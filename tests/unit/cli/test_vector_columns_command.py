"""The commands read a column of vectors, in lines of JSON and in Parquet, as a file beside them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.vectors import write_files_with_vectors
from tests.unit.cli.conftest import Cli

EMB = "--vector-column", "emb"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train, valid and new rows: lines and a table with a column `emb`, and a .npy file."""
    folder = tmp_path_factory.mktemp("files")
    for data in write_files_with_vectors(folder):
        rows = [json.loads(line) for line in data.read_text().splitlines()]
        vectors = np.load(data.with_suffix(".npy"))
        write_lines(data, ({**row, "emb": vectors[i].tolist()} for i, row in enumerate(rows)))
        cells = {name: [row[name] for row in rows] for name in ("text", "labels")}
        table = pa.table({**cells, "emb": pa.array(vectors.tolist(), pa.list_(pa.float32()))})
        parquet.write_table(table, data.with_suffix(".parquet"))
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores") / "store"


def train(cli: Cli, *arguments: object, model: str = "m") -> Any:
    """Train a small version; return its report."""
    how = "train", "label-tree", "-p", "vectors.dims=9", "--model", model
    return cli.answers(*how, *arguments)


@pytest.fixture
def trained(cli: Cli, files: Path) -> Any:
    data = "--data", files / "train.jsonl", "--valid", files / "valid.jsonl"
    return train(cli, *data, *EMB, "--keep-rows")


def test_a_column_makes_the_same_version_as_a_file(cli: Cli, files: Path, trained: Any) -> None:
    beside = "--vectors", files / "train.npy"
    train(cli, "--data", files / "train.jsonl", *beside, model="f")
    train(cli, "--data", files / "train.parquet", *EMB, model="t")
    for name, how in (("s", EMB), ("b", beside)):
        train(cli, "--data", files / "train.jsonl", *how, "--stream", model=name)
    lines = [cli.lines("predict", name, "--data", files / "valid.jsonl", *EMB) for name in "mftsb"]
    scores = [[answer["labels"] for answer in each] for each in lines]
    assert scores[0] == scores[1] == scores[2]
    assert scores[3] == scores[4]


def valid(files: Path, suffix: str = "jsonl") -> tuple[object, ...]:
    return "--data", files / f"valid.{suffix}", *EMB


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_every_command_reads_a_column(cli: Cli, files: Path, suffix: str, trained: Any) -> None:
    assert cli.answers("evaluate", "m", *valid(files, suffix))["P@1"] == pytest.approx(
        trained["metrics"]["P@1"]
    )
    test = "--test", files / f"train.{suffix}"
    cli.answers("thresholds", "m", *valid(files, suffix), *test)
    cli.answers("calibrate", "m", *valid(files, suffix))
    cli.answers("compare", "m@1", "m", *valid(files, suffix), "--resamples", 100)
    extended = cli.answers("extend", "m", "--data", files / f"new.{suffix}", *EMB)
    assert extended["grown"]["labels_added"] == 1


def test_a_first_model_reads_a_column(cli: Cli, files: Path) -> None:
    tried = "try", files / "train.parquet", *EMB, "--no-serve", "--model", "t"
    assert cli.says(*tried)
    assert cli.answers("evaluate", "t", *valid(files))["P@1"] > 50


def test_rows_to_extend_with_have_vectors(cli: Cli, files: Path) -> None:
    train(cli, "--data", files / "train.jsonl", *EMB, model="p")
    rows = "--rows", files / "train.jsonl"
    cli.answers("extend", "p", "--data", files / "new.parquet", *rows, *EMB)
    assert cli.answers("evaluate", "p", "--data", files / "new.jsonl", *EMB)["P@1"] == 100


@pytest.mark.parametrize("how", ["column", "files"])
def test_combined_versions_take_vectors(cli: Cli, files: Path, how: str, trained: Any) -> None:
    pytest.importorskip("sklearn")
    fast = "--beam-width", 10, "--ranker", "linear"
    rerank = "--rerank", files / "train.jsonl"
    beside = "--vectors", files / "valid.npy", "--vectors", files / "train.npy"
    data = "--data", files / "valid.jsonl", *(EMB if how == "column" else (*rerank, *beside))
    cli.answers("combine", "--member", "m@1", "--model", "c", *data, *fast)
    assert cli.answers("evaluate", "c", "--data", files / "train.jsonl", *EMB)["P@1"] > 50


@pytest.mark.parametrize("how", ["column", "valid", "folds"])
def test_each_trial_has_the_vectors(cli: Cli, files: Path, how: str, trained: Any) -> None:
    pytest.importorskip("optuna")
    valid_file = "--valid", files / "valid.jsonl"
    beside = "--vectors", files / "train.npy", "--vectors", files / "valid.npy"
    options = {"column": EMB, "valid": (*valid_file, *beside), "folds": ("--folds", 2, *EMB)}
    data = "--data", files / "train.jsonl", *options[how]
    limits = "--trials", 2, "--minutes", 2, "--trainer", "label-tree"
    fixed = "-p", "trees=1", "-p", "vectors.dims=9", "-p", "features.kind=tfidf"
    report = cli.answers("tune", *data, *limits, *fixed, "--model", "u")
    assert len(report["trials"]) == 2
    assert cli.answers("models", "show", "u")["features"]["vectors.dims"] == 9
    assert cli.answers("evaluate", "u", *valid(files))["P@1"] > 50


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_answers_in_files(cli: Cli, files: Path, form: str, trained: Any, tmp_path: Path) -> None:
    for number, how in enumerate((EMB, ("--vectors", files / "valid.npy"))):
        predict = "predict", "m@1", "--data", files / "valid.jsonl", *how
        lines = cli.lines(*predict)
        out = tmp_path / str(number)
        written = cli.answers(*predict, "--out", out, "--format", form)
        assert (written["n_rows"], written["n_bad"], written["n_parts"]) == (120, 0, 1)
        again = cli.answers(*predict, "--out", out, "--format", form)
        assert again["n_there"] == 1
        if form == "jsonl":
            part = (out / "part-000000.jsonl").read_text()
            parts = [json.loads(line) for line in part.splitlines()]
            assert [part["labels"] for part in parts] == [line["labels"] for line in lines]
        other = "predict", "m@1", "--data", files / "valid.jsonl", "--out", out, "--format", form
        cli.refuses("expected answers of the same columns", *other)


def test_lines_without_a_vector_have_an_error(
    cli: Cli, files: Path, trained: Any, tmp_path: Path
) -> None:
    good = json.loads((files / "valid.jsonl").read_text().splitlines()[0])
    bad = [{"text": "a"}, {"text": "a", "emb": None}, {"text": "a", "emb": [0.5] * 3}, [1], "x"]
    rows = write_lines(tmp_path / "rows.jsonl", [good, *bad, {"text": "a", "emb": "0.5"}])
    done = cli("predict", "m@1", "--data", rows, *EMB)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 2 and "labels" in answers[0]
    details = [answer["error"]["detail"] for answer in answers[1:]]
    assert "found no vector" in details[0] and "found no vector" in details[1]
    assert "expected a vector of 24 numbers, found one of 3" in details[2]
    cells = [good["emb"], None, [float("nan")] * 24]
    table = pa.table({"text": ["a"] * 3, "emb": pa.array(cells, pa.list_(pa.float32()))})
    parquet.write_table(table, tmp_path / "rows.parquet")
    done = cli("predict", "m@1", "--data", tmp_path / "rows.parquet", *EMB)
    of_table = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 2 and ["error" in answer for answer in of_table] == [
        False,
        True,
        True,
    ]


def test_what_does_not_go_together_is_refused(cli: Cli, files: Path, trained: Any) -> None:
    beside = "--vectors", files / "valid.npy"
    both = "vectors cannot be used with a vector column"
    for command in (("evaluate", "m@1"), ("predict", "m@1"), ("thresholds", "m@1")):
        cli.refuses(both, *command, *valid(files), *beside)
    cli.refuses(
        "vector column cannot be used with join rows",
        "evaluate",
        "m@1",
        *valid(files),
        "--join-rows",
        "id",
    )
    plain = "predict", "m@1", "--plain"
    cli.refuses("--vector-column cannot be used with --plain", *plain, *EMB, input="a\n")
    cli.refuses("--vectors cannot be used with --plain", *plain, *beside, input="a\n")
    several = "predict", "m@1", "--data", files / "*.jsonl", *beside
    cli.refuses("--vectors: expected one file as --data, found several", *several)
    ray = *several[:3], files / "valid.jsonl", *beside, "--out", "out", "--ray", "auto"
    cli.refuses("--vectors cannot be used with --ray: give --vector-column NAME", *ray)
    stdin = cli("train", "lomtree", "--data", "-", *EMB, "--model", "x")
    message = "xylem: vector column: expected a file, which is read for its vectors first"
    assert stdin.returncode == 2 and message in stdin.stderr
    words = "train", "label-tree", "--data", files / "train.jsonl", "--model", "w"
    cli.answers(*words)
    cli.refuses("found a vector of 24 numbers", "evaluate", "w", *valid(files))
    cli.refuses("found no vector", "evaluate", "m@1", "--data", files / "valid.jsonl")
    named = "evaluate", "m@1", "--data", files / "valid.jsonl", "--vector-column", "vec"
    cli.refuses("valid.jsonl:1: `vec`: expected a vector, found none", *named)


def test_a_cell_of_csv_has_no_vector(cli: Cli, files: Path, trained: Any, tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("text,labels,emb\na,b,0.5 0.25\n")
    message = "vector column: expected a file of .jsonl, .ndjson, .parquet, whose cells"
    for command in (("evaluate", "m@1"), ("predict", "m@1"), ("train", "ovr", "--model", "z")):
        cli.refuses(message, *command, "--data", table, *EMB)
