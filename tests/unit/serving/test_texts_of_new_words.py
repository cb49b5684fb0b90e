"""A text whose words nobody has met takes Python's time for each: a long one is for a thread."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from model_store.store import Store
from service.features.word_forms import LEMMA_ITEMS, STEM_ITEMS
from service.serving.answer import SHORT_ITEMS
from service.serving.oip import TENSORS
from service.serving.opening import serve_model
from service.serving.predict import PREDICT
from service.serving.served import ServedVersion
from service.workflows.train import TrainRequest, train_and_publish
from tests.answers import at_once
from tests.real_texts import TEXTS

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
