"""N-grams of characters through what serves a version: requests, batches, explanations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model_store.store import Store
from service.base.settings import Limits
from service.serving.blocks import answer_block
from service.serving.lines import LineBlock
from service.serving.opening import serve_model
from service.serving.rows import to_options
from service.serving.schemas.predict import Options
from service.serving.served import ServedVersion
from tests.answers import at_once, in_thread
from tests.served_models import publish_model

TEXTS = ["a text editor", "", "TERMINAL\ud83d\ude00 zzz", "北京 e\u0301dit", "x" * 5000]


@pytest.fixture(params=["chars", "words+chars"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> ServedVersion:
    store = Store(tmp_path)
    manifest = publish_model(store, "model", request.param)
    assert manifest.schema_version == 3
    return serve_model(store.open("model"))


def labels_of(answer: bytes) -> list[Any]:
    return [prediction["labels"] for prediction in json.loads(answer)["predictions"]]


def test_every_way_to_an_answer_says_the_same(served: ServedVersion) -> None:
    bodies = [json.dumps({"instances": [{"text": text}], "top_r": 3}).encode() for text in TEXTS]
    limits = Limits()
    expected = [labels_of(in_thread(body, served))[0] for body in bodies]
    for body, labels in zip(bodies, expected, strict=True):
        now = at_once(body, served)
        assert now is None or labels_of(now) == [labels]
    together = json.dumps({"instances": [{"text": text} for text in TEXTS], "top_r": 3}).encode()
    assert labels_of(in_thread(together, served)) == expected
    unknown = [False, True, False, True, True]
    by_kernel = [i for i, text in enumerate(TEXTS) if "\u0301" not in text]
    for chosen in (list(range(len(TEXTS))), by_kernel):
        block = LineBlock(1, [json.dumps({"text": TEXTS[i]}).encode() for i in chosen])
        answer = answer_block(block, served, to_options(Options(top_r=3), served), limits)
        lines = [json.loads(line) for line in answer[0].splitlines()]
        assert [line["labels"] for line in lines] == [expected[i] for i in chosen]
        found = [line.get("no_known_features", False) for line in lines]
        assert found == [unknown[i] for i in chosen]


def test_a_feature_of_characters_explains_by_its_ngram(served: ServedVersion) -> None:
    query = json.dumps({"instances": [{"text": "text editor"}], "top_r": 5, "explain": True, "exact": True})
    [labels] = labels_of(in_thread(query.encode(), served))
    shares = [
        share
        for label in labels
        for tree in label["explanation"]["trees"]
        for node in tree["path"]
        for share in node["features"]
    ]
    assert any(share.get("part") == "chars" for share in shares)
    for share in shares:
        if "part" in share:
            assert (
                share["part"] == "chars"
                and share["feature"] in " text editor "
                and 3 <= len(share["feature"]) <= 5
            )
        else:
            assert share["feature"] in ("text", "editor") and served.featurizer.kind == "words+chars"
    assert "features/chars/utf8" in served.featurizer.arrays()
