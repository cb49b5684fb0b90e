"""Labels that a version lists without a leaf, which no row had,
and labels that came after a version.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.conftest import Command
from tests.helpers.datasets_helpers import refused
from tests.helpers.measured import tuned_to

import xylem
from xylem.base import no_progress
from xylem.base.db.of_store import ready_database
from xylem.base.errors import BadData
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.predictor import PredictOptions
from xylem.thresholds.methods.ofo import Start, no_counts
from xylem.thresholds.store.codec import Tuned
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.thresholds.tuning import request_of
from xylem.workflows.comparison import CompareRequest, Contender, compare
from xylem.workflows.evaluate import evaluate_rows
from xylem.workflows.extend import carry_thresholds, extend_and_publish
from xylem.workflows.labelled import read_labelled
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem.workflows.tuning import tune
from xylem_store.names import all_names
from xylem_store.store import Store

GROWING = {
    "label-tree": ("leaf_size=2",),
    "ovr": (),
    "plt": ("leaf_size=2",),
    "huffman-tree": ("dim=8", "epochs=20", "arity=3"),
    "learned-tree": ("dim=8", "epochs=20", "arity=3"),
}
"""Every trainer whose versions get labels."""

LEARNT, LISTED = 6, 8
"""Labels that rows have, and those that the header or the names file lists."""

N_FEATURES = 12
NAMES = [f"name {i}" for i in range(LISTED)]


def rows_with(labels: list[int], times: int) -> list[tuple[int, list[tuple[int, float]]]]:
    """Rows of these labels in turns; the feature of a label's number tells it."""
    return [
        (label, [(label, 1.0), (9 + turn % 3, 0.5)]) for turn in range(times) for label in labels
    ]


def write_numbers(
    path: Path, rows: list[tuple[int, list[tuple[int, float]]]], n_labels: int = LISTED
) -> Path:
    """Write rows as .txt, .svm or a pair of .npz, as the name says; return the file."""
    lines = [f"{label} " + " ".join(f"{i}:{value}" for i, value in pairs) for label, pairs in rows]
    if path.suffix == ".txt":
        lines.insert(0, f"{len(rows)} {N_FEATURES} {n_labels}")
    if path.suffix != ".npz":
        path.write_text("\n".join(lines) + "\n")
        return path
    x, y = np.zeros((len(rows), N_FEATURES)), np.zeros((len(rows), n_labels))
    for number, (label, pairs) in enumerate(rows):
        y[number, label] = 1
        for i, value in pairs:
            x[number, i] = value
    sp.save_npz(path, sp.csr_array(x))
    sp.save_npz(path.with_name(path.name.replace(".X.", ".Y.")), sp.csr_array(y))
    return path


def names_file(directory: Path) -> Path:
    path = directory / "names.txt"
    path.write_text("".join(f"{name}\n" for name in NAMES))
    return path


def first_label(store: Store, model: str, label: int) -> int:
    """What a version answers to a row of a label."""
    opened = store.open(model)
    pairs = rows_with([label], 1)[0][1]
    x = sp.csr_array(
        ([value for _, value in pairs], ([0, 0], [i for i, _ in pairs])), (1, N_FEATURES)
    )
    rows = read_rows_of(x)
    found = make_predictor(opened).predict(rows, PredictOptions(top_r=1))
    return int(found.labels[0])


def read_rows_of(x: Any) -> Any:
    from xylem.engine.features.rows import rows_of_csr

    length = np.sqrt((x.data**2).sum())
    return rows_of_csr(x.indptr, x.indices, (x.data / length).astype(np.float32), N_FEATURES)


@pytest.mark.parametrize("file", ["rows.txt", "rows.svm", "rows.X.npz"])
@pytest.mark.parametrize("trainer", GROWING)
def test_a_label_that_is_listed_without_a_leaf_is_extended(
    trainer: str, file: str, tmp_path: Path
) -> None:
    store, data = (
        Store(tmp_path / "store"),
        write_numbers(tmp_path / file, rows_with([*range(LEARNT)], 20)),
    )
    names = names_file(tmp_path)
    first = TrainRequest(
        trainer=trainer, data=data, parameters=GROWING[trainer], label_names=names, keep_rows=True
    )
    train_and_publish(store, "m", first)
    assert store.open("m").labels.n_names == LISTED
    (tmp_path / "new").mkdir()
    new = write_numbers(tmp_path / "new" / file, rows_with([LEARNT + 1, 0], 20))
    report = extend_and_publish(
        store, "m", TrainRequest(trainer="", data=new, base="m@1", label_names=names)
    )
    assert report.grown is not None and report.grown["labels_added"] == 1
    grown = store.open("m")
    assert all_names(grown.labels) == NAMES
    assert grown.arrays["labels/counts"][LEARNT:].tolist() == [0, 20]
    assert first_label(store, "m", LEARNT + 1) == LEARNT + 1
    with refused(BadData, "labels that m@2 does not have, found 2, which it has"):
        extend_and_publish(
            store, "m", TrainRequest(trainer="", data=new, base="m@2", label_names=names)
        )


@pytest.mark.parametrize("trainer", ["label-tree", "ovr", "plt"])
def test_a_training_from_a_version_names_labels_without_a_leaf(
    trainer: str, tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    data = write_numbers(tmp_path / "rows.txt", rows_with([*range(LEARNT)], 20))
    first = TrainRequest(trainer=trainer, data=data, parameters=GROWING[trainer], keep_rows=True)
    train_and_publish(store, "m", first)
    more = write_numbers(tmp_path / "more.txt", rows_with([*range(LISTED)], 20))
    going_on = TrainRequest(trainer=trainer, data=more, base="m@1")
    with refused(
        BadData, r"more\.txt: expected labels that m@1 has learnt, found 2 others, as '6': add"
    ):
        train_and_publish(store, "m", going_on)
    assert store.versions("m") == (1,)
    extend_and_publish(store, "m", TrainRequest(trainer="", data=more, base="m@1"))
    train_and_publish(store, "m", TrainRequest(trainer=trainer, data=more, base="m@2"))
    assert [first_label(store, "m", label) for label in range(LISTED)] == [*range(LISTED)]


def test_thresholds_of_labels_with_a_new_leaf_start_again(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "store")
    data = write_numbers(tmp_path / "rows.txt", rows_with([*range(LEARNT)], 20))
    train_and_publish(store, "m", TrainRequest(trainer="label-tree", data=data, keep_rows=True))
    new = write_numbers(tmp_path / "new.txt", rows_with([LEARNT], 20))
    extend_and_publish(store, "m", TrainRequest(trainer="", data=new, base="m@1"))
    counters = no_counts(LISTED)
    counters.hits[:], counters.marks[:] = 3, 7
    thresholds = np.full(LISTED, 0.875, np.float32)
    with ready_database(store.root) as database:
        kept_in = ThresholdDatabase(database)
        kept_in.save("m", 1, Tuned("ofo", "zero", Start(1.0, 2.0), thresholds, counters))
        assert carry_thresholds(store, "m", 2, kept_in)
        found = kept_in.load("m", 2)
    assert found is not None
    is_old = np.arange(LISTED) != LEARNT
    assert (found.thresholds[is_old] == 0.875).all() and found.thresholds[LEARNT] != 0.875
    for counts, value in zip(found.counters, (3, 7), strict=True):
        assert (counts[is_old] == value).all() and counts[LEARNT] == 0


def test_numbers_of_labels_stay_their_ids_though_some_lack_rows(tmp_path: Path) -> None:
    """Or a file of numbers would be measured by other labels than it means."""
    store = Store(tmp_path / "store")
    data = write_numbers(tmp_path / "rows.txt", rows_with([*range(LEARNT)], 20), LEARNT)
    train_and_publish(store, "m", TrainRequest(trainer="label-tree", data=data, keep_rows=True))
    new = write_numbers(tmp_path / "new.svm", [(11, [(8, 1.0)])] * 20)
    extend_and_publish(store, "m", TrainRequest(trainer="", data=new, base="m@1"))
    grown = store.open("m")
    assert all_names(grown.labels) == [str(i) for i in range(12)]
    report = evaluate_rows(grown, read_labelled(grown, new, no_progress)).report
    assert (report["P@1"], report["unknown_labels"]) == (100.0, 0)
    between = write_numbers(tmp_path / "between.svm", [(9, [(7, 1.0)])] * 20)
    extend_and_publish(store, "m", TrainRequest(trainer="", data=between, base="m@2"))
    grown = store.open("m")
    for file in (new, between):
        assert evaluate_rows(grown, read_labelled(grown, file, no_progress)).report["P@1"] == 100.0
    far = write_numbers(tmp_path / "far.svm", [(5000, [(7, 1.0)])] * 20)
    with refused(BadData, "expected at most 1000 new labels at once for 12 of m@3, found 4989"):
        extend_and_publish(store, "m", TrainRequest(trainer="", data=far, base="m@3"))
    farthest = write_numbers(tmp_path / "farthest.svm", [(2**28 - 1, [(7, 1.0)])])
    with refused(
        BadData, "expected at most 1000 new labels at once for 12 of m@3, found 268435444"
    ):
        extend_and_publish(store, "m", TrainRequest(trainer="", data=farthest, base="m@3"))


def test_numbers_are_no_names_of_labels_that_have_others(tmp_path: Path, command: Command) -> None:
    data = write_numbers(tmp_path / "rows.txt", rows_with([*range(LEARNT)], 20))
    store, names = Store(tmp_path / "store"), names_file(tmp_path)
    train_and_publish(
        store, "m", TrainRequest(trainer="label-tree", data=data, label_names=names, keep_rows=True)
    )
    for line in (("extend", "m"), ("train", "label-tree", "--model", "m", "--from", "m@1")):
        status, _, message = command(*line, "--data", data)
        assert status == 2 and message.count("\n") == 1, message
        assert (
            "rows.txt: expected the names of its labels (--label-names), as m@1 has names"
            in message
        )
    assert store.versions("m") == (1,)


@pytest.mark.parametrize("file", ["later.txt", "later.svm", "later.X.npz"])
def test_labels_that_came_later_count_as_missed_as_in_json_lines(
    file: str, tmp_path: Path, command: Command
) -> None:
    store = Store(tmp_path / "store")
    old, later = rows_with([*range(LEARNT)], 20), rows_with([*range(LISTED)], 10)
    data = write_numbers(tmp_path / "rows.txt", old, LEARNT)
    measured = write_numbers(tmp_path / file, later)
    request = TrainRequest(trainer="label-tree", data=data, valid=measured)
    train_and_publish(store, "m", request)
    train_and_publish(
        store,
        "m",
        TrainRequest(trainer="label-tree", data=write_numbers(tmp_path / "all.txt", later)),
    )
    assert store.manifest("m", 1).metrics["P@1"] == pytest.approx(100 * LEARNT / LISTED)
    models = [store.open("m", version) for version in (1, 2)]
    report = evaluate_rows(models[0], read_labelled(models[0], measured, no_progress)).report
    assert (report["unknown_labels"], report["unknown_label_names"]) == (2, ["6", "7"])
    assert report["P@1"] == report["R@5"] == pytest.approx(100 * LEARNT / LISTED)
    sides = [Contender(model, tuned_to(np.full(model.labels.n_names, 0.4))) for model in models]
    compared = compare(sides[0], sides[1], CompareRequest(measured, resamples=100))
    assert compared["labels"] == {"both": LEARNT, "only_a": 0, "only_b": 2, "neither": 0}
    assert compared["metrics"]["P@1"]["a"] == report["P@1"] and compared["metrics"]["P@1"]["real"]
    outcomes = tune(models[0], request_of(None, measured, None, "zero", threads=1), no_progress)
    assert outcomes[0].tuned.thresholds.shape == (LEARNT,)
    page = tmp_path / "labels.jsonl"
    for line in (
        ("evaluate", "m@1", "--per-label", page),
        ("compare", "m@1", "m@2"),
        ("thresholds", "m@1"),
        ("calibrate", "m@1"),
    ):
        status, _, message = command(*line, "--data", measured)
        if line[0] == "calibrate":
            assert "80" in message, message  # too few rows, which it says once they are read
        else:
            assert status == 0, message
    assert len(page.read_text().splitlines()) == LEARNT


def test_in_python_columns_of_later_labels_count_as_missed() -> None:
    rows = rows_with([*range(LISTED)], 10)
    x, y = np.zeros((len(rows), N_FEATURES)), np.zeros((len(rows), LISTED))
    for number, (label, pairs) in enumerate(rows):
        y[number, label] = 1
        for i, value in pairs:
            x[number, i] = value
    is_old = y[:, :LEARNT].any(axis=1)
    old = xylem.train(x[is_old], y[is_old, :LEARNT], progress=False)
    new = xylem.train(x, y, progress=False)
    for matrix in (y, sp.csr_array(y)):
        report = old.evaluate(x, matrix, progress=False)
        assert (report["unknown_labels"], report["unknown_label_names"]) == (2, ["6", "7"])
        assert report["P@1"] == pytest.approx(100 * LEARNT / LISTED)
        compared = old.compare(new, x, matrix, progress=False)
        assert compared["labels"]["only_b"] == 2 and compared["metrics"]["P@1"]["real"]


@pytest.mark.parametrize("trainer", ["label-tree", "huffman-tree"])
def test_an_evaluation_says_which_labels_have_no_leaf(trainer: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    data = write_numbers(tmp_path / "rows.txt", rows_with([*range(LEARNT)], 20))
    train_and_publish(
        store, "m", TrainRequest(trainer=trainer, data=data, parameters=GROWING[trainer])
    )
    model = store.open("m")
    tests = write_numbers(tmp_path / "tests.txt", rows_with([0, LEARNT, LEARNT + 1], 20))
    labelled = read_labelled(model, tests, no_progress)
    evaluate_rows(model, labelled)
    assert labelled.report is not None
    (finding,) = labelled.report.findings
    assert finding.code == "labels-never-answered" and "found 2 of 3" in finding.message
    assert [*labelled.never_answered(model)] == [LEARNT, LEARNT + 1]
