"""The kernel writes what orjson writes, byte for byte, and signs as hashlib does."""

import hashlib
from itertools import chain
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from xylem.serving.dialects.predict.prediction_json import Spans, predictions_json
from xylem.serving.feedback.tokens import Token, TokenFault, Tokens, model_hash
from xylem.serving.kernels.blake2 import BLOCK_BYTES, MAC_BYTES, absorb_key, append_mac
from xylem_store.names import build_names

NAMES = ["a", 'say "b" \\ c', "émigré::日本", "x" * 4096, "\U0001f600/</script>", "back\\slash"]
NAMES += [f"label::{i}" for i in range(5)]
TABLE = build_names(NAMES)
INFINITY = 0x7F800000
TOKENS = Tokens([b"key"], 1000)
MODEL = model_hash("m")
NO_THRESHOLDS = np.empty(0, np.float32)
Row = list[tuple[int, float]]
"""Labels and their scores."""

pairs = st.tuples(st.integers(0, len(NAMES) - 1), st.floats(0, width=32, allow_infinity=False))


def spans_of(rows: list[Row], exact: list[bool]) -> Spans:
    ptr, pairs = np.cumsum([0, *map(len, rows)]), list(chain.from_iterable(rows))
    labels = np.array([label for label, _ in pairs], np.int32)
    scores = np.array([score for _, score in pairs], np.float32)
    return Spans(ptr[:-1], ptr[1:], labels, scores, np.array(exact, np.uint8))


def written(
    rows: list[Row],
    thresholds: NDArray[np.float32] = NO_THRESHOLDS,
    exact: list[bool] | None = None,
) -> list[bytes]:
    seal, spans = TOKENS.seal(MODEL, 7, 1 << 40), spans_of(rows, exact or [False] * len(rows))
    return predictions_json(TABLE, thresholds, seal, TOKENS.serials(len(rows)), spans)


def token_in(prediction: bytes) -> Token:
    """What a prediction's id says; read with hashlib."""
    token = TOKENS.read(orjson.loads(prediction)["prediction_id"], MODEL)
    assert (token.version, token.epoch) == (7, 1 << 40)
    return token


def dump(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


@given(
    st.lists(st.tuples(st.lists(pairs), st.booleans())),
    st.lists(st.floats(0, 1, width=32), min_size=11, max_size=11) | st.just([]),
)
def test_rows_of_labels(given_rows: list[tuple[Row, bool]], least: list[float]) -> None:
    rows, exact = ([each[i] for each in given_rows] for i in (0, 1))
    ids = set()
    found = written(rows, np.array(least, np.float32), exact)
    for prediction, row, is_exact in zip(found, rows, exact, strict=True):
        labels = [
            {"label": NAMES[label], "id": label, "score": np.float32(score)} for label, score in row
        ]
        begin, _, rest = prediction.rpartition(b',"prediction_id":"')
        identity, _, end_of_it = rest.partition(b'"')
        assert begin == b'{"labels":' + dump(labels)
        assert end_of_it == b',"exact":%b}' % (b"true" if is_exact else b"false")
        named = {label for label, score in row if not least or score >= least[label]}
        assert token_in(prediction).labels.tolist() == sorted(named)
        ids.add(identity)
    assert len(ids) == len(rows)


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=1, max_size=700))
def test_the_mac_is_that_of_hashlib(key: bytes, message: bytes) -> None:
    room = np.full(len(message) + BLOCK_BYTES + MAC_BYTES, 0xA5, np.uint8)
    room[: len(message)] = np.frombuffer(message, np.uint8)
    append_mac(absorb_key(np.frombuffer(key, np.uint64).copy()), room, len(message))
    mac = hashlib.blake2b(message, digest_size=MAC_BYTES, key=key).digest()
    assert room[: len(message) + MAC_BYTES].tobytes() == message + mac


@pytest.mark.parametrize(
    "n_labels", [0, 1, 24, 25, 56, 57, 1000]
)  # a block ends after 24 labels and 3 bytes
def test_tokens_of_many_labels(n_labels: int) -> None:
    (found,) = written([[(i % 5, 0.5) for i in range(n_labels)]])
    assert token_in(found).labels.tolist() == list(range(min(5, n_labels)))


@pytest.mark.parametrize(
    "last", ["A", "Q"]
)  # where the bits of its last letter that say nothing are 0
def test_an_id_that_was_changed_anywhere_is_forged(last: str) -> None:
    text = ""
    while not text.endswith(last):
        text = orjson.loads(written([[(3, 0.5), (1, 0.5)]])[0])["prediction_id"]
    for i, letter in enumerate(text):
        changed = text[:i] + ("A" if letter != "A" else "B") + text[i + 1 :]
        with pytest.raises(TokenFault, match="found another text"):
            TOKENS.read(changed, MODEL)
    with pytest.raises(TokenFault, match="found another text"):
        Tokens([b"other"], 1000).read(text, MODEL)


TWOS = np.arange(1, 255, dtype=np.uint32) << np.uint32(23)
TENS = np.array([float(f"1e{k}") for k in range(-45, 39)], np.float32).view(np.uint32)
POWERS = np.concatenate([TWOS, TENS])
BITS = {
    "of every size": np.arange(0, INFINITY, 20_011, dtype=np.uint32),
    "probabilities": np.random.default_rng(0).random(100_000, np.float32).view(np.uint32),
    "powers and their neighbours": np.concatenate(
        [POWERS - np.uint32(1), POWERS, POWERS + np.uint32(1)]
    ),
}


@pytest.mark.parametrize("bits", BITS.values(), ids=BITS)
def test_scores_are_written_as_orjson_writes_them(bits: NDArray[np.uint32]) -> None:
    scores = bits.view(np.float32)
    (found,) = written([[(0, score) for score in scores]])
    assert len(token_in(found).labels) == 1
    numbers = [part.split(b"}")[0] for part in found.split(b'"score":')[1:]]
    assert numbers == dump(scores)[1:-1].split(b",")
