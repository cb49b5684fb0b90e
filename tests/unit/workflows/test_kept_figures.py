"""What a version keeps of its validation rows: the figures of an evaluation, few enough to keep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model_store.report import read_report
from model_store.store import Store
from service.evaluation import kept_figures
from service.workflows.evaluate import evaluate_rows
from service.workflows.evaluation_page import label_lines
from service.workflows.labelled import no_progress, read_labelled
from service.workflows.train import TrainRequest, train_and_publish

COLOURS = ("red", "green", "blue", "white")
SUPPORTS = {"red": 20, "green": 20, "blue": 20, "white": 20, "rare": 2}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows whose first word is their label, but for every ninth; a fifth label is on two rows."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    with path.open("w") as out:
        for i in range(80):
            labels = [COLOURS[i % 4], *(["rare"] if i < 2 else [])]
            word = "other" if i % 9 == 0 else COLOURS[i % 4]
            out.write(json.dumps({"text": f"{word} thing{i % 7}", "labels": labels}) + "\n")
    return path


def kept_of(store: Path, file: Path, **options: Any) -> dict[str, Any]:
    train_and_publish(Store(store), "m", TrainRequest("label-tree", file, valid=file, **options))
    found: dict[str, Any] = read_report(Store(store).open("m").arrays)["validation"]
    return found


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_version_keeps_what_an_evaluation_of_it_finds(weights: Any, file: Path, tmp_path: Path) -> None:
    kept = kept_of(tmp_path, file, weights=weights, parameters=("leaf_size=2",))
    model = Store(tmp_path).open("m")
    assert model.manifest.weights == weights
    found = evaluate_rows(model, read_labelled(model, file, no_progress))
    assert (kept["rows"], kept["threshold"], kept["labels_true"]) == (80, 0.5, 5)
    assert kept["calibration_error"] == pytest.approx(found.report["calibration_error"], abs=1e-6)
    for one, other in zip(kept["reliability"], found.reliability, strict=True):
        assert one == pytest.approx(other._asdict(), abs=1e-6)
    for one, other in zip(kept["bands"], found.report["bands"], strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    figures = {line[0]: line for line in label_lines(model.labels, found)}
    assert {label["label"]: label["support"] for label in kept["labels"]} == SUPPORTS
    for label in kept["labels"]:
        _, support, hits, precision, recall, *_ = figures[label["label"]]
        assert (label["support"], label["hits"]) == (support, hits)
        assert recall == pytest.approx(100 * hits / support, abs=1e-4)
        assert (precision is None) == (label["predicted"] == 0)
        assert precision is None or precision == pytest.approx(100 * hits / label["predicted"], abs=1e-4)


def test_the_labels_that_are_true_most_often_are_kept(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept_of(tmp_path / "all", file)["labels"][-1]["label"] == "rare"
    monkeypatch.setattr(kept_figures, "LABELS_MAX", 3)
    assert [label["support"] for label in kept_of(tmp_path / "few", file)["labels"]] == [20, 20, 20]
    monkeypatch.setattr(kept_figures, "NAMES_BYTES_MAX", 10)
    kept = kept_of(tmp_path / "short", file)
    assert sum(len(label["label"]) for label in kept["labels"]) <= 10 and len(kept["labels"]) == 2
    assert kept["labels_true"] == 5


def test_without_validation_rows_nothing_is_kept(file: Path, tmp_path: Path) -> None:
    train_and_publish(Store(tmp_path), "m", TrainRequest("label-tree", file))
    assert "validation" not in read_report(Store(tmp_path).open("m").arrays)
