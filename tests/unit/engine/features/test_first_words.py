"""First words that count more, and pairs of words at half weight, against a slow oracle."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from tests.helpers.datasets_helpers import assert_same_bits, check_sparse, texts_alone
from tests.helpers.real_texts import TEXTS, TEXTS_UNSEEN
from tests.helpers.small_models import small_draft
from tests.oracles.text_tokens import char_ngrams, ngrams_of_runs, ready, slow_hash, word_runs

from xylem.base import Crew
from xylem.base.errors import BadParameter
from xylem.base.rows import SparseRows
from xylem.engine.features.combined import CombinedFeaturizer
from xylem.engine.features.parameters import parameters_of
from xylem.engine.features.registry import (
    feature_names,
    fit_featurizer,
    load_featurizer,
    streaming_featurizer,
)
from xylem_store.errors import Corrupt
from xylem_store.version import Model, model_of

COUNTS = {"sublinear_tf": False, "use_idf": False, "norm": "none", "clean": False}
scripts = st.text(alphabet="ab _é\u0301日本ก็ี่म्कहि\u3000ー9", max_size=30)
leads = st.integers(0, 4)
weights = st.integers(1, 5)


def word_counts(text: str, lead: int, weight: int, bigrams: bool) -> dict[str, float]:
    """Return how much each word of a text counts, and each pair if there are bigrams."""
    runs = word_runs(text, True, True)
    longest = 2 if bigrams else 1
    counts = Counter(ngrams_of_runs(runs, 1, longest))
    for _ in range(weight - 1):
        counts.update(ngrams_of_runs(runs[:lead], 1, longest))
    return {ngram: count / 2 if " " in ngram else count for ngram, count in counts.items()}


def char_counts(text: str, lead: int, weight: int) -> dict[str, float]:
    """Return how much each n-gram of one to four characters of a text counts."""
    counts = Counter(char_ngrams(text, True, True, 1, 4))
    first = " ".join(ready(text, True, True).split()[:lead])
    for _ in range(weight - 1):
        counts.update(char_ngrams(first, True, True, 1, 4))
    return dict(counts)


def rows_by_name(
    texts: list[str], row: int, **config: Any
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the values of a row by the names of words and of n-grams of characters.

    The row of the fit and that of `transform_texts` have the same bits, also after loading.
    """
    featurizer, rows = fit_featurizer(texts_alone(texts), parameters_of(config))
    check_sparse(rows)
    assert_same_bits(featurizer.transform_texts(texts), rows)
    stored = featurizer.config()
    loaded = load_featurizer(stored, featurizer.arrays(), featurizer.n_features)
    assert_same_bits(loaded.transform_texts(texts), rows)
    names = feature_names(stored, featurizer.arrays())
    assert names is not None
    parts: tuple[dict[str, float], dict[str, float]] = ({}, {})
    one = rows.cut(row, row + 1)
    for feature, value in zip(one.indices.tolist(), one.values.tolist(), strict=True):
        parts[names.is_chars(feature)][names.name(feature)] = value
    return parts


@settings(max_examples=150)
@given(scripts, leads, weights, st.booleans())
@example("ab ba ab_ ab ba", 2, 3, True)
@example("日本 ab 日本", 1, 3, True)
def test_words_count_as_the_oracle_says(text: str, lead: int, weight: int, bigrams: bool) -> None:
    config = {"kind": "tfidf", "lead": lead, "lead_weight": weight, "bigrams": bigrams, **COUNTS}
    words, _ = rows_by_name([text, "one word"], 0, **config)
    assert words == word_counts(text, lead, weight, bigrams)


@settings(max_examples=150)
@given(scripts, leads, weights)
@example("ab  ba ab", 2, 3)
def test_characters_count_as_the_oracle_says(text: str, lead: int, weight: int) -> None:
    config = {"kind": "chars", "char_min": 1, "char_max": 4, "char_min_df": 1}
    more = {"lead": lead, "lead_weight": weight, **COUNTS}
    _, chars = rows_by_name([text, "one word"], 0, **config, **more)
    assert chars == char_counts(text, lead, weight)


@settings(max_examples=100)
@given(scripts, leads, weights, st.booleans())
def test_words_beside_characters_count_alike(
    text: str, lead: int, weight: int, bigrams: bool
) -> None:
    config = {"kind": "words+chars", "char_min": 1, "char_max": 4, "char_min_df": 1}
    more = {"lead": lead, "lead_weight": weight, "bigrams": bigrams, **COUNTS}
    words, chars = rows_by_name([text, "one word"], 0, **config, **more)
    assert words == word_counts(text, lead, weight, bigrams)
    assert chars == char_counts(text, lead, weight)


@settings(max_examples=100)
@given(scripts, leads, weights, st.booleans())
def test_hashes_of_words_count_alike(text: str, lead: int, weight: int, bigrams: bool) -> None:
    config = {"kind": "hashing", "n_features": 256, "norm": "none", "clean": False}
    more = {"lead": lead, "lead_weight": weight, "bigrams": bigrams}
    rows = fit_featurizer(texts_alone([text]), parameters_of({**config, **more}))[1]
    expected: dict[int, float] = {}
    for name, count in word_counts(text, lead, weight, bigrams).items():
        h = slow_hash(name.encode())
        sign = -1.0 if h >> 63 else 1.0
        expected[h % 256] = expected.get(h % 256, 0.0) + sign * count
    assert dict(zip(rows.indices.tolist(), rows.values.tolist(), strict=True)) == expected


def test_counts_are_weighted_and_scaled_afterwards() -> None:
    """The weight of a first word is 1 + ln(3), not 3 times its weight; a pair has half of its."""
    texts = ["red tea red", "tea leaf", "leaf"]
    words, _ = rows_by_name(texts, 0, kind="tfidf", lead=1, bigrams=True)
    idf = {name: math.log(4 / (1 + n)) + 1 for name, n in {"red": 1, "tea": 2, "pair": 1}.items()}
    expected = {
        "red": (1 + math.log(4)) * idf["red"],
        "tea": idf["tea"],
        "red tea": 0.5 * idf["pair"],
        "tea red": 0.5 * idf["pair"],
    }
    length = math.sqrt(sum(value**2 for value in expected.values()))
    assert words == pytest.approx({name: v / length for name, v in expected.items()}, rel=1e-6)


KINDS: list[dict[str, Any]] = [
    {"kind": "tfidf", "bigrams": True},
    {"kind": "tfidf", "stop_words": "en"},
    {"kind": "chars"},
    {"kind": "words+chars", "bigrams": True},
    {"kind": "hashing", "bigrams": True},
]


@pytest.mark.parametrize("config", KINDS, ids=str)
def test_all_ways_make_the_same_rows(config: dict[str, Any]) -> None:
    """Texts one by one, in blocks, by two workers, and as a stream."""
    config = {**config, "lead": 10}
    data = texts_alone([*TEXTS, *TEXTS_UNSEEN])
    featurizer, rows = fit_featurizer(data, parameters_of(config))
    plain = fit_featurizer(data, parameters_of({**config, "lead": 0}))[1]
    assert rows.values.tobytes() != plain.values.tobytes()
    assert np.array_equal(rows.indices, plain.indices)
    assert_same_bits(featurizer.transform_texts(data.texts or []), rows)
    assert_same_bits(fit_featurizer(data, parameters_of(config), Crew(2))[1], rows)
    alone = [featurizer.transform_texts([text]) for text in (data.texts or [])[:50]]
    assert_same_bits(SparseRows.join(alone), rows.cut(0, 50))
    assert_same_bits(featurizer.continuation.transform_texts(data.texts or []), plain)
    if config["kind"] == "hashing":
        streamed = streaming_featurizer(data, config, 0)
        assert_same_bits(streamed.transform_texts(data.texts or []), rows)


def test_combined_versions_have_first_words_in_the_first_chunk() -> None:
    data = texts_alone(TEXTS[:100])
    members: dict[int, list[Model]] = {10: [], 0: []}
    for lead, models in members.items():
        for kind in ("tfidf", "chars"):
            featurizer, rows = fit_featurizer(data, parameters_of({"kind": kind, "lead": lead}))
            draft = small_draft(1, n_features=rows.n_features)
            arrays = {**draft.extra, **featurizer.arrays()}
            models.append(model_of(replace(draft, features=featurizer.config(), extra=arrays)))
    leading, plain = (CombinedFeaturizer(models) for models in members.values())
    texts = TEXTS[:100]
    assert len(leading.blocks) == 2
    continued = leading.continuation.transform_texts(texts)
    assert_same_bits(continued, plain.transform_texts(texts))
    rows = leading.transform_texts(texts)
    assert rows.values.tobytes() != continued.values.tobytes()
    assert_same_bits(leading.transform_texts(texts), rows)


def test_manifests_have_what_is_used() -> None:
    unused = parameters_of({"kind": "words+chars", "lead": 0, "lead_weight": 7})
    featurizer = fit_featurizer(texts_alone(TEXTS[:50]), unused)[0]
    config = featurizer.config()
    assert not {"lead", "lead_weight", "bigrams"} & config.keys()
    loaded = load_featurizer(config, featurizer.arrays(), featurizer.n_features)
    assert (loaded.parameters.lead, loaded.parameters.bigrams) == (0, False)  # type: ignore[union-attr]
    assert loaded.continuation is loaded
    used = parameters_of({"kind": "tfidf", "lead": 10, "bigrams": True})
    featurizer = fit_featurizer(texts_alone(TEXTS[:50]), used)[0]
    config = featurizer.config()
    assert (config["lead"], config["lead_weight"], config["bigrams"]) == (10, 3, True)
    del config["lead_weight"]
    with pytest.raises(Corrupt, match=r"expected features\.lead_weight, found none"):
        load_featurizer(config, featurizer.arrays(), featurizer.n_features)


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"kind": "tfidf", "lead": -1}, r"features\.lead: expected an integer from 0 to 1000"),
        ({"kind": "chars", "lead": 1001}, r"features\.lead: expected an integer from 0 to 1000"),
        ({"kind": "hashing", "lead_weight": 0}, r"features\.lead_weight: expected an integer"),
        ({"kind": "tfidf", "lead_weight": 2.5}, r"features\.lead_weight: expected an integer"),
        (
            {"kind": "tfidf", "bigrams": True, "ngram_max": 2},
            r"features\.bigrams: expected ngram_min and ngram_max to be 1 with bigrams",
        ),
        ({"kind": "chars", "bigrams": True}, r"features\.bigrams: expected only"),
        ({"kind": "auto", "lead": 10}, r"features\.lead: expected only"),
        ({"kind": "named", "lead": 10}, r"features\.lead: expected only"),
    ],
)
def test_what_is_wrong_is_refused(config: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadParameter, match=fault):
        parameters_of(config)
