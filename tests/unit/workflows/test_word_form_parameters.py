"""Files of stop words and libraries that are missing are told before any data are read."""

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
