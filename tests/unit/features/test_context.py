"""Windows of words: what stands before each word, ends of texts, words that the vocabulary lacks."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from model_store.errors import Corrupt
from model_store.names import name_of
from service.base.errors import BadData
from service.datasets.reader import read_texts
from service.features import load_featurizer
from service.features.context import ContextFeaturizer, fit_context, tokens_of
from service.features.parameters import ContextParameters

TEXTS = ["The cat sat, the cat SAT.", "a dog's life", "", "the the"]


def fitted(window: int = 3, min_count: int = 2) -> ContextFeaturizer:
    return fit_context(TEXTS, ContextParameters(window=window, min_count=min_count))


def test_words_are_lower_case_and_marks_are_words() -> None:
    assert tokens_of("It's 3, or\u00a0ÉTÉ!") == ["it's", "3", ",", "or", "été", "!"]


def test_the_most_frequent_words_come_first() -> None:
    words = fitted().words
    assert [name_of(words, i) for i in range(words.n_names)] == ["<s>", "</s>", "<unk>", "the", "cat", "sat"]


@pytest.mark.parametrize("window", [1, 2, 5])
def test_windows_are_what_stands_before_each_word(window: int) -> None:
    featurizer = fitted(window)
    names = [name_of(featurizer.words, i) for i in range(featurizer.words.n_names)]
    rows, labels = featurizer.windows_of(TEXTS)
    expected = []
    for text in TEXTS:
        tokens = [token if token in names else "<unk>" for token in tokens_of(text)]
        padded = ["<s>"] * window + tokens
        for i, word in enumerate([*tokens, "</s>"]):
            expected.append((padded[i : i + window][::-1], word))
    assert rows.n_rows == labels.n_rows == len(expected)
    assert rows.n_features == window * len(names)
    for i, (before, word) in enumerate(expected):
        features = rows.indices[rows.indptr[i] : rows.indptr[i + 1]].tolist()
        assert [names[f % len(names)] for f in features] == before
        assert [f // len(names) for f in features] == list(range(window))
        assert names[labels.indices[i]] == word
    assert (rows.values == 1).all()
    assert all(a < b for a, b in itertools.pairwise(rows.indptr.tolist()))


def test_a_text_to_predict_is_its_last_window() -> None:
    featurizer = fitted(3)
    rows, _ = featurizer.windows_of(TEXTS)
    ends = np.cumsum([len(tokens_of(text)) + 1 for text in TEXTS]) - 1
    found = featurizer.transform_texts(TEXTS)
    of_ends = np.concatenate([rows.indices[rows.indptr[end] : rows.indptr[end + 1]] for end in ends])
    np.testing.assert_array_equal(found.indices, of_ends)
    assert featurizer.transform_texts([]).n_rows == 0


def test_it_is_stored_and_loaded_and_refused_when_damaged() -> None:
    featurizer = fitted(2)
    config, arrays = featurizer.config(), featurizer.arrays()
    again = load_featurizer(config, arrays, featurizer.n_features)
    np.testing.assert_array_equal(
        again.transform_texts(TEXTS).indices, featurizer.transform_texts(TEXTS).indices
    )
    with pytest.raises(Corrupt):
        load_featurizer(config, arrays, featurizer.n_features + 1)
    with pytest.raises(Corrupt):
        load_featurizer(config, {}, featurizer.n_features)


def test_texts_without_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"expected texts with words, found none"):
        fit_context(["", "  "], ContextParameters())
    one = fit_context(["x"], ContextParameters(min_count=5))
    assert one.words.n_names == 3
    data = tmp_path / "texts.jsonl"
    for content in ("", "{}\n", '{"text": 1}\n', "[]\n", "{\n"):
        data.write_text(content)
        with pytest.raises(BadData, match=r"expected.*found"):
            read_texts(data)
    data.write_text('{"text": "a", "labels": ["x"]}\n\n{"text": ""}\n')
    assert read_texts(data).texts == ["a", ""]
