"""OFO beside a training, and thresholds of models whose scores are shares of one.

Beside a training, rows are counted before they are learnt, once each, by the trees of that moment.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.contract.test_every_trainer import bits_of, learnable, write_file
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.measured import learnt
from tests.oracles.problems import dense_rows, to_labels, to_rows

from xylem.base import no_progress
from xylem.base.db.engine import Database, default_url
from xylem.base.errors import BadData, BadInput, BadParameter
from xylem.base.executors.local import Crew
from xylem.base.rows import LabelRows, SparseRows
from xylem.engine.combined_predictor import make_predictor
from xylem.serving.live.opening import open_version
from xylem.thresholds.live.events import instances_of
from xylem.thresholds.methods.ofo import Start, lower_bounds, start_for, thresholds_of
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.thresholds.tuning import TuneRequest, keep
from xylem.trainers import TrainingSet, fit, parse_parameters, windows
from xylem.trainers.source import MemorySource, Tools, derived_seed
from xylem.trainers.windows import STAGE
from xylem.workflows.labelled import read_labelled
from xylem.workflows.progressive import predictor_so_far, thresholds_beside
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem.workflows.tuning import tune
from xylem_store.ensemble import TreeEnsemble
from xylem_store.names import find_name
from xylem_store.store import Store
from xylem_store.version import Model

SGD = ["solver=sgd", "tree=random", "arity=3", "prune=0"]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ThresholdDatabase]:
    """Where thresholds are kept."""
    (tmp_path / "store").mkdir()
    with closing(Database(default_url(tmp_path / "store"))) as opened:
        yield ThresholdDatabase(opened)


def data_of(n_rows: int = 90) -> TrainingSet:
    """Rows of several labels."""
    x, y = learnable(n_rows)
    y = y | np.roll(y, 1, axis=0) & (np.arange(n_rows) % 3 == 0)[:, None]
    return TrainingSet(to_rows(x), to_labels(y))


def shown_by(data: TrainingSet, items: list[str], on_rows: Any = None) -> list[Any]:
    """Return what a training shows; each part is told to `on_rows` too."""
    parts = []

    def show(ensemble: TreeEnsemble, rows: TrainingSet) -> None:
        parts.append((ensemble, rows))
        if on_rows is not None:
            on_rows(ensemble, rows)

    fit("plt", parse_parameters("plt", items), MemorySource(data), Tools(3, Crew(2), on_rows=show))
    return parts


@pytest.mark.parametrize(("trees", "entries_max"), [(1, 300), (1, 1 << 20), (2, 500)])
def test_every_row_but_those_of_the_first_part_is_shown_once(
    trees: int, entries_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", entries_max)
    data = data_of(93)
    parts = shown_by(data, [*SGD, "epochs=3", f"trees={trees}"])
    shown = np.vstack([dense_rows(part.rows) for _, part in parts])
    assert len(shown) == 93 - 9
    every = {row.tobytes() for row in dense_rows(data.rows)}
    assert len(every) == 93
    assert len({row.tobytes() for row in shown} & every) == len(shown)


def order_of(n_rows: int) -> Any:
    """The order of the rows in the first pass."""
    seed = derived_seed(derived_seed(3, 0), 1, 0, 0)
    return np.random.Generator(np.random.PCG64(seed)).permutation(n_rows)


def test_progressive_scores_are_of_trees_of_the_rows_before() -> None:
    data = data_of(60)
    parts = shown_by(data, [*SGD, "epochs=4"])
    in_turn = data.take(order_of(60))
    first_of = np.concatenate([[6], 6 + np.cumsum([part.rows.n_rows for _, part in parts])])
    for (ensemble, _), n_before in list(zip(parts, first_of, strict=False))[20::10]:
        cut = int(n_before) - int(n_before) % 6  # trees are made once a part
        before = in_turn.cut(0, cut).take(
            np.argsort(order_of(cut))
        )  # so that they are learnt in that turn
        alone = fit(
            "plt", parse_parameters("plt", [*SGD, "epochs=1"]), MemorySource(before), Tools(3)
        )
        for name, array in alone.ensemble._asdict().items():
            assert array.tobytes() == getattr(ensemble, name).tobytes(), name


def test_showing_rows_does_not_change_the_tree() -> None:
    data, parameters = data_of(), parse_parameters("plt", [*SGD, "epochs=3"])
    plain = fit("plt", parameters, MemorySource(data), Tools(3))
    shown = fit(
        "plt", parameters, MemorySource(data), Tools(3, on_rows=lambda ensemble, rows: None)
    )
    assert bits_of(plain) == bits_of(shown)


@pytest.mark.parametrize("threads", [1, 2])
def test_thresholds_are_those_of_feedback_on_these_rows(
    database: ThresholdDatabase, threads: int
) -> None:
    data = data_of(200)
    source = MemorySource(data)
    found = thresholds_beside(source, threads, database)
    parts = shown_by(data, [*SGD, "epochs=2"], found)
    tuned, counters = found.tuned(), None
    label_counts = source.census.label_rows
    for ensemble, rows in parts:
        predictor = predictor_so_far(ensemble, data.rows.n_features)
        told = tuned.start, label_counts, 200, counters
        counters, thresholds = learnt(predictor, *rows, *told)
    np.testing.assert_array_equal(tuned.counters, counters)
    np.testing.assert_array_equal(tuned.thresholds, thresholds)
    bounds = lower_bounds(label_counts, 200, data.labels.n_labels)
    np.testing.assert_array_equal(
        tuned.thresholds, thresholds_of(tuned.counters, tuned.start, bounds)
    )
    assert found.n_rows == 180


def test_a_version_is_published_with_its_thresholds(
    tmp_path: Path, database: ThresholdDatabase
) -> None:
    path, store = write_file(tmp_path / "train.txt", *learnable(150)), Store(tmp_path / "store")
    kept = []
    for threads in (1, 2):
        request = TrainRequest(
            trainer="plt", data=path, parameters=SGD, stream=True, thresholds="ofo", threads=threads
        )
        report = train_and_publish(store, "m", request, database=database)
        assert report.thresholds["rows"] == 135
        assert 50 < report.thresholds["validation_macro_f"] <= 100
        kept.append(database.load("m", report.version))
    assert kept[0].method == "ofo"
    assert kept[0].thresholds.tobytes() == kept[1].thresholds.tobytes()
    assert kept[0].counters.marks.sum() > 150


def test_what_has_no_thresholds_is_refused(tmp_path: Path, database: ThresholdDatabase) -> None:
    path, store = write_file(tmp_path / "train.txt", *learnable(30)), Store(tmp_path / "store")
    plt = TrainRequest(trainer="plt", data=path, parameters=SGD, stream=True, thresholds="ofo")
    calibrated = plt.model_copy(update={"valid": path, "calibrate": True})
    with pytest.raises(BadParameter, match="thresholds: expected uncalibrated scores"):
        train_and_publish(store, "m", calibrated, database=database)
    one = write_file(tmp_path / "one.txt", *learnable(1))
    with pytest.raises(BadData, match="expected two rows at least to find them on, found one"):
        train_and_publish(store, "m", plt.model_copy(update={"data": one}), database=database)
    changed = write_file(tmp_path / "changed.txt", *learnable(30))

    def change(phase: str, done: int, _: int) -> None:
        if (phase, done) == (STAGE, 0):
            changed.write_text(changed.read_text().replace(":0.", ":1.", 1))

    with pytest.raises(BadInput, match="it has changed"):
        train_and_publish(store, "m", plt.model_copy(update={"data": changed}), change, database)
    assert store.models() == []
    assert database.load("m", 1) is None


def test_labels_that_no_shown_row_has_keep_their_first_threshold(
    database: ThresholdDatabase,
) -> None:
    rows = SparseRows(np.arange(21), np.zeros(20, np.int32), np.ones(20, np.float32), 1)
    carried = np.zeros(20, np.int32)
    carried[order_of(20)[0]] = 1  # label 1 only in the first part
    labels = LabelRows(np.arange(21), carried, 3)
    data = TrainingSet(rows, labels)
    found = thresholds_beside(MemorySource(data), 1, database)
    shown_by(data, [*SGD, "epochs=1"], found)
    tuned = found.tuned()
    assert tuned.counters.hits[1] == 0
    assert np.isfinite(tuned.thresholds).all()
    assert ((tuned.thresholds >= np.float32(0.01)) & (tuned.thresholds <= 0.5)).all()


N_LABELS, N_WORDS, A_ROW = 30, 6, 3
ALWAYS = "always"


def write_shares(path: Path, n_rows: int, seed: int, *, always: float = 0.0) -> Path:
    """Rows of some labels, three words of each; `always` is true in
    that share of the rows, for no reason.
    """
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n_rows):
        labels = rng.choice(N_LABELS, A_ROW, replace=False)
        words = [f"w{label}x{rng.integers(N_WORDS)}" for label in labels for _ in range(3)]
        names = [f"l{label}" for label in labels] + [ALWAYS] * (rng.random() < always)
        lines.append({"text": " ".join(words), "labels": names})
    return write_lines(path, lines)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    at = tmp_path_factory.mktemp("shares")
    sizes = {"train": 3000, "valid": 1000, "test": 1000}
    return {
        part: write_shares(at / f"{part}.jsonl", n, seed)
        for seed, (part, n) in enumerate(sizes.items())
    }


def trained(trainer: str, data: Path, at: Path) -> Model:
    store = Store(at / trainer)
    train_and_publish(
        store, "shares", TrainRequest(trainer=trainer, data=data, valid=None, parameters=[], seed=1)
    )
    return store.open("shares")


@pytest.mark.parametrize("trainer", ["huffman-tree", "learned-tree"])
def test_ofo_tunes_thresholds_of_shares_as_the_fixed_grid_does(
    trainer: str, files: dict[str, Path], tmp_path: Path
) -> None:
    model = trained(trainer, files["train"], tmp_path)
    request = TuneRequest(["ofo", "fta"], files["valid"], files["test"])
    ofo, fta = tune(model, request, no_progress)
    assert ofo.tuned.start.scale == pytest.approx(A_ROW)
    assert ofo.test.macro_f >= max(fta.test.macro_f - 1, 95)
    assert ofo.test.micro_f >= fta.test.micro_f - 1
    # what OFO itself ends with, whether it was kept or not
    labelled = read_labelled(model, files["valid"], no_progress)
    counts, n_rows = model.arrays["labels/counts"], model.manifest.data.rows
    told = start_for("softmax", model.arrays, n_rows), counts, n_rows
    counters, thresholds = learnt(make_predictor(model), labelled.rows, labelled.labels, *told)
    assert (2 * counters.hits / counters.marks).mean() > 0.85
    assert (thresholds < 1 / A_ROW).all()


def test_a_label_of_nearly_every_row_is_predicted_by_feedback(tmp_path: Path) -> None:
    model = trained(
        "huffman-tree", write_shares(tmp_path / "train.jsonl", 3000, 3, always=0.95), tmp_path
    )
    labelled = read_labelled(
        model, write_shares(tmp_path / "new.jsonl", 200, 4, always=0.95), no_progress
    )
    live = open_version(model).thresholds
    label = find_name(model.labels, ALWAYS)
    moving = live._new_counters(live.start_state())
    moving.count(instances_of(labelled.rows, labelled.labels), np.arange(200))
    n_true = np.count_nonzero(labelled.labels.indices == label)
    counters = moving.snapshot().counters
    assert n_true > 180
    assert counters.hits[label] > 0.9 * n_true
    assert counters.marks[label] <= n_true + 200


def test_scores_of_several_labels_a_row_are_read_as_shares() -> None:
    counts = {"labels/counts": np.array([4, 6])}
    assert start_for("softmax", counts, 10) == Start()
    assert start_for("softmax", counts, 20) == Start()
    assert start_for("softmax", counts, 5) == Start(scale=2.0)
    assert start_for("softmax", {}, 5) == Start()
    assert start_for("logistic", counts, 5) == Start()
    read = Start(power=0.5, scale=3.0)
    scores = np.array([0.01, 0.2, 1 / 3], np.float32)
    np.testing.assert_allclose(read.score_of(read.probability_of(scores)), scores, rtol=1e-5)
    assert read.probability_of(np.array([0.9], np.float32)).tolist() == [1.0]


def test_a_method_below_one_common_threshold_gives_way(
    files: dict[str, Path], tmp_path: Path
) -> None:
    model = trained("huffman-tree", files["train"], tmp_path)
    stuck = Start(2e6, 1e8)  # its thresholds stay at 0.02, whatever it sees
    request = TuneRequest(["ofo", "fta-one"], files["valid"], start=stuck)
    kept, one = tune(model, request, no_progress)
    assert one.rejected is None
    method, macro_f = kept.rejected
    assert method == "ofo" and macro_f < one.validation.macro_f == kept.validation.macro_f
    assert kept.tuned.thresholds.tobytes() == one.tuned.thresholds.tobytes()
    outcomes = tune(model, replace(request, methods=["ofo"]), no_progress)
    with closing(Database(default_url(tmp_path))) as database:
        report = keep(model, database, outcomes)
    assert (report["method"], report["instead_of"]) == ("fta-one", "ofo")
    assert report["instead_of_macro_f"] < report["validation_macro_f"]
    assert report["note"].startswith(
        "ofo has less macro-F on the validation rows than one threshold"
    )
