"""Of versions of one kind the first is warmed up: the others need no kernel that is not there."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.oip_requests import csr
from tests.helpers.served_models import at_once, in_thread
from tests.helpers.small_models import small_draft, softmax_draft

from xylem.serving.dialects.tensors.dialect import TENSORS
from xylem.serving.live.opening import serve_model
from xylem_store.compiled.progress import PROGRESS
from xylem_store.store import Store

LARGER = {"n_labels": 300, "n_features": 5000, "arity": 20, "share": 0.2}
DRAFTS = {
    "trees": (small_draft(n_trees=3), small_draft(1, n_trees=3, **LARGER)),
    "one tree": (small_draft(n_trees=1), small_draft(1, n_trees=1, **LARGER)),
    "bytes": (small_draft(weights="int8"), small_draft(1, weights="int8", **LARGER)),
    "forest": (
        small_draft(kind="decision-tree", n_trees=3),
        small_draft(1, kind="decision-tree", n_trees=3, **LARGER),
    ),
    "embedded": (softmax_draft(n_words=70), softmax_draft(n_words=90)),
}
ROW = {"indices": [0, 2], "values": [1.0, 0.5]}
LABEL = "label::1"
WAYS: list[dict[str, Any]] = [
    {"top_r": 3, "beam_width": 2},
    {"exact": True},
    {"threshold": 0.3},
    {"allow_labels": [LABEL]},
    {"deny_labels": [LABEL], "threshold": 0.1},
    {"label_weights": {LABEL: 3.0}, "exact": True},
    {"statistics": True},
]


@pytest.mark.parametrize("kind", DRAFTS)
def test_the_second_version_of_a_kind_loads_no_kernel(kind: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    for draft in DRAFTS[kind]:
        store.publish("m", draft)
    serve_model(store.open("m", 1))
    second = serve_model(store.open("m", 2))
    n_ready = PROGRESS.n_ready
    for options in WAYS:
        for n_rows in (1, 40):
            body = json.dumps({"instances": n_rows * [ROW], **options}).encode()
            at_once(body, second)
            assert len(json.loads(in_thread(body, second))["predictions"]) == n_rows
    tensors = json.dumps({"inputs": csr([ROW])}).encode()
    assert at_once(tensors, second, TENSORS)
    second.thresholds.warm_up()  # as an event does
    assert n_ready == PROGRESS.n_ready
