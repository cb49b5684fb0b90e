"""A search: what it tries, that it goes on where it was, and that it measures what it says."""

import contextlib
import json
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Run
from tests.helpers.datasets_helpers import refused, write_lines
from tests.oracles.problems import dense_labels, dense_rows, flat

from xylem.base.errors import BadData, BadParameter
from xylem.base.rows import Dataset, LabelRows, SparseRows
from xylem.datasets import read_dataset
from xylem.evaluation import labelled_dataset
from xylem.extras.search.parameter_search import SearchRequest, folds_of, search
from xylem.extras.search.search_space import SPACES, Choice, Range, dimensions_of
from xylem.vocabulary.featurizers import featurizer_of
from xylem.workflows.evaluate import evaluate_rows
from xylem.workflows.request import from_json
from xylem.workflows.train import TrainRequest, train_dataset
from xylem_store.store import Store
from xylem_store.version import model_of

COLOURS = ("red", "green", "blue", "white", "black")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows with a word for each of their labels, and noise."""
    rng, rows = np.random.default_rng(5), []
    for _ in range(80):
        labels = sorted(rng.choice(COLOURS, rng.integers(1, 3), replace=False).tolist())
        text = " ".join([*labels, *(f"n{i}" for i in rng.integers(0, 9, 4))])
        rows.append({"text": text, "labels": labels})
    return write_lines(tmp_path_factory.mktemp("searched") / "rows.jsonl", rows)


@pytest.fixture
def request_of(file: Path) -> SearchRequest:
    """A search of two trials, which each trainer begins with its usual values."""
    pytest.importorskip("optuna")
    return SearchRequest(file, trainers=("ovr", "plt"), metric="P@1", minutes=10.0, trials=2)


def test_characters_beside_the_words_are_tried() -> None:
    for fixed, expected in (
        ({}, Choice(("tfidf", "words+chars"))),
        ({"features.min_df": 2}, Choice(("tfidf", "words+chars"))),
        ({"features.char_max": 4}, Choice(("words+chars",))),
        ({"features.kind": "words+chars"}, None),
        ({"features.kind": "chars"}, None),
    ):
        assert dimensions_of("ovr", fixed, are_texts=True).get("features.kind") == expected, fixed
        assert "features.kind" not in dimensions_of("ovr", fixed, are_texts=False)


@pytest.mark.parametrize("name", SPACES)
def test_everything_that_is_tried_is_a_parameter_in_its_range(name: str) -> None:
    dimensions = dimensions_of(name, {}, are_texts=True)
    assert any(key.startswith("features.") for key in dimensions)
    for key, dimension in dimensions.items():
        ends = dimension.values if isinstance(dimension, Choice) else dimension[:3]
        for value in ends:
            from_json(name, {key: value})
        if not isinstance(dimension, Choice):
            assert dimension.low <= dimension.start <= dimension.high
    fixed = {"cost": 1.0, "features.ngram_max": 2}
    assert not fixed.keys() & dimensions_of(name, fixed, are_texts=True).keys()
    hashed = dimensions_of(name, {"features.kind": "hashing"}, are_texts=True)
    assert not any(key.startswith("features.") for key in hashed)


def test_a_value_is_that_of_a_training_on_the_other_rows(request_of: SearchRequest) -> None:
    found = search(request_of)
    assert {each.trainer for each in found} == {"ovr", "plt"}
    assert found[0].value >= found[1].value
    best = found[0]
    (fold,) = folds_of(read_dataset(request_of.data), 1, 0)
    request = TrainRequest(trainer=best.trainer, data=Path(), parameters=best.parameters)
    model = model_of(train_dataset(fold.train, request))
    report = evaluate_rows(model, labelled_dataset(fold.held_out, featurizer_of(model))).report
    assert best.value == pytest.approx(report["P@1"])


def test_a_study_is_gone_on_with_and_no_other_is(
    request_of: SearchRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "a study"
    short = replace(request_of, trainers=("ovr",), study=study, trials=3)
    first = search(short)
    more = search(replace(short, trials=5))
    assert (len(first), len(more)) == (3, 5)
    assert all(each in more for each in first)
    assert search(replace(short, trials=4)) == more  # there are as many already
    other = tmp_path / "other.jsonl"
    other.write_text(request_of.data.read_text() + '{"text": "red", "labels": ["red"]}\n')
    for changes, message in (
        ({"metric": "P@3"}, r"--study: expected a study with the same .*found"),
        ({"data": other}, "--study: expected a study with the same"),
        ({"study": request_of.data}, "--study: expected a file that xylem tune wrote"),
    ):
        with refused(BadParameter, message):
            search(replace(short, **changes))
    assert request_of.data.read_text().startswith("{"), "what is no study stays as it is"
    monkeypatch.setitem(
        SPACES["ovr"], "cost", Range(0.1, 9.0, 0.5)
    )  # as another release may have it
    with pytest.raises(
        BadParameter, match=r"--study: expected a study with the same .* spaces of this release"
    ):
        search(replace(short, trials=6))


def test_a_search_that_is_killed_is_gone_on_with(request_of: SearchRequest, tmp_path: Path) -> None:
    study = tmp_path / "study"
    asked = (
        "--data",
        request_of.data,
        "--model",
        "m",
        "--store",
        tmp_path / "store",
        "--study",
        study,
    )
    options = ("--trainer", "ovr", "--metric", "P@1", "--threads", "1")
    command = [sys.executable, "-m", "xylem.cli.entry", "tune", *map(str, asked), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and n_ended(study) < 2:
            time.sleep(0.05)
        process.kill()
    kept = n_ended(study)
    assert kept >= 2 and not Store(tmp_path / "store").models()
    found = search(replace(request_of, trainers=("ovr",), study=study, trials=kept + 2))
    assert len(found) == kept + 2


def n_ended(study: Path) -> int:
    """The trials that have ended in a study that another process writes, 0 before it is one."""
    if not study.exists():
        return 0
    with contextlib.closing(sqlite3.connect(study)) as database:
        try:
            return database.execute(
                "SELECT count(*) FROM trials WHERE state = 'COMPLETE'"
            ).fetchone()[0]
        except sqlite3.OperationalError:  # its tables are being made, or it is being written to
            return 0


def test_the_same_seed_tries_the_same_and_folds_count_each_row(request_of: SearchRequest) -> None:
    asked = replace(request_of, trainers=("ovr",), trials=3, folds=2, seed=7)
    one, two = search(asked), search(asked)
    assert [(each.parameters, each.value) for each in one] == [
        (each.parameters, each.value) for each in two
    ]
    (by_file,) = search(replace(asked, folds=1, trials=1, valid=asked.data))
    assert by_file.value == 100.0  # on its own training rows


def test_a_trial_that_takes_longer_than_the_search_is_given_up(
    request_of: SearchRequest, tmp_path: Path
) -> None:
    asked = replace(request_of, trainers=("ovr",), study=tmp_path / "study")
    with pytest.raises(BadParameter, match="--minutes: expected time for one trial, found 1e-09"):
        search(replace(asked, minutes=1e-9))
    kept = search(replace(asked, trials=1))
    assert search(replace(asked, minutes=1e-9)) == kept


def test_what_cannot_be_searched_is_refused(request_of: SearchRequest) -> None:
    for changes, words in (
        (
            {"trainers": ("ovr", "huffman-tree")},
            r"--trainer: expected some of .*found 'huffman-tree'",
        ),
        ({"trainers": ("ovr", "ovr")}, "expected each once"),
        ({"metric": "accuracy"}, "--metric: expected one of P@1"),
        ({"folds": 21}, "--folds: expected 1 to 20, found 21"),
        ({"folds": 2, "valid": Path("valid.jsonl")}, "--folds cannot be used with --valid"),
        ({"fixed": ("no_such=1",)}, "no_such: expected a parameter of"),
        ({"fixed": ("cost=-1",)}, "cost: expected"),
        ({"study": Path("none/study")}, "--study: expected a file in a directory"),
    ):
        with refused(BadParameter, words):
            search(replace(request_of, **changes))
    with pytest.raises(BadData, match="rows: expected 5 rows or more, found 4"):
        list(folds_of(dataset(4, texts=True), 1, 0))


def test_the_command_publishes_the_best_trained_on_all_rows(
    run_here: Run, file: Path, tmp_path: Path
) -> None:
    pytest.importorskip("optuna")
    home = tmp_path / "store"
    tune = partial(
        run_here, "tune", "--data", file, "--model", "best", "--trainer", "ovr", "--trials", 2
    )
    options = ("--metric", "nDCG@5", "-p", "link=hinge2", "--json")
    done = tune(*options, "-p", "arity=8", store=home)
    assert (done.returncode, "arity" in done.stderr) == (2, True)
    report = json.loads(tune(*options, store=home).stdout)
    assert (report["model"], report["version"], report["metric"]) == ("best", 1, "nDCG@5")
    assert len(report["trials"]) == 2 and report["best"] == report["trials"][0]
    manifest = Store(home).manifest("best", 1)
    assert (manifest.data.rows, manifest.trainer.name) == (80, "ovr")
    for key, value in report["best"]["parameters"].items():
        kept = manifest.features if key.startswith("features.") else manifest.trainer.parameters
        assert kept[key.removeprefix("features.")] == value
    assert all(each["parameters"]["link"] == "hinge2" for each in report["trials"])
    table = tune(store=home).stdout
    assert "The best of 2 trials on held-out rows" in table and "Published best@2" in table


def dataset(n_rows: int, *, texts: bool) -> Dataset:
    """Row i has i % 3 labels and i % 4 features, and its number as text."""
    labels = LabelRows(*flat([list(range(i % 3)) for i in range(n_rows)]), 3)
    ptr, features = flat([list(range(i % 4)) for i in range(n_rows)])
    made = Dataset("rows", "0" * 64, n_rows, labels, np.arange(n_rows, dtype=np.int32))
    if texts:
        return replace(made, texts=[str(i) for i in range(n_rows)])
    return replace(
        made, rows=SparseRows(ptr, features, np.arange(len(features), dtype=np.float32), 4)
    )


@pytest.mark.parametrize(("folds", "parts"), [(1, 5), (2, 2), (3, 3), (7, 7)])
def test_each_row_is_held_out_once_and_else_trained_on(folds: int, parts: int) -> None:
    n_rows = 31
    found = list(folds_of(dataset(n_rows, texts=True), folds, 3))
    assert len(found) == folds
    held_out = [fold.held_out.texts for fold in found]
    held = [text for some in held_out for text in some]
    assert len(set(held)) == len(held)
    assert len(held) == n_rows if folds > 1 else n_rows // parts <= len(held) <= n_rows // parts + 1
    for fold in found:
        both = [*fold.train.texts, *fold.held_out.texts]
        assert sorted(both, key=int) == [str(i) for i in range(n_rows)]
    again = folds_of(dataset(n_rows, texts=True), folds, 3)
    assert held_out == [fold.held_out.texts for fold in again]


@pytest.mark.parametrize("texts", [True, False])
def test_what_is_taken_is_what_the_rows_had(texts: bool) -> None:
    whole, chosen = dataset(23, texts=texts), np.array([0, 3, 4, 11, 22])
    some = whole.take(chosen)
    assert (some.n_rows, some.labels.n_labels) == (5, 3)
    assert some.unknown_labels.tolist() == chosen.tolist()
    np.testing.assert_array_equal(dense_labels(some.labels), dense_labels(whole.labels)[chosen])
    if texts:
        assert some.texts == [str(row) for row in chosen.tolist()]
    else:
        np.testing.assert_array_equal(dense_rows(some.rows), dense_rows(whole.rows)[chosen])
