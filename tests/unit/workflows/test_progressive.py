"""OFO beside a training: rows are counted before they are learnt, once each, by the trees of that moment."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store.ensemble import TreeEnsemble
from model_store.store import Store
from service.base.errors import BadData, BadInput, BadParameter
from service.base.rows import LabelRows, SparseRows
from service.db.engine import Database, default_url
from service.executors.local import Crew
from service.thresholds.methods.ofo import lower_bounds, thresholds_of
from service.thresholds.store.state import ThresholdDatabase
from service.trainers import TrainingSet, fit, parse_parameters, windows
from service.trainers.source import MemorySource, Tools, derived_seed
from service.trainers.windows import STAGE
from service.workflows.progressive import ProgressiveThresholds, predictor_so_far
from service.workflows.train import TrainRequest, train_and_publish
from service.workflows.tune import learn
from tests.contract.test_every_trainer import bits_of, learnable, write_file
from tests.oracles.problems import dense_rows, to_labels, to_rows

SGD = ["solver=sgd", "tree=random", "arity=3", "prune=0"]
Part = tuple[TreeEnsemble, TrainingSet]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ThresholdDatabase]:
    """Where thresholds are kept."""
    (tmp_path / "store").mkdir()
    opened = Database(default_url(tmp_path / "store"))
    yield ThresholdDatabase(opened)
    opened.close()


def data_of(n_rows: int = 90) -> TrainingSet:
    """Rows of several labels."""
    x, y = learnable(n_rows)
    y = y | np.roll(y, 1, axis=0) & (np.arange(n_rows) % 3 == 0)[:, None]
    return TrainingSet(to_rows(x), to_labels(y))


def shown_by(data: TrainingSet, items: list[str], on_rows: Any = None) -> list[Part]:
    """Return what a training shows; each part is told to `on_rows` too."""
    parts: list[Part] = []

    def show(ensemble: TreeEnsemble, rows: TrainingSet) -> None:
        parts.append((ensemble, rows))
        if on_rows is not None:
            on_rows(ensemble, rows)

    fit("plt", parse_parameters("plt", items), MemorySource(data), Tools(3, Crew(2), on_rows=show))
    return parts


@pytest.mark.parametrize(("trees", "entries_max"), [(1, 300), (1, 1 << 20), (2, 500)])
def test_every_row_but_those_of_the_first_part_is_shown_once(trees, entries_max, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", entries_max)
    data, items = data_of(93), [f"trees={trees}"]
    shown = np.vstack([dense_rows(part.rows) for _, part in shown_by(data, [*SGD, "epochs=3", *items])])
    assert len(shown) == 93 - 9
    every = {row.tobytes() for row in dense_rows(data.rows)}
    assert len(every) == 93
    assert len({row.tobytes() for row in shown} & every) == len(shown)


def _order(n_rows: int) -> Any:
    """The order of the rows in the first pass."""
    seed = derived_seed(derived_seed(3, 0), 1, 0, 0)
    return np.random.Generator(np.random.PCG64(seed)).permutation(n_rows)


def test_the_trees_shown_have_learnt_the_rows_before_and_no_others():
    data = data_of(60)
    parts = shown_by(data, [*SGD, "epochs=4"])
    in_turn = data.take(_order(60))
    first_of = np.concatenate([[6], 6 + np.cumsum([part.rows.n_rows for _, part in parts])])
    for (ensemble, _), n_before in list(zip(parts, first_of, strict=False))[20::10]:
        cut = int(n_before) - int(n_before) % 6  # trees are made once a part
        before = in_turn.cut(0, cut).take(np.argsort(_order(cut)))  # so that they are learnt in that turn
        alone = fit("plt", parse_parameters("plt", [*SGD, "epochs=1"]), MemorySource(before), Tools(3))
        for name, array in alone.ensemble._asdict().items():
            assert array.tobytes() == getattr(ensemble, name).tobytes(), name


def test_showing_rows_does_not_change_the_tree():
    data, parameters = data_of(), parse_parameters("plt", [*SGD, "epochs=3"])
    plain = fit("plt", parameters, MemorySource(data), Tools(3))
    shown = fit("plt", parameters, MemorySource(data), Tools(3, on_rows=lambda ensemble, rows: None))
    assert bits_of(plain) == bits_of(shown)


@pytest.mark.parametrize("threads", [1, 2])
def test_thresholds_are_those_of_feedback_on_these_rows(database, threads):
    data = data_of(200)
    source = MemorySource(data)
    found = ProgressiveThresholds(source, threads, database)
    parts = shown_by(data, [*SGD, "epochs=2"], found)
    tuned, counters = found.tuned(), None
    label_counts = source.census.label_rows
    for ensemble, rows in parts:
        predictor = predictor_so_far(ensemble, data.rows.n_features)
        counters, thresholds = learn(
            predictor, *rows, tuned.start, label_counts, 200, lambda *told: None, counters
        )
    assert counters is not None
    np.testing.assert_array_equal(tuned.counters.hits, counters.hits)
    np.testing.assert_array_equal(tuned.counters.marks, counters.marks)
    np.testing.assert_array_equal(tuned.thresholds, thresholds)
    bounds = lower_bounds(label_counts, 200, data.labels.n_labels)
    np.testing.assert_array_equal(tuned.thresholds, thresholds_of(tuned.counters, tuned.start, bounds))
    assert found.n_rows == 180


def test_a_version_is_published_with_its_thresholds(tmp_path, database):
    path, store = write_file(tmp_path / "train.txt", *learnable(150)), Store(tmp_path / "store")
    kept = []
    for threads in (1, 2):
        request = TrainRequest("plt", path, parameters=SGD, stream=True, threads=threads)
        report = train_and_publish(store, "m", request, kept_in=database)
        assert report.thresholds is not None
        assert report.thresholds["rows"] == 135
        assert 50 < report.thresholds["validation_macro_f"] <= 100
        loaded = database.load("m", report.version)
        assert loaded is not None
        kept.append(loaded)
    assert kept[0].method == "ofo"
    assert kept[0].thresholds.tobytes() == kept[1].thresholds.tobytes()
    assert kept[0].counters.marks.sum() > 150


def test_what_has_no_thresholds_is_refused(tmp_path, database):
    path, store = write_file(tmp_path / "train.txt", *learnable(30)), Store(tmp_path / "store")
    plt = TrainRequest("plt", path, parameters=SGD, stream=True)
    requests = {
        "--stream": replace(plt, stream=False),
        "scores as they are trained": replace(plt, valid=path, calibrate=True),
        "a trainer of plt, found huffman-tree": TrainRequest("huffman-tree", path, stream=True),
    }
    for message, request in requests.items():
        with pytest.raises(BadParameter, match=f"thresholds: expected {message}"):
            train_and_publish(store, "m", request, kept_in=database)
    one = write_file(tmp_path / "one.txt", *learnable(1))
    with pytest.raises(BadData, match="expected two rows at least to find them on, found one"):
        train_and_publish(store, "m", replace(plt, data=one), kept_in=database)
    changed = write_file(tmp_path / "changed.txt", *learnable(30))

    def change(phase: str, done: int, _: int) -> None:
        if (phase, done) == (STAGE, 0):
            changed.write_text(changed.read_text().replace(":0.", ":1.", 1))

    with pytest.raises(BadInput, match="it has changed"):
        train_and_publish(store, "m", replace(plt, data=changed), change, database)
    assert store.models() == []
    assert database.load("m", 1) is None


def test_labels_that_no_shown_row_has_keep_their_first_threshold(database):
    rows = SparseRows(np.arange(21), np.zeros(20, np.int32), np.ones(20, np.float32), 1)
    carried = np.zeros(20, np.int32)
    carried[_order(20)[0]] = 1  # label 1 only in the first part
    labels = LabelRows(np.arange(21), carried, 3)
    source = MemorySource(TrainingSet(rows, labels))
    found = ProgressiveThresholds(source, 1, database)
    shown_by(TrainingSet(rows, labels), [*SGD, "epochs=1"], found)
    tuned = found.tuned()
    assert tuned.counters.hits[1] == 0
    assert np.isfinite(tuned.thresholds).all()
    assert (tuned.thresholds >= np.float32(0.01)).all()
    assert (tuned.thresholds <= 0.5).all()
