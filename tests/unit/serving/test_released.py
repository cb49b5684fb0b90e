"""A version that nobody serves any more is gone at once, without the collector of cycles.

The collector looks at nothing that a server began with: a cycle would keep a model's files for as long as it
runs. A search of parameters would keep each model that it has tried.
"""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_store.store import Store
from service.errors import BadInput
from service.serving.blocks import answer_block
from service.serving.lines import LineBlock
from service.serving.opening import serve_model
from service.serving.rows import to_options
from service.serving.schemas.predict import Options
from service.settings import Limits
from service.workflows.train import TrainRequest, train_and_publish
from tests.answers import in_thread
from tests.served_models import publish_model

BAD = {"instances": [{"text": "a"}, {"features": {"a": 1.0}}, {"indices": [1 << 30], "values": [1.0]}]}


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def use_and_release(store: Store, name: str) -> bool:
    """Whether what answered is gone after good and bad requests."""
    served = serve_model(store.open(name))
    n_refused = 0
    try:  # pytest.raises would keep the error, whose frames have the version
        in_thread(json.dumps(BAD).encode(), served)
    except BadInput:
        n_refused += 1
    assert n_refused == 1
    lines = [json.dumps(instance).encode() for instance in BAD["instances"]]
    answer_block(LineBlock(1, [*lines, b"{}"]), served, to_options(Options(), served), Limits())
    there = weakref.ref(served.predictor), weakref.ref(served.fast)
    del served
    return [each() for each in there] == [None, None]


@pytest.mark.parametrize("features", ["tfidf", "raw", "named"])
def test_a_label_tree_is_released(tmp_path: Path, uncollected: None, features: str) -> None:
    store = Store(tmp_path)
    publish_model(store, "m", features)
    assert use_and_release(store, "m")


def test_decision_trees_are_released(tmp_path: Path, uncollected: None) -> None:
    rows = [{"text": f"word{i % 4} w{i}", "labels": [f"l{i % 4}"]} for i in range(30)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = Store(tmp_path / "store")
    train_and_publish(store, "m", TrainRequest("fastxml", tmp_path / "rows.jsonl", parameters=("trees=2",)))
    assert use_and_release(store, "m")
