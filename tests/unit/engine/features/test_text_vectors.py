"""Vectors beside words: the tail of a row equals its formula, alone and among others."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.helpers.datasets_helpers import texts_alone
from tests.helpers.real_texts import TEXTS as REAL_TEXTS
from tests.helpers.vectors import NUMBERS, vectors_of

from xylem.base.errors import BadInstance
from xylem.base.rows import Dataset
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.parameters import parameters_of
from xylem.engine.features.registry import (
    fit_featurizer,
    load_featurizer,
    streaming_featurizer,
)
from xylem.engine.features.vectors import VectorFeaturizer, VectorParameters, fit_tail
from xylem_store.errors import Corrupt

TEXTS = REAL_TEXTS[:120]
VECTORS = vectors_of(TEXTS)
DATA = replace(texts_alone(TEXTS), vectors=VECTORS)
KINDS = ["tfidf", "chars", "words+chars", "hashing"]


def fitted(kind: str, data: Dataset = DATA, **parameters: Any) -> tuple[VectorFeaturizer, Any]:
    """Return the featurizer that is fitted to the data with vectors, and the rows."""
    featurizer, rows = fit_featurizer(
        data, parameters_of({"kind": kind}), vectors=VectorParameters(**parameters)
    )
    assert isinstance(featurizer, VectorFeaturizer)
    return featurizer, rows


@pytest.mark.parametrize("dims", [0, 1, 9, NUMBERS, 99])
def test_a_tail_equals_its_formula(dims: int) -> None:
    tail = fit_tail([VECTORS[:50], VECTORS[50:]], VectorParameters(dims=dims, weight=0.7))
    mean = VECTORS.astype(np.float64).mean(0)
    np.testing.assert_allclose(tail.mean, mean, rtol=1e-6)
    assert tail.dims == (dims if 0 < dims < NUMBERS else NUMBERS)
    centred = VECTORS - mean
    directions = centred / np.linalg.norm(centred, axis=1)[:, None]
    basis = tail.basis.astype(np.float64) if tail.basis.size else np.eye(NUMBERS)
    np.testing.assert_allclose(tail.tails(VECTORS), 0.7 * directions @ basis, atol=1e-6)
    np.testing.assert_allclose(basis.T @ basis, np.eye(tail.dims), atol=1e-6)


def test_the_components_hold_the_variance_of_the_exact_ones() -> None:
    spread = VECTORS * 0.7 ** np.arange(NUMBERS)
    basis = fit_tail([spread.astype(np.float32)], VectorParameters(dims=5)).basis
    centred = spread - spread.mean(0)
    exact = np.linalg.svd(centred, full_matrices=False)[2][:5].T
    assert ((centred @ basis) ** 2).sum() > 0.999 * ((centred @ exact) ** 2).sum()
    assert np.abs(basis[:, 0] @ exact[:, 0]) > 0.999


def test_a_row_has_the_same_bits_alone_and_among_others() -> None:
    tail = fit_tail([VECTORS], VectorParameters(dims=9))
    together = tail.tails(VECTORS)
    for row in range(len(VECTORS)):
        assert tail.tails(VECTORS[row : row + 1]).tobytes() == together[row].tobytes()


def test_what_has_no_direction_has_a_tail_of_zeros() -> None:
    same = np.ones((4, NUMBERS), np.float32)
    tail = fit_tail([same], VectorParameters(dims=3))
    assert not tail.tails(same).any() and not tail.basis.any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_that_of_the_words_and_the_tail(kind: str) -> None:
    featurizer, rows = fitted(kind, dims=7, weight=0.3)
    words = fit_featurizer(DATA, parameters_of({"kind": kind}))[1]
    assert rows.n_features == words.n_features + 7 and rows.tail == 7
    tails = featurizer.tail.tails(VECTORS)
    for row, tail in enumerate(tails):
        one, of_words = rows.cut(row, row + 1), words.cut(row, row + 1)
        assert one.indices.tolist() == [
            *of_words.indices.tolist(),
            *range(words.n_features, rows.n_features),
        ]
        assert one.values.tobytes() == of_words.values.tobytes() + tail.tobytes()
    again = featurizer.transform_with_vectors(TEXTS, VECTORS)
    loaded = load_featurizer(featurizer.config(), featurizer.arrays(), featurizer.n_features)
    for other in (again, loaded.transform_dataset(DATA)):
        assert all(map(np.array_equal, other[:3], rows[:3])) and other[3:] == rows[3:]
    assert loaded.vector_numbers == NUMBERS and loaded.tail_features == 7


@pytest.mark.parametrize("kind", KINDS)
def test_later_chunks_have_no_first_words(kind: str) -> None:
    featurizer, _ = fitted(kind)
    later = featurizer.continuation.transform_with_vectors(TEXTS[:3], VECTORS[:3])
    expected = featurizer.words.continuation.transform_texts(TEXTS[:3])
    assert later.n_features == featurizer.n_features
    assert later.indptr.tolist() == (expected.indptr + NUMBERS * np.arange(4)).tolist()


def test_a_stream_gets_the_mean_and_components_of_all_blocks() -> None:
    blocks = [VECTORS[:7], VECTORS[7:90], VECTORS[90:]]
    streamed = streaming_featurizer(DATA, {}, 0, VectorParameters(dims=7), blocks)
    whole, rows = fitted("hashing", dims=7)
    assert streamed.config() == whole.config()
    assert all(map(np.array_equal, streamed.transform_dataset(DATA)[:3], rows[:3]))


def numbers(n: int) -> str:
    return re.escape(f"{n} numbers")


WORDS_ONLY = fit_featurizer(texts_alone(TEXTS), parameters_of({"kind": "tfidf"}))[0]
BESIDE = fitted("tfidf")[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: BESIDE.transform_texts(["a"]),
            f"a vector of {numbers(NUMBERS)}, or ids and values, .* found no vector",
        ),
        (
            lambda: BESIDE.transform_with_vectors(["a"], VECTORS[:1, :5]),
            f"expected a vector of {numbers(NUMBERS)}, found one of 5",
        ),
        (
            lambda: BESIDE.transform_with_vectors(["a"], VECTORS[:1] * np.float32(np.nan)),
            "expected a vector of finite 32-bit numbers, found nan",
        ),
        (
            lambda: WORDS_ONLY.transform_with_vectors(["a"], VECTORS[:1]),
            f"expected text or ids and values, .* found a vector of {numbers(NUMBERS)}",
        ),
        (lambda: BESIDE.transform_named([{"a": 1.0}]), "found named features"),
    ],
)
def test_what_a_model_does_not_take_is_refused(
    make: Callable[[], Featurizer], message: str
) -> None:
    with pytest.raises(BadInstance, match=message):
        make()


def test_damaged_versions_are_refused() -> None:
    config, arrays = BESIDE.config(), BESIDE.arrays()
    by_encoder = {
        "vectors.source": "encoder",
        "vectors.encoder": "an encoder",
        "vectors.prefix": "",
        "vectors.max_tokens": 128,
    }
    few = {**arrays, "vectors/mean": arrays["vectors/mean"][:-1]}
    wide = {**arrays, "vectors/mean": arrays["vectors/mean"].astype(np.float64)}
    for change, other in (
        ({"vectors.source": "elsewhere"}, arrays),
        ({"vectors.weight": 0}, arrays),
        ({"vectors.weight": True}, arrays),
        ({"vectors.weight": "auto"}, arrays),
        ({"vectors.weight": 101}, arrays),
        ({**by_encoder, "vectors.max_tokens": 3}, arrays),
        ({**by_encoder, "vectors.prefix": None}, arrays),
        ({"vectors.dims": 3}, arrays),
        ({"vectors.numbers": 3}, arrays),
        ({"vectors.other": 3}, arrays),
        ({"kind": "named"}, arrays),
        ({}, few),
        ({}, wide),
        ({}, {name: array for name, array in arrays.items() if name != "vectors/basis"}),
    ):
        with pytest.raises(Corrupt):
            load_featurizer({**config, **change}, other, BESIDE.n_features)
    with pytest.raises(Corrupt):
        load_featurizer(config, arrays, BESIDE.n_features + 1)
