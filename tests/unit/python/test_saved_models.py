"""Models in Python: copies of versions, names of labels, what a report says, rows at fault."""

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from tests.helpers.datasets_helpers import write_lines

import xylem
from xylem.base.errors import BadInput
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.errors import StoreError
from xylem_store.label_info import Subject, build_label_info
from xylem_store.store import Store


def write(path: Path, rows: Iterable[tuple[str, list[str]]]) -> Path:
    """Write texts with labels; return the file."""
    return write_lines(path, ({"text": text, "labels": labels} for text, labels in rows))


def test_label_names_are_labels_or_names_of_the_label_info(tmp_path: Path) -> None:
    model = xylem.train(["red car", "blue boat", "old car"] * 5, [["c"], ["b"], ["a", "c"]] * 5)
    names = model.label_names
    assert (list(names), len(names), names[-1], names[:2]) == (["a", "b", "c"], 3, "c", ["a", "b"])
    with pytest.raises(IndexError):
        names[3]
    model.save(tmp_path, "m")
    store = Store(tmp_path)
    subjects = [Subject("c", None, {"fi": "auto", "en": "car"}), Subject("b", None, {"fi": "vene"})]
    store.put_label_info("m", build_label_info(subjects, language="en"))
    loaded = xylem.load(tmp_path, "m")
    assert list(loaded.label_names) == ["a", "vene", "car"]
    assert loaded.predict(["red car"], top_r=1)[0][0].label == "c"
    loaded.save(tmp_path / "other")
    assert list(xylem.load(tmp_path / "other", "m").label_names) == ["a", "vene", "car"]


@pytest.mark.parametrize("kind", ["trees", "thresholds", "state", "combined"])
def test_a_loaded_version_is_copied_with_all_that_it_has(kind: str, tmp_path: Path) -> None:
    home, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    texts = [f"{word} {i % 3}" for i, word in enumerate(["car", "boat", "tree", "bird"] * 20)]
    labels = [[text.split()[0]] for text in texts]
    if kind == "state":
        path = write(tmp_path / "rows.jsonl", zip(texts, labels, strict=True))
        chosen = "solver=sgd", "epochs=2"
        request = TrainRequest(trainer="plt", data=path, keep_state=True, parameters=chosen)
        train_and_publish(home, "m", request)
    else:
        trained = xylem.train(texts, labels, trees=1)
        if kind == "combined":
            pytest.importorskip("sklearn")
            names = tmp_path / "names.csv"
            names.write_text("uri,label_en\ncar,car\nboat,boat\n")
            trained = xylem.combine([trained], names, texts[::-1], labels[::-1], language="en")
        trained.save(home.root, "m")
    loaded = xylem.load(home.root, "m")
    if kind == "thresholds":
        loaded = loaded.tune_thresholds(texts, labels)
    assert [loaded.save(other.root), loaded.save(other.root, "n")] == [1, 1]
    for name in ("m", "n"):
        other.verify(name, 1)
        copied = other.manifest(name, 1)
        assert copied.arrays == home.manifest("m", 1).arrays
        assert copied.created_at == home.manifest("m", 1).created_at
        ours, theirs = xylem.load(home.root, "m"), xylem.load(other.root, name)
        threshold: Any = "tuned" if kind == "thresholds" else None
        assert theirs.predict(texts, threshold=threshold) == ours.predict(
            texts, threshold=threshold
        )
        assert theirs.report == ours.report
    assert loaded.save(home.root) == 2, "a copy beside the original is its next version"


def test_a_damaged_version_is_not_copied(tmp_path: Path) -> None:
    """Arrays that no answer reads are checked too: a copy must not give a damage a new digest."""
    home = Store(tmp_path / "one")
    path = write(tmp_path / "rows.jsonl", [("a car", ["c"]), ("a boat", ["b"])] * 9)
    train_and_publish(home, "m", TrainRequest(trainer="label-tree", data=path, keep_rows=True))
    loaded = xylem.load(home.root, "m")
    stored = next((home.root / "models").rglob("rows*values*"))
    stored.chmod(0o600)
    with stored.open("r+b") as file:  # the file is mapped: it must not be truncated
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    with pytest.raises(StoreError, match="sha256"):
        loaded.save(tmp_path / "other")
    assert Store(tmp_path / "other").models() == []
    with pytest.raises(BadInput, match="name: expected the name of the model to publish"):
        xylem.train(["car", "boat"] * 5, [["x"], ["y"]] * 5).save(tmp_path / "other")
    shutil.rmtree(home.root)
    with pytest.raises(StoreError):
        loaded.save(tmp_path / "other")


def test_a_report_has_what_the_training_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [("a car", ["c"]), ("a boat", ["b"])] * 60)
    auto = ("features.kind=auto",)
    request = TrainRequest(trainer="label-tree", data=path, valid=path, parameters=auto)
    report = train_and_publish(Store(tmp_path), "m", request)
    ours = xylem.load(tmp_path, "m").report
    assert ours["metrics"] == report.metrics and report.metrics["P@1"] == 100.0
    assert ours.get("warnings") == report.warnings
    assert report.features and ours["features"]["chosen"] == report.features["chosen"]
    assert (ours["trainer"], ours["rows"], ours["beam_width"]) == ("label-tree", 120, 10)
    in_memory = xylem.train(["a car", "a boat"] * 5, [["c"], ["b"]] * 5)
    assert (in_memory.report["metrics"], in_memory.report["rows"]) == ({}, 10)
    assert in_memory.report["parameters"] == in_memory.parameters


X = np.array([[1, 0, 0.5], [0, 1, 0], [0, 1, 1], [1, 0, 0]] * 5)
Y = [["a"], ["b"], ["a", "b"], ["a"]] * 5


@pytest.mark.parametrize("form", [np.asarray, csr_matrix])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_a_number_that_is_not_finite_is_named_by_its_row(bad: float, form: Any) -> None:
    damaged = X.copy()
    damaged[7, 1] = bad
    indicator = np.array([[1, 0], [0, 1]] * 10, float)
    indicator[7, 1] = bad
    model = xylem.train(X, Y, trainer="ovr")
    named = xylem.train([{"a": 1.0}, {"b": 1.0}] * 5, [["x"], ["y"]] * 5, trainer="ovr")
    rows = form(damaged)
    calls: list[Callable[[], object]] = [
        lambda: xylem.train(rows, Y, trainer="ovr"),
        lambda: xylem.train(X, form(indicator), trainer="ovr"),
        lambda: model.predict(rows),
        lambda: model.evaluate(rows, Y),
        lambda: model.score(rows, Y),
        lambda: model.explain(rows[7:8]),
        lambda: named.predict([{"a": 1.0}] * 7 + [{"b": bad}]),
        lambda: named.score([{"a": 1.0}] * 7 + [{"b": bad}], [["x"]] * 8),
        lambda: named.explain({"b": bad}),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(BadInput, match=r"row [07](, column 1)?: expected .*finite") as caught:
            call()
        assert ("column 1" in str(caught.value)) == (number < 6 and bad != 1e300), number
