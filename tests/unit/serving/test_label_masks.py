"""Masks of labels: those of the predictor, kept within a bound."""

import gc
import json
import random
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import together
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.served_models import at_once, in_thread, publish_model

import xylem.serving.label_choice as module
from xylem.base.errors import BadInput, UnknownLabel
from xylem.base.settings import Limits
from xylem.serving.batches.blocks import answer_block
from xylem.serving.batches.lines import LineBlock
from xylem.serving.dialects import search
from xylem.serving.dialects.dialect import Body
from xylem.serving.dialects.predict.dialect import PREDICT
from xylem.serving.dialects.predict.schema import Options
from xylem.serving.label_choice import LabelMasks
from xylem.serving.live.denied import with_denied
from xylem.serving.live.opening import serve_model
from xylem.serving.live.served import ServedVersion
from xylem.serving.rows import to_options
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.compiled.handles import U8
from xylem_store.store import Store

N_LABELS = 11
NAMES = [f"label::{i}" for i in range(N_LABELS)]
Lists = tuple[list[str] | None, list[str] | None]


@pytest.fixture(scope="module")
def served(shared_store: Path) -> ServedVersion:
    return serve_model(Store(shared_store).open("raw"))


def mask_of(served: ServedVersion, allow: list[str] | None, deny: list[str] | None) -> U8:
    """Return the mask of lists of plain labels."""
    allowed = [(allow is None or name in allow) and name not in (deny or ()) for name in NAMES]
    return served.predictor.label_mask(np.array(allowed, np.uint8))


def some_lists(draw: random.Random) -> Lists:
    allow, deny = (draw.choice((None, draw.sample(NAMES, draw.randrange(4)))) for _ in range(2))
    return (allow, deny) if (allow, deny) != (None, None) else (NAMES[:1], None)


def test_lists_that_are_requested_again_have_the_same_mask(served: ServedVersion) -> None:
    masks = LabelMasks(served.predictor, served.info)
    assert masks.mask_of(None, None) is None
    for allow, deny in (
        ([], None),
        (None, []),
        (NAMES[:2], None),
        (None, NAMES[:2]),
        (NAMES[:3], NAMES[2:]),
    ):
        assert not masks.keeps(allow, deny)
        made = masks.mask_of(allow, deny)
        assert masks.keeps(allow, deny)
        assert made.tolist() == mask_of(served, allow, deny).tolist()
        assert masks.mask_of(allow, deny) is made
    denied = [NAMES[0], "nobody", "no other"]
    for _ in range(2):  # it is refused each time
        with pytest.raises(UnknownLabel, match="a label of the model, found 'nobody'") as caught:
            masks.mask_of(None, denied)
        assert caught.value.path == "deny_labels[1]"
        assert not masks.keeps(None, denied)


def test_what_was_asked_longest_ago_is_let_go(
    served: ServedVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks = LabelMasks(served.predictor, served.info)
    one = masks.mask_of(NAMES[:1], None)
    room = one.nbytes + 64 + len(NAMES[0])
    monkeypatch.setattr(module, "CACHE_BYTES_MAX", 2 * room)
    two = masks.mask_of(NAMES[1:2], None)
    assert masks.mask_of(NAMES[:1], None) is one
    masks.mask_of(NAMES[2:3], None)
    assert masks.mask_of(NAMES[:1], None) is one
    assert masks.mask_of(NAMES[1:2], None) is not two
    monkeypatch.setattr(module, "CACHE_BYTES_MAX", room - 1)
    too_large = masks.mask_of(NAMES[3:4], None)
    assert masks.mask_of(NAMES[3:4], None) is not too_large


def test_an_alias_that_denies_labels_has_masks_of_its_own(served: ServedVersion) -> None:
    denying = with_denied(served, NAMES[:2])
    plain, without = (each.masks.mask_of(NAMES[1:3], None).tolist() for each in (served, denying))
    assert without == mask_of(served, NAMES[2:3], None).tolist() != plain


def test_threads_get_the_masks_they_ask_for(
    served: ServedVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks = LabelMasks(served.predictor, served.info)
    monkeypatch.setattr(
        module, "CACHE_BYTES_MAX", 20 * (masks.mask_of(NAMES[:1], None).nbytes + 200)
    )

    def ask(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(400):
            lists = some_lists(draw)
            assert np.array_equal(masks.mask_of(*lists), mask_of(served, *lists)), lists

    together(*(partial(ask, seed) for seed in range(4)))


def test_a_kept_list_is_searched_at_once(
    served: ServedVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MASKED_AN_ITEM", 1)  # as a million labels are of 64
    monkeypatch.setattr(search, "SHORT_ITEMS", N_LABELS)
    body = b'{"instances":[{"indices":[1],"values":[1.0]}],"deny_labels":["label::3","label::5"]}'
    query = PREDICT.read(Body(body), Limits())
    assert not search.is_short(query, served)
    first = in_thread(body, served)
    assert search.is_short(query, served)
    answers = [
        json.loads(each)["predictions"][0]["labels"] for each in (first, at_once(body, served))
    ]
    assert answers[0] == answers[1]


BAD = {
    "instances": [{"text": "a"}, {"features": {"a": 1.0}}, {"indices": [1 << 30], "values": [1.0]}]
}


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def use_and_release(store: Store, name: str) -> bool:
    """Whether what answered is gone after good and bad requests."""
    served, is_refused = serve_model(store.open(name)), False
    try:  # pytest.raises would keep the error, whose frames have the version
        in_thread(json.dumps(BAD).encode(), served)
    except BadInput:
        is_refused = True
    assert is_refused
    lines = [json.dumps(instance).encode() for instance in BAD["instances"]]
    answer_block(LineBlock(1, [*lines, b"{}"]), served, to_options(Options(), served), Limits())
    there = weakref.ref(served.predictor), weakref.ref(served.fast)
    del served
    return [each() for each in there] == [None, None]


@pytest.mark.parametrize("kind", ["tfidf", "raw", "named", "decision trees"])
def test_a_version_is_released(tmp_path: Path, uncollected: None, kind: str) -> None:
    store = Store(tmp_path / "store")
    if kind == "decision trees":
        rows = ({"text": f"word{i % 4} w{i}", "labels": [f"l{i % 4}"]} for i in range(30))
        data = write_lines(tmp_path / "rows.jsonl", rows)
        train_and_publish(
            store, "m", TrainRequest(trainer="fastxml", data=data, parameters=("trees=2",))
        )
    else:
        publish_model(store, "m", kind)
    assert use_and_release(store, "m")
