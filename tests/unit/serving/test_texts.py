"""Texts through what serves a version: n-grams of characters, words that nobody has met, chunks."""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.oip_requests import tensor
from tests.helpers.real_texts import TEXTS as REAL_TEXTS
from tests.helpers.served_models import TEXTS, at_once, in_thread, publish_model

import xylem
from xylem.base.errors import BadInput, LimitExceeded
from xylem.base.settings import Limits
from xylem.engine.features.word_forms import LEMMA_ITEMS, STEM_ITEMS
from xylem.serving.batches.blocks import answer_block
from xylem.serving.batches.lines import LineBlock
from xylem.serving.chunks import chunks_of
from xylem.serving.dialects.predict.dialect import PREDICT
from xylem.serving.dialects.predict.schema import PredictRequest
from xylem.serving.dialects.search import SHORT_ITEMS
from xylem.serving.dialects.tensors.dialect import TENSORS
from xylem.serving.live.opening import serve_model
from xylem.serving.live.served import ServedVersion
from xylem.serving.parse import parse_body, parse_options
from xylem.serving.rows import to_options
from xylem.thresholds.store.state import Head
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

ODD_TEXTS = ["a text editor", "", "TERMINAL\ud83d\ude00 zzz", "北京 e\u0301dit", "x" * 5000]


def body(*texts: str, **options: Any) -> bytes:
    return json.dumps({"instances": [{"text": text} for text in texts], **options}).encode()


def predictions_of(answer: bytes) -> list[Any]:
    return json.loads(answer)["predictions"]


def batch(
    served: ServedVersion, lines: list[Any], query: bytes, **more: Any
) -> tuple[int, list[Any]]:
    """How many of the lines are refused, and what is answered to them."""
    block = LineBlock(1, [json.dumps(line).encode() for line in lines])
    options = to_options(parse_options(query, Limits()), served)
    answered = answer_block(block, served, options, Limits(), **more)
    assert answered.n_rows == len(lines) - answered.n_bad
    return answered.n_bad, [json.loads(line) for line in answered.lines.splitlines()]


@pytest.fixture(params=["chars", "words+chars"])
def of_chars(request: pytest.FixtureRequest, tmp_path: Path) -> ServedVersion:
    store = Store(tmp_path)
    publish_model(store, "model", request.param)
    return serve_model(store.open("model"))


def test_every_way_to_an_answer_says_the_same(of_chars: ServedVersion) -> None:
    bodies = [body(text, top_r=3) for text in ODD_TEXTS]
    expected = [predictions_of(in_thread(one, of_chars))[0]["labels"] for one in bodies]
    for one, labels in zip(bodies, expected, strict=True):
        now = at_once(one, of_chars)
        assert now is None or [found["labels"] for found in predictions_of(now)] == [labels]
    together = predictions_of(in_thread(body(*ODD_TEXTS, top_r=3), of_chars))
    assert [found["labels"] for found in together] == expected
    unknown = [False, True, False, True, True]
    by_kernel = [i for i, text in enumerate(ODD_TEXTS) if "\u0301" not in text]
    for chosen in (list(range(len(ODD_TEXTS))), by_kernel):
        n_bad, lines = batch(of_chars, [{"text": ODD_TEXTS[i]} for i in chosen], b"top_r=3")
        assert n_bad == 0
        assert [line["labels"] for line in lines] == [expected[i] for i in chosen]
        assert [line.get("no_known_features", False) for line in lines] == [
            unknown[i] for i in chosen
        ]


def test_a_feature_of_characters_explains_by_its_ngram(of_chars: ServedVersion) -> None:
    query = body("text editor", top_r=5, explain=True, exact=True)
    shares = [
        share
        for label in predictions_of(in_thread(query, of_chars))[0]["labels"]
        for tree in label["explanation"]["trees"]
        for node in tree["path"]
        for share in node["features"]
    ]
    assert any("part" in share for share in shares)
    for share in shares:
        if "part" in share:
            assert share["part"] == "chars"
            assert share["feature"] in " text editor "
            assert 3 <= len(share["feature"]) <= 5
        else:
            assert share["feature"] in ("text", "editor")
            assert of_chars.featurizer.kind == "words+chars"
    assert "features/chars/utf8" in of_chars.featurizer.arrays()


NEW_WORDS = " ".join("".join(letters) for letters in permutations("aeioukst", 3))
"""As many words as a text of so many characters can have, without those
of two; no training text has them.
"""

CASES = [
    ({"features.stem": "fi"}, STEM_ITEMS),
    ({"features.stem": "fi", "features.kind": "words+chars"}, STEM_ITEMS),
    ({"features.stem": "fi", "features.kind": "hashing"}, STEM_ITEMS),
    ({"features.lemmas": "fi"}, LEMMA_ITEMS),
]


def served_with(folder: Path, features: dict[str, Any]) -> ServedVersion:
    rows = ({"text": text, "labels": [str(len(text) % 3)]} for text in REAL_TEXTS[:60])
    data, store = write_lines(folder / "train.jsonl", rows), Store(folder / "store")
    train_and_publish(
        store, "model", TrainRequest(trainer="label-tree", data=data, parameters=features)
    )
    return serve_model(store.open("model"))


def asked_of_the_library(served: ServedVersion) -> int:
    """How many words were not remembered so far."""
    return served.featurizer.forms._cached_form.cache_info().misses


def is_answered_at_once(served: ServedVersion, text: str, way: str) -> bool:
    if way == "predict":
        return at_once(body(text), served, PREDICT) is not None
    return (
        at_once(json.dumps({"inputs": [tensor("text", [text])]}).encode(), served, TENSORS)
        is not None
    )


@pytest.mark.parametrize("way", ["predict", "infer"])
@pytest.mark.parametrize(("features", "items"), CASES)
def test_a_loop_asks_for_few_forms(
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


MOST = 500
LONG = " ".join(TEXTS * 60)
N_LABELS = 11


@pytest.fixture
def served(shared_store: Path) -> ServedVersion:
    return serve_model(Store(shared_store).open("text"))


def scores_of(served: ServedVersion, asked: bytes) -> list[dict[str, float]]:
    """The scores of each row's labels, in the order answered."""
    return [
        {each["label"]: each["score"] for each in one["labels"]}
        for one in predictions_of(in_thread(asked, served))
    ]


def means(served: ServedVersion, text: str) -> dict[str, float]:
    """The mean of each label's scores in the chunks, each asked for by itself.

    Only the first chunk has first words, which count more: the rows of the others are sent.
    """
    first, *later = chunks_of(text, MOST)
    assert len(later) > 5
    rows = served.featurizer.continuation.transform_texts(later)
    parts = [rows.cut(i, i + 1) for i in range(len(later))]
    instances = [
        {"text": first},
        *({"indices": p.indices.tolist(), "values": p.values.tolist()} for p in parts),
    ]
    request = {"instances": instances, "top_r": N_LABELS, "beam_width": 100}
    each = scores_of(served, json.dumps(request).encode())
    assert all(len(one) == N_LABELS for one in each)
    return {label: float(np.mean([one[label] for one in each])) for label in each[0]}


def test_scores_are_the_means_of_the_chunks(served: ServedVersion) -> None:
    expected = means(served, LONG)
    options = {"top_r": 4, "beam_width": 100}
    long, short = scores_of(served, body(LONG, TEXTS[0], chunk_characters=MOST, **options))
    best = sorted(expected, key=lambda label: -expected[label])[:4]
    assert list(long) == best
    assert list(long.values()) == pytest.approx([expected[label] for label in best], rel=1e-6)
    assert [short] == scores_of(served, body(TEXTS[0], **options))


def test_thresholds_are_those_of_the_means(served: ServedVersion) -> None:
    expected = means(served, LONG)
    asked = {"top_r": N_LABELS, "beam_width": 100, "chunk_characters": MOST}
    least = sorted(expected.values())[N_LABELS // 2] - 1e-6
    [found] = scores_of(served, body(LONG, threshold=least, **asked))
    assert set(found) == {label for label, score in expected.items() if score >= least}
    own = np.linspace(0, 2 * np.median(list(expected.values())), N_LABELS).astype(np.float32)
    state = served.thresholds.start_state()._replace(thresholds=own)
    served.thresholds.replace(state, Head(1, "text", 1, epoch=1, base_epoch=1, n_events=0))
    [found] = scores_of(served, body(LONG, threshold="tuned", **asked))
    passing = {
        f"label::{i}" for i, least in enumerate(own.tolist()) if expected[f"label::{i}"] >= least
    }
    assert set(found) == passing
    assert 0 < len(passing) < N_LABELS


def test_a_batch_divides_as_predict_does(served: ServedVersion) -> None:
    lines = [{"text": LONG, "id": 7}, {"text": TEXTS[1]}, {"no": 1}]
    n_bad, found = batch(served, lines, b"top_r=3&chunk_characters=500", chunk_characters=MOST)
    assert n_bad == 1
    assert [line.get("id") for line in found] == [7, None, None]
    expected = scores_of(served, body(LONG, TEXTS[1], top_r=3, chunk_characters=MOST))
    assert [
        {each["label"]: each["score"] for each in line["labels"]} for line in found[:2]
    ] == expected
    assert found[2]["error"]["code"] == "bad-request"


def test_what_is_short_or_no_text_is_not_divided(shared_store: Path) -> None:
    raw = serve_model(Store(shared_store).open("raw"))
    rows, divided = [{"indices": [1, 5], "values": [1.0, 2.0]}], {"chunk_characters": MOST}
    assert scores_of(raw, body(instances=rows, **divided)) == scores_of(raw, body(instances=rows))
    with pytest.raises(BadInput) as refused:
        in_thread(body(instances=[*rows, {"text": LONG}], **divided), raw)
    assert refused.value.path == "instances[1]"


def test_texts_to_divide_are_for_a_thread_and_name_the_unknown(
    served: ServedVersion,
) -> None:
    assert at_once(body(TEXTS[0], chunk_characters=MOST), served) is None
    asked = body("qwx " * 400, LONG + " qwx" * 400, chunk_characters=MOST)
    found = predictions_of(in_thread(asked, served))
    assert [(one.get("no_known_features"), one["exact"]) for one in found] == [
        (True, False),
        (None, False),
    ]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"chunk_characters": 499}, "expected at least 500, found 499"),
        ({"chunk_characters": "500"}, "expected an integer, found"),
        ({"chunk_characters": 500, "exact": True}, "chunk_characters cannot be used with exact"),
        (
            {"chunk_characters": 500, "explain": True},
            "chunk_characters cannot be used with explain",
        ),
        (
            {"chunk_characters": 500, "label_weights": "propensity"},
            "chunk_characters cannot be used with label_weights",
        ),
        ({"chunk_charaters": 500}, "did you mean chunk_characters"),
        ({"k": 3}, r"did you mean top_r\?"),
        ({"beam": 3}, r"did you mean beam_width\?"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], fault: str) -> None:
    with pytest.raises((BadInput, LimitExceeded), match=fault) as refused:
        parse_body(body("a", **options), PredictRequest, Limits())
    assert refused.value.path == next(iter(options))


def test_texts_are_divided_in_python_too(shared_store: Path, served: ServedVersion) -> None:
    model = xylem.load(shared_store, "text")
    [found] = model.predict([LONG], 3, chunk_characters=MOST)
    [expected] = scores_of(served, body(LONG, top_r=3, chunk_characters=MOST))
    assert {each.label: each.score for each in found} == pytest.approx(expected, rel=1e-6)
    for wrong, fault in (
        (499, "at least 500, found 499"),
        (True, "found True"),
        ("500", "found '500'"),
    ):
        with pytest.raises(BadInput, match=fault):
            model.predict([LONG], chunk_characters=wrong)  # type: ignore[arg-type]
    with pytest.raises(
        BadInput, match="chunk_characters: expected texts to divide, found features"
    ):
        model.predict([{"a": 1.0}], chunk_characters=MOST)
