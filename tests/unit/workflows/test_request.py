"""Parameters of a training, from a command line and from JSON: the same values, the same refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from model_store.origin import read_origin
from model_store.store import Store
from service.base.errors import BadData, BadParameter
from service.workflows.request import from_json, parse
from service.workflows.train import TrainRequest, train_and_publish


def test_both_ways_give_the_same() -> None:
    items = ["trees=3", "features.ngram_max=2", "cost=2", "features.use_idf=false"]
    values = {"trees": 3, "features.ngram_max": 2, "cost": 2, "features.use_idf": False}
    chosen = parse("label-tree", items)
    assert chosen == from_json("label-tree", values)
    assert chosen.features == {"ngram_max": 2, "use_idf": False}


def test_the_faults_of_trainer_and_features_are_told_together() -> None:
    values = {"tree": 3, "leaf_size": 0, "features.ngram_max": 99, "cost": "2", "features.": 1}
    with pytest.raises(BadParameter) as caught:
        from_json("label-tree", values)
    names = [fault.name for fault in caught.value.faults]
    assert names == ["cost", "leaf_size", "tree", "features.ngram_max", "features."]
    assert all(f"{name}: {message}" in str(caught.value) for name, message in caught.value.faults)
    assert "did you mean trees?" in str(caught.value)


def test_features_that_no_data_can_have_are_refused_before_the_data_is_read(tmp_path: Path) -> None:
    request = TrainRequest("label-tree", tmp_path / "none.txt", parameters=("features.norm=l3",))
    with pytest.raises(BadParameter, match=r"features\.norm: expected one of l2, l1, none"):
        train_and_publish(Store(tmp_path / "store"), "m", request)
    assert not (tmp_path / "store").exists()


def test_a_request_may_bring_the_values_of_a_json_object(tmp_path: Path) -> None:
    data = tmp_path / "rows.txt"
    data.write_text("4 2 2\n0 0:1\n1 1:1\n0 0:1\n1 1:1\n")
    store = Store(tmp_path / "store")
    for parameters in (("trees=2", "features.norm=l1"), {"trees": 2, "features.norm": "l1"}):
        train_and_publish(store, "m", TrainRequest("label-tree", data, parameters=parameters))
    kept = [store.open("m", version).manifest for version in (1, 2)]
    assert kept[0].trainer == kept[1].trainer and kept[0].features == kept[1].features
    assert kept[0].trainer.parameters["trees"] == 2


def test_only_a_command_line_names_a_file(tmp_path: Path) -> None:
    file = tmp_path / "stops.txt"
    file.write_text("the\n")
    assert parse("label-tree", [f"features.stop_words={file}"]).features == {"stop_words": str(file)}
    words = r"features\.stop_words: expected the code of a language, found a file"
    with pytest.raises(BadParameter, match=words):
        from_json("label-tree", {"features.stop_words": str(file)})
    with pytest.raises(BadData, match=r"none\.txt: expected a file of stop words, found: No such file"):
        parse("label-tree", ["features.stop_words=none.txt"])


def test_a_library_that_is_missing_is_told_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    with pytest.raises(BadParameter, match=r"features\.stem: expected snowballstemmer to be installed"):
        from_json("label-tree", {"features.stem": "fi"})


def test_the_origin_says_what_a_version_was_trained_with(tmp_path: Path) -> None:
    pytest.importorskip("snowballstemmer")
    data, stops = tmp_path / "rows.jsonl", tmp_path / "stops.txt"
    rows = [
        {"text": f"the {word} {i}", "labels": [word]} for word in ("reading", "writing") for i in range(9)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stops.write_text("the\n")
    store = Store(tmp_path / "store")
    parameters = ("features.stem=en", f"features.stop_words={stops}")
    train_and_publish(store, "m", TrainRequest("ovr", data, parameters=parameters))
    model = store.open("m")
    assert model.manifest.schema_version == 4
    assert model.manifest.features["stop_words"] == "stops.txt"
    assert list(read_origin(model.arrays)["libraries"]) == ["snowballstemmer"]
    assert model.labels.n_names == 2 and model.manifest.n_features == 2
