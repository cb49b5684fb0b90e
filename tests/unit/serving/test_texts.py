"""Texts through what serves a version: n-grams of characters, and words that nobody has met."""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from model_store.store import Store
from service.base.settings import Limits
from service.features.word_forms import LEMMA_ITEMS, STEM_ITEMS
from service.serving.answer import SHORT_ITEMS
from service.serving.blocks import answer_block
from service.serving.lines import LineBlock
from service.serving.oip import TENSORS
from service.serving.opening import serve_model
from service.serving.predict import PREDICT
from service.serving.rows import to_options
from service.serving.schemas.predict import Options
from service.serving.served import ServedVersion
from service.workflows.train import TrainRequest, train_and_publish
from tests.real_texts import TEXTS
from tests.served_models import at_once, in_thread, publish_model

ODD_TEXTS = ["a text editor", "", "TERMINAL\ud83d\ude00 zzz", "北京 e\u0301dit", "x" * 5000]


@pytest.fixture(params=["chars", "words+chars"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> ServedVersion:
    store = Store(tmp_path)
    manifest = publish_model(store, "model", request.param)
    assert manifest.schema_version == 6
    return serve_model(store.open("model"))


def labels_of(answer: bytes) -> list[Any]:
    return [prediction["labels"] for prediction in json.loads(answer)["predictions"]]


def test_every_way_to_an_answer_says_the_same(served: ServedVersion) -> None:
    bodies = [json.dumps({"instances": [{"text": text}], "top_r": 3}).encode() for text in ODD_TEXTS]
    limits = Limits()
    expected = [labels_of(in_thread(body, served))[0] for body in bodies]
    for body, labels in zip(bodies, expected, strict=True):
        now = at_once(body, served)
        assert now is None or labels_of(now) == [labels]
    together = json.dumps({"instances": [{"text": text} for text in ODD_TEXTS], "top_r": 3}).encode()
    assert labels_of(in_thread(together, served)) == expected
    unknown = [False, True, False, True, True]
    by_kernel = [i for i, text in enumerate(ODD_TEXTS) if "\u0301" not in text]
    for chosen in (list(range(len(ODD_TEXTS))), by_kernel):
        block = LineBlock(1, [json.dumps({"text": ODD_TEXTS[i]}).encode() for i in chosen])
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


NEW_WORDS = " ".join("".join(letters) for letters in permutations("aeioukst", 3))
"""As many words as a text of so many characters can have, without those of two; no training text has them."""

CASES = [
    ({"features.stem": "fi"}, STEM_ITEMS),
    ({"features.stem": "fi", "features.kind": "words+chars"}, STEM_ITEMS),
    ({"features.stem": "fi", "features.kind": "hashing"}, STEM_ITEMS),
    ({"features.lemmas": "fi"}, LEMMA_ITEMS),
]


def served_with(folder: Path, features: dict[str, Any]) -> ServedVersion:
    data = folder / "train.jsonl"
    rows = [{"text": text, "labels": [str(len(text) % 3)]} for text in TEXTS[:60]]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    store = Store(folder / "store")
    train_and_publish(store, "model", TrainRequest("label-tree", data, parameters=features))
    return serve_model(store.open("model"))


def asked_of_the_library(served: ServedVersion) -> int:
    """How many words were not remembered so far."""
    assert served.featurizer.forms is not None
    return served.featurizer.forms._known.cache_info().misses


def body_of(text: str, way: str) -> bytes:
    if way == "predict":
        return json.dumps({"instances": [{"text": text}]}).encode()
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}
    return json.dumps({"inputs": [tensor]}).encode()


def is_answered_at_once(served: ServedVersion, text: str, way: str) -> bool:
    return at_once(body_of(text, way), served, PREDICT if way == "predict" else TENSORS) is not None


@pytest.mark.parametrize("way", ["predict", "infer"])
@pytest.mark.parametrize(("features", "items"), CASES)
def test_a_loop_never_asks_for_the_forms_of_more_words_than_these(
    tmp_path: Path, features: dict[str, Any], items: int, way: str
) -> None:
    served = served_with(tmp_path, features)
    most = SHORT_ITEMS // items
    assert len(NEW_WORDS) > most
    before = asked_of_the_library(served)
    assert not is_answered_at_once(served, NEW_WORDS[: most + 1], way)
    assert asked_of_the_library(served) == before
    assert is_answered_at_once(served, NEW_WORDS[:most], way)
    assert most // 4 - 1 <= asked_of_the_library(served) - before <= most // 3


def test_stop_words_alone_are_looked_up_and_no_more(tmp_path: Path) -> None:
    served = served_with(tmp_path, {"features.stop_words": "en"})
    assert served.featurizer.items_a_character == 1
    assert is_answered_at_once(served, NEW_WORDS, "predict")
