"""The commands read a file of vectors beside each file of data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.vectors import write_files_with_vectors
from tests.unit.cli.conftest import Cli


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with train, valid and new rows: a .jsonl file and its .npy file each."""
    folder = tmp_path_factory.mktemp("files")
    write_files_with_vectors(folder)
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores") / "store"


def data(files: Path, name: str) -> tuple[object, ...]:
    return "--data", files / f"{name}.jsonl", "--vectors", files / f"{name}.npy"


@pytest.fixture
def trained(cli: Cli, files: Path) -> Any:
    valid = "--valid", files / "valid.jsonl", "--vectors", files / "valid.npy"
    how = "label-tree", "-p", "vectors.dims=9", "--keep-rows"
    return cli.answers("train", *how, *data(files, "train"), *valid, "--model", "m")


def test_every_command_reads_them(cli: Cli, files: Path, trained: Any) -> None:
    evaluated = cli.answers("evaluate", "m", *data(files, "valid"))
    for metric in ("P@1", "P@3", "P@5"):
        assert evaluated[metric] == pytest.approx(trained["metrics"][metric])
    shown = cli.answers("models", "show", "m")["features"]
    numbers = np.load(files / "train.npy").shape[1]
    assert (shown["vectors.source"], shown["vectors.numbers"]) == ("given", numbers)
    cli.answers("thresholds", "m", *data(files, "valid"))
    cli.answers("calibrate", "m", *data(files, "valid"))
    lines = cli.lines("predict", "m", *data(files, "valid"))
    instances = [
        {"text": json.loads(line)["text"], "vector": vector}
        for line, vector in zip(
            (files / "valid.jsonl").read_text().splitlines(),
            np.load(files / "valid.npy").tolist(),
            strict=True,
        )
    ]
    typed = cli.lines("predict", "m", input="".join(json.dumps(i) + "\n" for i in instances))
    assert [line["labels"] for line in lines] == [line["labels"] for line in typed]
    cli.answers("compare", "m@1", "m", *data(files, "valid"), "--resamples", 100)
    assert cli.answers("inspect", files / "valid.jsonl")["data"]["rows"] == 120


@pytest.mark.parametrize("trainer", ["label-tree", "ovr", "lomtree"])
def test_streams_and_versions_that_go_on(cli: Cli, files: Path, trainer: str, trained: Any) -> None:
    how = trainer, *data(files, "train"), "--model", "s"
    cli.answers("train", *how, "--stream")
    assert cli.answers("evaluate", "s", *data(files, "valid"))["P@1"] > 50
    if trainer == "lomtree":
        return
    extended = cli.answers("extend", "m", *data(files, "new"))
    assert extended["grown"]["labels_added"] == 1
    rows = "--rows", files / "train.jsonl", "--vectors", files / "train.npy"
    cli.answers("train", trainer, *data(files, "train"), "--model", "p")
    cli.answers("extend", "p", *data(files, "new"), *rows)
    assert cli.answers("evaluate", "p", *data(files, "new"))["P@1"] == 100


def test_first_models_take_them(cli: Cli, files: Path) -> None:
    tried = ("try", files / "train.jsonl", "--vectors", files / "train.npy", "--no-serve")
    assert cli.says(*tried, "--model", "t")
    assert cli.answers("evaluate", "t", *data(files, "valid"))["P@1"] > 50


def test_what_does_not_go_together_is_refused(cli: Cli, files: Path, trained: Any) -> None:
    train = "train", "label-tree", "--model", "m", "--data", files / "train.jsonl"
    one = "--vectors", files / "train.npy"
    valid = "--valid", files / "valid.jsonl"
    cli.refuses("expected a file for each file of data, 2 (train.jsonl,", *train, *valid, *one)
    other = "--vectors", files / "valid.npy"
    cli.refuses("expected as many rows as train.jsonl has, 150, found 120", *train, *other)
    cli.refuses("vectors cannot be used with join rows", *train, *one, "--join-rows", "id")
    cli.refuses("vectors.dims: expected vectors beside the texts", *train, "-p", "vectors.dims=3")
    cli.refuses("vectors.none: ", *train, *one, "-p", "vectors.none=3")
    auto = "-p", "vectors.weight=auto", "--stream"
    cli.refuses("vectors.weight: expected a number for a stream, found auto", *train, *one, *auto)
    cli.refuses("found no vector", "evaluate", "m", "--data", files / "valid.jsonl")
    words = "train", "label-tree", "--model", "w", "--data", files / "train.jsonl"
    cli.answers(*words)
    cli.refuses("found a vector of 24 numbers", "evaluate", "w", *data(files, "valid"))
    cli.refuses("--vectors cannot be used with --plain or a text", "predict", "m", "a text", *one)
    short = "predict", "m", "--data", files / "valid.jsonl", *one
    done = cli(*short)
    assert done.returncode == 2
    assert "expected as many rows as valid.jsonl has, 120, found 150" in done.stderr


def test_a_ranker_finds_near_rows_by_words(cli: Cli, files: Path) -> None:
    pytest.importorskip("sklearn")
    how = "train", "label-tree", *data(files, "train"), "--rerank", "--model", "r"
    assert cli.answers(*how)["rerank"]["kept"] in (True, False)
    assert cli.answers("evaluate", "r", *data(files, "valid"))["P@1"] > 50
    member = "combine", "--member", "r", "--model", "c", *data(files, "valid")
    if cli.answers("models", "show", "r")["kind"] == "label-tree":
        cli.answers(*member)
        assert cli.answers("evaluate", "c", *data(files, "train"))["P@1"] > 50
