"""The kernel writes what orjson writes, byte for byte."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model_store.names import build_names
from service.inference.label_json import labels_json

NAMES = ["a", 'say "b" \\ c', "émigré::日本", "x" * 4096, "\U0001f600/</script>"]
TABLE = build_names(NAMES)
_INFINITY = 0x7F800000


def written(ptr: list[int], labels: list[int], scores: NDArray[np.float32]) -> list[bytes]:
    return labels_json(TABLE, np.array(ptr), np.array(labels, np.int32), scores)


def expected(labels: list[int], scores: NDArray[np.float32]) -> bytes:
    items = [
        {"label": NAMES[label], "id": label, "score": score}
        for label, score in zip(labels, scores, strict=True)
    ]
    return orjson.dumps(items, option=orjson.OPT_SERIALIZE_NUMPY)


def assert_scores_as_orjson_writes_them(bits: NDArray[np.uint32]) -> None:
    scores = bits.view(np.float32)
    (found,) = written([0, len(bits)], [0] * len(bits), scores)
    numbers = [part.split(b"}")[0] for part in found.split(b'"score":')[1:]]
    assert numbers == orjson.dumps(scores, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 4), st.floats(0, width=32, allow_infinity=False)))))
def test_rows_of_labels(rows: list[list[tuple[int, float]]]) -> None:
    labels = [label for row in rows for label, _ in row]
    scores = np.array([score for row in rows for _, score in row], np.float32)
    ptr = [0, *np.cumsum([len(row) for row in rows], dtype=int).tolist()]
    found = written(ptr, labels, scores)
    assert found == [expected(labels[start:end], scores[start:end]) for start, end in pairwise(ptr)]


def test_scores_of_every_size() -> None:
    assert_scores_as_orjson_writes_them(np.arange(0, _INFINITY, 20_011, dtype=np.uint32))


def test_probabilities() -> None:
    chooser = np.random.default_rng(0)
    assert_scores_as_orjson_writes_them(chooser.random(100_000, np.float32).view(np.uint32))


def test_powers_and_their_neighbours() -> None:
    twos = np.arange(1, 255, dtype=np.uint32) << np.uint32(23)
    tens = np.array([float(f"1e{k}") for k in range(-45, 39)], np.float32).view(np.uint32)
    bits = np.concatenate([twos, tens])
    assert_scores_as_orjson_writes_them(np.concatenate([bits - np.uint32(1), bits, bits + np.uint32(1)]))
