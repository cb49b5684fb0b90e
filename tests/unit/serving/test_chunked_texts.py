"""`chunk_characters`: an answer is the mean of those to the chunks, whichever way it is asked for."""

import json
from typing import Any

import numpy as np
import pytest

import xylem
from model_store.store import Store
from service.base.errors import BadInput, LimitExceeded
from service.base.settings import Limits
from service.inference.chunks import chunks_of
from service.serving.blocks import answer_block
from service.serving.lines import LineBlock
from service.serving.opening import serve_model
from service.serving.parse import parse_body, parse_options
from service.serving.rows import to_options
from service.serving.schemas.predict import PredictRequest
from service.serving.served import ServedVersion
from service.thresholds.store.state import Head
from tests.served_models import TEXTS, at_once, in_thread, publish_model

MOST = 500
LONG = " ".join(TEXTS * 60)
N_LABELS = 11


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("chunks") / "store")
    publish_model(store, "m", "tfidf")
    publish_model(store, "raw", "raw")
    return store


@pytest.fixture
def served(store: Store) -> ServedVersion:
    return serve_model(store.open("m"))


def body(instances: list[dict[str, Any]], **options: Any) -> bytes:
    return json.dumps({"instances": instances, **options}).encode()


def labels_of(served: ServedVersion, asked: bytes) -> list[dict[str, float]]:
    answer = json.loads(in_thread(asked, served))
    return [{each["label"]: each["score"] for each in one["labels"]} for one in answer["predictions"]]


def means(served: ServedVersion, text: str) -> dict[str, float]:
    """The mean of each label's scores in the chunks, each asked for by itself."""
    chunks = [{"text": chunk} for chunk in chunks_of(text, MOST)]
    assert len(chunks) > 5
    each = labels_of(served, body(chunks, top_r=N_LABELS, beam_width=100))
    assert all(len(one) == N_LABELS for one in each)
    return {label: float(np.mean([one[label] for one in each])) for label in each[0]}


def test_scores_are_the_means_of_the_chunks(served: ServedVersion) -> None:
    expected = means(served, LONG)
    options = {"top_r": 4, "beam_width": 100, "chunk_characters": MOST}
    long, short = labels_of(served, body([{"text": LONG}, {"text": TEXTS[0]}], **options))
    best = sorted(expected, key=lambda label: -expected[label])[:4]
    assert list(long) == best
    assert list(long.values()) == pytest.approx([expected[label] for label in best], rel=1e-6)
    assert [short] == labels_of(served, body([{"text": TEXTS[0]}], top_r=4, beam_width=100))


def test_thresholds_are_those_of_the_means(served: ServedVersion) -> None:
    expected = means(served, LONG)
    asked = {"top_r": N_LABELS, "beam_width": 100, "chunk_characters": MOST}
    least = sorted(expected.values())[N_LABELS // 2] - 1e-6
    [found] = labels_of(served, body([{"text": LONG}], threshold=least, **asked))
    assert set(found) == {label for label, score in expected.items() if score >= least}
    state = served.thresholds.start_state()
    middle = float(np.median(list(expected.values())))
    own = np.linspace(0, 2 * middle, N_LABELS).astype(np.float32)
    head = Head(1, "m", 1, epoch=1, base_epoch=1, n_events=0)
    served.thresholds.replace(state._replace(thresholds=own), head)
    [found] = labels_of(served, body([{"text": LONG}], threshold="tuned", **asked))
    names = [f"label::{i}" for i in range(N_LABELS)]
    passing = {name for name, at in zip(names, own.tolist(), strict=True) if expected[name] >= at}
    assert set(found) == passing
    assert 0 < len(passing) < N_LABELS


def test_a_batch_answers_as_predict(served: ServedVersion) -> None:
    lines = [json.dumps(line).encode() for line in ({"text": LONG, "id": 7}, {"text": TEXTS[1]}, {"no": 1})]
    options = parse_options(b"top_r=3&chunk_characters=500", Limits())
    answered = answer_block(
        LineBlock(1, lines), served, to_options(options, served), Limits(), chunk_characters=MOST
    )
    found = [json.loads(line) for line in answered.lines.splitlines()]
    assert (answered.n_rows, answered.n_bad) == (2, 1)
    assert [line.get("id") for line in found] == [7, None, None]
    expected = labels_of(served, body([{"text": LONG}, {"text": TEXTS[1]}], top_r=3, chunk_characters=MOST))
    assert [{each["label"]: each["score"] for each in line["labels"]} for line in found[:2]] == expected
    assert found[2]["error"]["code"] == "bad-request"


def test_what_is_short_or_no_text_is_not_divided(store: Store) -> None:
    raw = serve_model(store.open("raw"))
    rows = [{"indices": [1, 5], "values": [1.0, 2.0]}]
    assert labels_of(raw, body(rows, chunk_characters=MOST)) == labels_of(raw, body(rows))
    with pytest.raises(BadInput) as refused:
        labels_of(raw, body([*rows, {"text": LONG}], chunk_characters=MOST))
    assert refused.value.path == "instances[1]"


def test_a_text_of_which_nothing_is_known_says_so(served: ServedVersion) -> None:
    asked = body([{"text": "qwx " * 400}, {"text": LONG + " qwx" * 400}], chunk_characters=MOST)
    answer = json.loads(in_thread(asked, served))
    assert [one.get("no_known_features") for one in answer["predictions"]] == [True, None]
    assert [one["exact"] for one in answer["predictions"]] == [False, False]


def test_it_is_for_a_thread(served: ServedVersion) -> None:
    asked = body([{"text": TEXTS[0]}], chunk_characters=MOST)
    assert at_once(asked, served) is None


@pytest.mark.parametrize(
    ("options", "path", "fault"),
    [
        ({"chunk_characters": 499}, "chunk_characters", "expected at least 500, found 499"),
        ({"chunk_characters": "500"}, "chunk_characters", "expected an integer, found"),
        ({"chunk_characters": 500, "exact": True}, "chunk_characters", "expected none where there is exact"),
        ({"chunk_characters": 500, "explain": True}, "chunk_characters", "none where there is explain"),
        (
            {"chunk_characters": 500, "label_weights": "propensity"},
            "chunk_characters",
            "none where there is label_weights",
        ),
        ({"chunk_charaters": 500}, "chunk_charaters", "did you mean chunk_characters"),
        ({"k": 3}, "k", r"did you mean top_r\?"),
        ({"beam": 3}, "beam", r"did you mean beam_width\?"),
    ],
)
def test_what_is_refused(options: dict[str, Any], path: str, fault: str) -> None:
    with pytest.raises((BadInput, LimitExceeded), match=fault) as refused:
        parse_body(body([{"text": "a"}], **options), PredictRequest, Limits())
    assert refused.value.path == path


def test_in_python(store: Store, served: ServedVersion) -> None:
    model = xylem.load(store.root, "m")
    [found] = model.predict([LONG], 3, chunk_characters=MOST)
    assert {each.label: pytest.approx(each.score, rel=1e-6) for each in found} == labels_of(
        served, body([{"text": LONG}], top_r=3, chunk_characters=MOST)
    )[0]
    for wrong, fault in ((499, "at least 500, found 499"), (True, "found True"), ("500", "found '500'")):
        with pytest.raises(BadInput, match=fault):
            model.predict([LONG], chunk_characters=wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="chunk_characters: expected texts to divide, found features"):
        model.predict([{"a": 1.0}], chunk_characters=MOST)
