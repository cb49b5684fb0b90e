"""`xylem extend` and its bad input: files, versions that cannot be extended, rows that come twice."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store.names import all_names
from model_store.origin import read_origin
from model_store.store import Store
from service.base.errors import BadInput
from service.base.rows import LabelRows, SparseRows
from service.db import FILE_NAME
from service.db.of_store import ready_database
from service.importers.registry import import_model
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.thresholds.methods.ofo import Start, no_counts
from service.thresholds.store.codec import Tuned
from service.thresholds.store.state import ThresholdDatabase
from service.trainers import TrainingSet
from service.vocabulary.featurizers import featurizer_of
from service.workflows.calibrate import calibrate_and_publish
from service.workflows.combine import CombineRequest, combine_and_publish
from service.workflows.extend import carry_thresholds, extend_and_publish
from service.workflows.going_on import join_rows
from service.workflows.train import TrainReport, TrainRequest, train_and_publish
from tests.conftest import Command
from tests.datasets_helpers import write_lines
from tests.foreign_models import save_pecos

WORDS = [f"word{i}" for i in range(12)]


def _rows(n: int, *more: str) -> list[dict[str, Any]]:
    return [
        {"text": f"{WORDS[i % 12]} {WORDS[i * 5 % 7]} text", "labels": [f"l{i % 12}", *more]}
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with versions of several trainers, and data. Not to be changed but by new versions."""
    home = tmp_path_factory.mktemp("extending")
    old = write_lines(home / "old.jsonl", _rows(300))
    write_lines(home / "new.jsonl", [{"text": f"fresh {WORDS[0]}", "labels": ["l0", "monday"]}] * 5)
    write_lines(home / "other.jsonl", [{"features": {"a": 1.0}, "labels": ["monday"]}])
    write_lines(home / "many.jsonl", [{"text": "word1", "labels": [f"n{i}" for i in range(2000)]}])
    store = Store(home / "store")
    for name, trainer, parameters in (
        ("tree", "label-tree", ("leaf_size=4",)),
        ("lom", "lomtree", ()),
        ("sgd", "plt", ("solver=sgd", "epochs=1")),
        ("leaf", "fastxml", ("trees=1",)),
    ):
        train_and_publish(store, name, TrainRequest(trainer, old, parameters=parameters))
    combine_and_publish(store, "both", CombineRequest([("tree", 1)], old))
    save_pecos(home / "pecos")
    import_model(store, "pecos", home / "pecos")
    keeping = TrainRequest("label-tree", old, parameters=("leaf_size=4",), keep_rows=True)
    train_and_publish(store, "kept", keeping)
    return home


def _extend(store: Store, model: str, data: Path, version: int | str = "latest", *rows: Path) -> TrainReport:
    return extend_and_publish(store, model, TrainRequest("", data, base=(model, version), rows=rows))


def test_a_new_label_is_answered_and_the_next_one_too(home: Path) -> None:
    store = Store(home / "store")
    calibrate_and_publish(store, "kept", "latest", write_lines(home / "valid.jsonl", _rows(150)))
    first = _extend(store, "kept", home / "new.jsonl")
    more = write_lines(
        home / "more.jsonl", [{"text": "newer word3", "labels": ["tuesday", "a first one"]}] * 3
    )
    second = _extend(store, "kept", more)
    assert first.grown is not None and second.grown is not None
    assert (first.grown["labels_added"], second.grown["labels_added"]) == (1, 2)
    model = store.open("kept")
    assert model.manifest.n_labels == 15
    assert all_names(model.labels)[-3:] == ["monday", "a first one", "tuesday"]
    rows = featurizer_of(model).transform_texts([f"fresh {WORDS[0]}", "newer word3"])
    found = make_predictor(model).predict(rows, PredictOptions(top_r=2))
    assert 12 in found.labels[:2] and {13, 14} & set(found.labels[2:].tolist())
    assert model.arrays["labels/counts"][-3:].tolist() == [5, 3, 3]
    old = store.open("kept", 2)
    for array in ("calibration/x", "calibration/y"):
        assert model.arrays[array].tolist() == old.arrays[array].tolist()
    origin = read_origin(model.arrays)
    assert origin["parent"]["version"] == first.version and "calibration" in origin


def test_thresholds_of_calibrated_scores_are_not_for_scores_that_are_not(home: Path) -> None:
    store, valid = Store(home / "store"), write_lines(home / "valid.jsonl", _rows(150))
    calibrate_and_publish(store, "tree", 1, valid)
    base = store.open("tree")
    tuned = Tuned("ofo", "zero", Start(1.0, 2.0), np.full(12, 0.25, np.float32), no_counts(12))
    with ready_database(store.root) as database:
        kept_in = ThresholdDatabase(database)
        kept_in.save("tree", base.manifest.version, tuned)
        going_on = TrainRequest("label-tree", home / "old.jsonl", base=("tree", base.manifest.version))
        plain = train_and_publish(store, "tree", going_on)
        assert not carry_thresholds(store, "tree", plain.version, kept_in)
        again = train_and_publish(store, "tree", replace(going_on, valid=valid, calibrate=True))
        assert carry_thresholds(store, "tree", again.version, kept_in)


def test_the_rows_may_come_from_files(home: Path, tmp_path: Path) -> None:
    store = Store(home / "store")
    report = _extend(store, "tree", home / "new.jsonl", 1, home / "old.jsonl")
    assert store.manifest("tree", report.version).data.rows == 305 and not report.warnings
    other = write_lines(tmp_path / "elsewhere.jsonl", _rows(30))
    report = _extend(store, "tree", home / "new.jsonl", 1, other)
    assert report.warnings == ["elsewhere.jsonl: not what tree@1 was trained on"]


@pytest.mark.parametrize(
    ("model", "data", "rows", "message"),
    [
        ("tree@1", "new.jsonl", None, "expected --rows, those that tree@1 was trained on, or a version"),
        ("tree@1", "new.jsonl", "gone.jsonl", "gone.jsonl: expected a readable file"),
        ("kept@1", "old.jsonl", None, "labels that kept@1 does not have, found 12, which it has"),
        ("kept@1", "many.jsonl", None, "at most 1000 new labels at once for 12 of kept@1, found 2000"),
        ("kept@1", "other.jsonl", None, "other.jsonl: expected text or ids and values, which this model"),
        ("lom@1", "new.jsonl", "old.jsonl", "one of lomtree, whose labels come with the rows of its stream"),
        ("sgd@1", "new.jsonl", "old.jsonl", "solver: expected batch, found sgd"),
        (
            "leaf@1",
            "new.jsonl",
            "old.jsonl",
            "ovr, plt, huffman-tree, learned-tree, found one of fastxml",
        ),
        ("pecos@1", "new.jsonl", "old.jsonl", "huffman-tree, learned-tree, found one of import-pecos"),
        ("both@1", "new.jsonl", "old.jsonl", "expected a version of trees, found both@1, a combined one"),
    ],
)
def test_what_cannot_be_extended_is_refused_in_a_sentence(
    home: Path, command: Command, model: str, data: str, rows: str | None, message: str
) -> None:
    more = [] if rows is None else ["--rows", home / rows]
    before = Store(home / "store").versions(model[:-2])
    status, _, told = command("extend", model, "--data", home / data, *more, store=home / "store")
    assert status != 0 and message in told and told.count("\n") == 1
    assert Store(home / "store").versions(model[:-2]) == before


def test_rows_are_kept_of_what_is_in_memory_alone(home: Path) -> None:
    request = TrainRequest("lomtree", home / "old.jsonl", stream=True, keep_rows=True)
    with pytest.raises(BadInput, match="keep_rows: expected rows in memory"):
        train_and_publish(Store(home / "store"), "no", request)


def test_a_new_row_that_is_an_old_one_gives_it_its_labels() -> None:
    rows = SparseRows(
        np.array([0, 2, 3, 3]), np.array([0, 2, 1], np.int32), np.array([0.5, 0.5, 1.0], np.float32), 3
    )
    old = TrainingSet(rows, LabelRows(np.array([0, 1, 2, 3]), np.array([0, 1, 0], np.int32), 4))
    new = TrainingSet(
        rows.take(np.array([1, 2, 0, 0])),
        LabelRows(np.array([0, 2, 3, 4, 5]), np.array([0, 3, 2, 2, 3], np.int32), 4),
    )
    found = join_rows(old, new)
    assert found.rows.indptr.tolist() == [0, 2, 3, 3, 3]
    labels = np.split(found.labels.indices, found.labels.indptr[1:-1])
    assert [row.tolist() for row in labels] == [[0, 2, 3], [0, 1, 3], [0], [2]]


@pytest.mark.parametrize("name", ["kept", "tree"])
def test_a_training_goes_on_from_a_version(home: Path, command: Command, name: str) -> None:
    store = Store(home / "store")
    write_lines(home / "next.jsonl", _rows(400))
    options = ["--data", home / "next.jsonl", "--model", name, "--from", f"{name}@1"]
    status, _, told = command("train", "label-tree", *options, store=home / "store")
    assert (status, told) == (0, "")
    made, old = store.open(name), store.open(name, 1)
    assert np.array_equal(made.ensemble.node_label, old.ensemble.node_label)
    assert (made.ensemble.node_bias != old.ensemble.node_bias).any()
    assert made.manifest.data.rows == 400 and made.manifest.features == old.manifest.features
    for more, message in (
        (["-p", "cost=1"], f"from: expected parameters and weights of {name}@1 to stay"),
        (["--data", home / "new.jsonl"], "found 1 others, as 'monday': add them by xylem extend"),
        (["--from", "sgd@1"], "from: expected a version of label-tree, found sgd@1, one of plt"),
        (["--stream"], "from: expected rows in memory"),
    ):
        status, _, told = command("train", "label-tree", *options, *more, store=home / "store")
        assert status == 2 and message in told
    assert store.versions(name)[-1] == made.manifest.version


def test_a_version_is_no_latest_before_it_has_its_thresholds(
    home: Path, command: Command, tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    train_and_publish(store, "m", TrainRequest("label-tree", home / "old.jsonl", keep_rows=True))
    commands = (
        ("extend", "m", "--data", home / "new.jsonl"),
        ("train", "label-tree", "--data", home / "old.jsonl", "--model", "m", "--from", "m@1"),
    )
    database = store.root / FILE_NAME
    database.write_bytes(b"no database" * 500)
    for line in commands:
        status, _, told = command(*line)
        assert status == 1 and "database" in told
        assert store.alias("m", "latest").version == 1
    database.unlink()
    for line in commands:
        assert command(*line)[0] == 0
        assert store.alias("m", "latest").version == store.versions("m")[-1]
