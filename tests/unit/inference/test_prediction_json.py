"""The kernel writes what orjson writes, byte for byte, and signs as hashlib does."""

import hashlib
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from model_store.names import build_names, name_of
from service.inference.prediction_json import OUTPUTS, Spans, form_of, predictions_json, tensors_json
from service.kernels.text.blake2 import BLOCK_BYTES, MAC_BYTES, absorb_key, append_mac
from service.thresholds.live.tokens import Token, TokenFault, Tokens, model_hash

NAMES = ["a", 'say "b" \\ c', "émigré::日本", "x" * 4096, "\U0001f600/</script>"]
TABLE = build_names(NAMES)
INFINITY = 0x7F800000
TOKENS = Tokens([b"key"], 1000)
MODEL = model_hash("m")
NO_THRESHOLDS = np.empty(0, np.float32)


def written(
    ptr: list[int],
    labels: list[int],
    scores: NDArray[np.float32],
    thresholds: NDArray[np.float32] = NO_THRESHOLDS,
    exact: list[bool] | None = None,
) -> list[bytes]:
    seal, n_rows = TOKENS.seal(MODEL, 7, 1 << 40), len(ptr) - 1
    is_exact = np.array([False] * n_rows if exact is None else exact, np.uint8)
    places = np.array(ptr[:-1], int), np.array(ptr[1:], int)
    spans = Spans(*places, np.array(labels, np.int32), scores, is_exact)
    return predictions_json(TABLE, thresholds, seal, TOKENS.serials(n_rows), spans)


def token_in(prediction: bytes) -> Token:
    """What a prediction's id says; read with hashlib."""
    token = TOKENS.read(orjson.loads(prediction)["prediction_id"], MODEL)
    assert (token.version, token.epoch) == (7, 1 << 40)
    return token


def expected(labels: list[int], scores: NDArray[np.float32]) -> bytes:
    items = [
        {"label": NAMES[label], "id": label, "score": score}
        for label, score in zip(labels, scores, strict=True)
    ]
    return orjson.dumps(items, option=orjson.OPT_SERIALIZE_NUMPY)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 4), st.floats(0, width=32, allow_infinity=False)))),
    st.lists(st.floats(0, 1, width=32), min_size=5, max_size=5) | st.just([]),
    st.randoms(use_true_random=False),
)
def test_rows_of_labels(rows: list[list[tuple[int, float]]], least: list[float], random: Random) -> None:
    labels = [label for row in rows for label, _ in row]
    scores = np.array([score for row in rows for _, score in row], np.float32)
    thresholds = np.array(least, np.float32)
    ptr = [0, *np.cumsum([len(row) for row in rows], dtype=int).tolist()]
    exact = [random.random() < 0.5 for _ in rows]
    found = written(ptr, labels, scores, thresholds, exact)
    ids = set()
    for prediction, (start, end), is_exact in zip(found, pairwise(ptr), exact, strict=True):
        begin, _, rest = prediction.rpartition(b',"prediction_id":"')
        identity, _, end_of_it = rest.partition(b'"')
        assert begin == b'{"labels":' + expected(labels[start:end], scores[start:end])
        assert end_of_it == b',"exact":%b}' % (b"true" if is_exact else b"false")
        named = [i for i in range(start, end) if not least or scores[i] >= thresholds[labels[i]]]
        assert token_in(prediction).labels.tolist() == sorted({labels[i] for i in named})
        ids.add(identity)
    assert len(ids) == len(rows)


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=1, max_size=700))
def test_the_mac_is_that_of_hashlib(key: bytes, message: bytes) -> None:
    room = np.full(len(message) + BLOCK_BYTES + MAC_BYTES, 0xA5, np.uint8)
    room[: len(message)] = np.frombuffer(message, np.uint8)
    append_mac(absorb_key(np.frombuffer(key, np.uint64).copy()), room, len(message))
    mac = hashlib.blake2b(message, digest_size=MAC_BYTES, key=key).digest()
    assert room[: len(message) + MAC_BYTES].tobytes() == message + mac


@pytest.mark.parametrize("n_labels", [0, 1, 24, 25, 56, 57, 1000])  # a block ends after 24 labels and 3 bytes
def test_tokens_of_many_labels(n_labels: int) -> None:
    (found,) = written([0, n_labels], [i % 5 for i in range(n_labels)], np.full(n_labels, 0.5, np.float32))
    assert token_in(found).labels.tolist() == list(range(min(5, n_labels)))


@pytest.mark.parametrize("last", ["A", "Q"])  # where the bits of its last letter that say nothing are 0
def test_an_id_that_was_changed_anywhere_is_forged(last: str) -> None:
    text = ""
    while not text.endswith(last):
        (found,) = written([0, 2], [3, 1], np.full(2, 0.5, np.float32))
        text = orjson.loads(found)["prediction_id"]
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
    "powers and their neighbours": np.concatenate([POWERS - np.uint32(1), POWERS, POWERS + np.uint32(1)]),
}


@pytest.mark.parametrize("bits", BITS.values(), ids=BITS)
def test_scores_are_written_as_orjson_writes_them(bits: NDArray[np.uint32]) -> None:
    scores = bits.view(np.float32)
    (found,) = written([0, len(bits)], [0] * len(bits), scores)
    assert len(token_in(found).labels) == 1
    numbers = [part.split(b"}")[0] for part in found.split(b'"score":')[1:]]
    assert numbers == orjson.dumps(scores, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")


TENSOR_NAMES = build_names(
    ["a", "b c", 'quo"te', "back\\slash", "ü", "long" * 400, *(f"label::{i}" for i in range(5))]
)
N_LABELS = 11


def expected_of(
    spans: Spans, places: int, outputs: dict[str, bool], names: Any = TENSOR_NAMES
) -> tuple[bytes, bytes]:
    """The outputs, by numpy and orjson, one place after the other."""
    n_rows = len(spans.starts)
    labels: list[str] = []
    ids = np.full((n_rows, places), -1, np.int32)
    scores = np.zeros((n_rows, places), np.float32)
    for row, (start, end) in enumerate(zip(spans.starts, spans.ends, strict=True)):
        found = spans.labels[start:end].tolist()
        labels += [name_of(names, label) for label in found] + [""] * (places - len(found))
        ids[row, : len(found)], scores[row, : len(found)] = found, spans.scores[start:end]
    arrays: dict[str, Any] = {
        "labels": labels,
        "label_ids": ids.reshape(-1),
        "scores": scores.reshape(-1),
        "lengths": (spans.ends - spans.starts).astype(np.int32),
        "exact": spans.exact.astype(np.bool_),
    }
    texts = [text.encode() for text in labels]
    as_bytes = {name: data.tobytes() for name, data in arrays.items() if name != "labels"}
    as_bytes["labels"] = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    told, binary = [], b""
    for name, is_binary in outputs.items():
        shape = [n_rows] if name in ("lengths", "exact") else [n_rows, places]
        output = {"name": name, "shape": shape, "datatype": OUTPUTS[name]}
        if is_binary:
            binary += as_bytes[name]
            output["parameters"] = {"binary_data_size": len(as_bytes[name])}
        else:
            output["data"] = arrays[name]
        told.append(orjson.dumps(output, option=orjson.OPT_SERIALIZE_NUMPY))
    return b",".join(told), binary


def spans_of(lengths: list[int], random: np.random.Generator) -> Spans:
    ptr = np.cumsum([0, *lengths])
    labels = random.integers(N_LABELS, size=ptr[-1]).astype(np.int32)
    scores = (random.random(ptr[-1]) ** 9).astype(np.float32)
    exact = random.integers(2, size=len(lengths)).astype(np.uint8)
    return Spans(ptr[:-1], ptr[1:], labels, scores, exact)


@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=6),
    st.integers(7, 30),
    st.lists(st.sampled_from(list(OUTPUTS)), unique=True, min_size=1),
    st.integers(0, 31),
    st.integers(0, 1000),
)
def test_any_outputs(lengths: list[int], places: int, wanted: list[str], bits: int, seed: int) -> None:
    spans = spans_of(lengths, np.random.default_rng(seed))
    outputs = {name: bool(bits >> k & 1) for k, name in enumerate(wanted)}
    assert tensors_json(TENSOR_NAMES, form_of(places, outputs), spans) == expected_of(spans, places, outputs)


@pytest.mark.parametrize("is_binary", [False, True])
def test_long_names_and_many_rows(is_binary: bool) -> None:
    names = build_names([f'"{i}\\' + "é" * 1900 for i in range(N_LABELS)])
    outputs = dict.fromkeys(OUTPUTS, is_binary)
    spans = spans_of([9] * 64, np.random.default_rng(0))
    assert tensors_json(names, form_of(9, outputs), spans) == expected_of(spans, 9, outputs, names)
