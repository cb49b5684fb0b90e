"""Training and its store: one that cannot take the result is refused at once; what a manifest keeps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from model_store.errors import StoreUnwritable
from model_store.store import Store
from service.base.errors import BadParameter
from service.workflows.evaluate import evaluate
from service.workflows.train import TrainRequest, train_and_publish


def data(tmp_path: Path) -> Path:
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps({"text": f"word{i}", "labels": [f"l{i}"]}) + "\n" for i in range(4)))
    return file


def missing_parent(tmp_path: Path) -> tuple[Path, str]:
    return tmp_path / "mistyped" / "store", f"expected {tmp_path / 'mistyped'} to be a directory"


def a_file(tmp_path: Path) -> tuple[Path, str]:
    (tmp_path / "file").write_text("x")
    return tmp_path / "file", "expected a directory, found a file"


def below_a_file(tmp_path: Path) -> tuple[Path, str]:
    a_file(tmp_path)
    return tmp_path / "file" / "store", "to be a directory, in which the store is made, found none"


def staging_is_a_file(tmp_path: Path) -> tuple[Path, str]:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "staging").write_text("x")
    return tmp_path / "store", "expected to write, found [Errno 20] Not a directory"


@pytest.mark.parametrize("bad", [missing_parent, a_file, below_a_file, staging_is_a_file])
def test_a_store_that_cannot_be_written_to_is_refused_before_anything_is_read(
    bad: object, tmp_path: Path
) -> None:
    root, fault = bad(tmp_path)  # type: ignore[operator]
    phases: list[str] = []
    request = TrainRequest("label-tree", data(tmp_path))
    with pytest.raises(StoreUnwritable, match=re.escape(fault)) as caught:
        train_and_publish(Store(root), "m", request, lambda phase, done, total: phases.append(phase))
    assert str(caught.value).startswith(f"{root}: ")
    assert phases == []


def test_a_store_is_made_in_a_directory_that_is_there(tmp_path: Path) -> None:
    phases: list[str] = []
    request = TrainRequest("label-tree", data(tmp_path))
    store = Store(tmp_path / "new")
    report = train_and_publish(store, "m", request, lambda phase, done, total: phases.append(phase))
    assert (report.version, store.resolve("m")) == (1, 1)
    assert phases[0] == "read" and phases[-1] == "publish"
    assert not list((store.root / "staging").iterdir())


def test_a_manifest_keeps_percentages_and_evaluate_adds_how_fast_it_is(tmp_path: Path) -> None:
    file = data(tmp_path)
    store = Store(tmp_path / "store")
    metrics = train_and_publish(store, "m", TrainRequest("label-tree", file, valid=file)).metrics
    report = evaluate(store.open("m"), file)
    others = {"rows", "empty_label_convention", "us_per_row", "threshold", "bands", "calibration_error"}
    assert report.keys() - metrics.keys() == others | {"unknown_labels", "unknown_label_names"}
    assert all(report[name] == value for name, value in metrics.items())
    assert isinstance(report["us_per_row"], float) and report["us_per_row"] > 0


def test_no_store_is_made_for_a_parameter_that_is_wrong(tmp_path: Path) -> None:
    request = TrainRequest("label-tree", data(tmp_path), parameters=("none=1",))
    with pytest.raises(BadParameter):
        train_and_publish(Store(tmp_path / "new"), "m", request)
    assert not (tmp_path / "new").exists()
