"""Tf-idf against scikit-learn's TfidfVectorizer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from model_store.names import NAME_BYTES_MAX, all_names
from service.base.errors import BadData, BadParameter
from service.features import load_featurizer
from service.features.characters import BLOCK_TEXTS
from service.features.parameters import TfidfParameters
from service.features.tfidf import TfidfFeaturizer, fit_tfidf
from tests.datasets_helpers import assert_same_bits, assert_same_rows
from tests.real_texts import TEXTS, TEXTS_UNSEEN

NASTY = [
    "",
    " ",
    "a b c",
    "ΌΣΟΣ ΣΑΣ Σ",
    "İstanbul ISTANBUL ıI",
    "naïve naïve e\u0301te\u0301",
    "日本語 テキスト 한국어",
    "foo_bar __init__ x1 1x 12 3.14 1,000",
    "don't e-mail C++ c# .net",
    "\ud800lone \udfffsurrogate\ud83d",
    "nul\0byte tab\tnew\nline\x85next\u2028sep\u00a0nbsp",
    "²³ ½ Ⅷ ٣٤ 𝟘𝟙 ᾳ ß ẞ ﬁﬂ",
    "🦊🦊 zero\u200bwidth soft\u00adhyphen a\u0300 \u0300\u0301",
    "THE the The tHe the",
    "x" * 50 + " " + "y" * 50,
]


def vectorizer_of(p: Any, **more: Any) -> TfidfVectorizer:
    """What scikit-learn has for the parameters that words and characters share, and for others."""
    scales = {"sublinear_tf": p.sublinear_tf, "use_idf": p.use_idf, "smooth_idf": p.smooth_idf}
    return TfidfVectorizer(lowercase=p.lowercase, norm=None if p.norm == "none" else p.norm, **scales, **more)


def check(p: TfidfParameters, texts: Sequence[str], unseen: Sequence[str]) -> TfidfFeaturizer:
    bounds = {"min_df": p.min_df, "max_df": p.max_df, "max_features": p.max_features}
    vectorizer = vectorizer_of(p, ngram_range=(p.ngram_min, p.ngram_max), **bounds)
    expected = vectorizer.fit_transform(texts)
    featurizer, rows = fit_tfidf(texts, p)
    assert_same_rows(rows, expected)
    assert all_names(featurizer.names) == vectorizer.get_feature_names_out().tolist()
    assert_same_rows(featurizer.transform_texts(unseen), vectorizer.transform(unseen))
    assert_same_bits(featurizer.transform_texts(texts), rows)
    return featurizer


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"sublinear_tf": False},
        {"ngram_max": 3, "min_df": 2},
        {"ngram_min": 2, "ngram_max": 2, "max_df": 0.1},
        {"norm": "l1", "smooth_idf": False},
        {"norm": "none", "use_idf": False},
        {"lowercase": False, "min_df": 0.01, "max_df": 0.5},
        {"min_df": 3, "max_df": 100},
        {"min_df": 0.0, "max_df": 1.0},
    ],
)
def test_real_texts(chosen: dict[str, Any]) -> None:
    check(TfidfParameters(unicode=False, clean=False, **chosen), TEXTS, TEXTS_UNSEEN + NASTY)


@pytest.mark.parametrize("chosen", [{}, {"ngram_max": 2, "lowercase": False}, {"sublinear_tf": False}])
def test_nasty_texts(chosen: dict[str, Any]) -> None:
    check(TfidfParameters(unicode=False, clean=False, **chosen), NASTY, TEXTS_UNSEEN)


def test_reading_unicode_changes_nothing_in_english() -> None:
    check(TfidfParameters(ngram_max=2), [text for text in TEXTS if text.isascii()], ["an unseen text"])


@pytest.mark.parametrize(
    ("unicode", "names"),
    [
        (True, ["ab", "café", "京", "京大", "北", "北京", "大", "大学", "学"]),
        (False, ["ab", "cafe", "北京大学"]),
    ],
)
def test_versions_from_before_unicode_keep_their_words(unicode: bool, names: list[str]) -> None:
    featurizer, _ = fit_tfidf(["北京大学 cafe\u0301 ab"], TfidfParameters(unicode=unicode))
    config = featurizer.config()
    assert config.get("unicode") is (True if unicode else None)
    loaded = load_featurizer(config, featurizer.arrays(), featurizer.n_features)
    assert loaded.parameters == featurizer.parameters
    assert all_names(featurizer.names) == names


def test_more_texts_than_a_block() -> None:
    texts = [f"word{i % 977} word{i % 31} common" for i in range(2 * BLOCK_TEXTS + 5)]
    check(TfidfParameters(ngram_max=2), texts, texts[: BLOCK_TEXTS + 1])


def test_the_most_frequent_features_stay() -> None:
    texts = ["aa aa aa bb bb cc", "bb cc dd", "ee dd aa"]
    featurizer = check(TfidfParameters(max_features=2), texts, texts)
    assert all_names(featurizer.names) == ["aa", "bb"]
    # cc and dd are equally frequent: the smaller one stays
    featurizer, _ = fit_tfidf(texts, TfidfParameters(max_features=3))
    assert all_names(featurizer.names) == ["aa", "bb", "cc"]
    assert check(TfidfParameters(max_features=99), texts, texts).n_features == 5


word = st.text(st.characters(codec=None), max_size=8)
text = st.lists(word, max_size=6).map(" ".join)


@settings(max_examples=150)
@given(
    st.lists(text, min_size=1, max_size=6),
    text,
    st.booleans(),
    st.sampled_from([(1, 1), (1, 2), (2, 3)]),
    st.sampled_from(["l2", "l1", "none"]),
)
@example(["aa\ud800bb", "ǅǅ ŉŉ"], "AA BB", True, (1, 2), "l2")
def test_any_text(texts: list[str], unseen: str, lowercase: bool, ngrams: tuple[int, int], norm: Any) -> None:
    parameters = TfidfParameters(
        lowercase=lowercase, unicode=False, clean=False, ngram_min=ngrams[0], ngram_max=ngrams[1], norm=norm
    )
    try:
        check(parameters, texts, [unseen, "", *texts])
    except ValueError as error:
        assert "empty vocabulary" in str(error)
        with pytest.raises(BadData, match="expected texts with a word of two characters, found none"):
            fit_tfidf(texts, parameters)


def test_bounds_that_leave_nothing() -> None:
    fault = "expected bounds with an n-gram in 3 to 2 of the 2 texts, found none"
    with pytest.raises(BadParameter, match=fault):
        fit_tfidf(["aa", "aa"], TfidfParameters(min_df=3))


def test_words_too_long_for_a_name_are_no_features() -> None:
    longest, longer = "x" * NAME_BYTES_MAX, "y" * (NAME_BYTES_MAX + 1)
    featurizer, rows = fit_tfidf([f"{longest} {longer} aa", longer], TfidfParameters())
    assert all_names(featurizer.names) == ["aa", longest]
    assert np.diff(rows.indptr).tolist() == [2, 0]
    assert featurizer.transform_texts([longer]).n_rows == 1
