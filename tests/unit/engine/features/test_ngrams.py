"""N-grams of words and of characters against scikit-learn's TfidfVectorizer, and a slow oracle."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from tests.helpers.datasets_helpers import assert_same_bits, assert_same_rows, check_sparse
from tests.helpers.real_texts import TEXTS, TEXTS_UNSEEN
from tests.oracles.text_tokens import char_ngrams

from xylem.base.errors import BadData, BadParameter
from xylem.base.rows import SparseRows
from xylem.engine.features import char_ngrams as lookup
from xylem.engine.features.characters import BLOCK_TEXTS
from xylem.engine.features.chars import CharsFeaturizer, fit_chars
from xylem.engine.features.parameters import CharsParameters, TfidfParameters, WordsCharsParameters
from xylem.engine.features.registry import feature_names, load_featurizer
from xylem.engine.features.tfidf import fit_tfidf
from xylem_store.compiled.decorators import kernel
from xylem_store.hashes import new_seed
from xylem_store.names import NAME_BYTES_MAX, all_names, build_names, name_of

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


def fitted_chars(
    texts: Sequence[str], parameters: CharsParameters | WordsCharsParameters
) -> tuple[CharsFeaturizer, SparseRows]:
    featurizer = fit_chars(texts, parameters)
    return featurizer, featurizer.transform_texts(texts)


def check(p: TfidfParameters | CharsParameters, texts: Sequence[str], unseen: Sequence[str]) -> Any:
    """Return the featurizer of these texts; its features are
    those of scikit-learn, and so are rows.
    """
    if isinstance(p, TfidfParameters):
        bounds = {"min_df": p.min_df, "max_df": p.max_df, "max_features": p.max_features}
        own = {"ngram_range": (p.ngram_min, p.ngram_max), **bounds}
    else:
        own = {
            "ngram_range": (p.char_min, p.char_max),
            "min_df": p.char_min_df,
            "analyzer": "char_wb",
        }
    scales = {"sublinear_tf": p.sublinear_tf, "use_idf": p.use_idf, "smooth_idf": p.smooth_idf}
    norm = None if p.norm == "none" else p.norm
    vectorizer = TfidfVectorizer(lowercase=p.lowercase, norm=norm, **scales, **own)
    expected = vectorizer.fit_transform(texts)
    featurizer, rows = (fit_tfidf if isinstance(p, TfidfParameters) else fitted_chars)(texts, p)
    names = featurizer.names if isinstance(p, TfidfParameters) else featurizer.chars.names
    assert_same_rows(rows, expected)
    assert all_names(names) == vectorizer.get_feature_names_out().tolist()
    assert_same_rows(featurizer.transform_texts(unseen), vectorizer.transform(unseen))
    assert_same_bits(featurizer.transform_texts(texts), rows)
    return featurizer


AS_SCIKIT_LEARN: dict[str, Any] = {"unicode": False, "clean": False, "lead": 0}


@pytest.mark.parametrize(
    "parameters",
    [
        TfidfParameters(**AS_SCIKIT_LEARN),
        TfidfParameters(**AS_SCIKIT_LEARN, sublinear_tf=False),
        TfidfParameters(**AS_SCIKIT_LEARN, ngram_max=3, min_df=2),
        TfidfParameters(**AS_SCIKIT_LEARN, ngram_min=2, ngram_max=2, max_df=0.1),
        TfidfParameters(**AS_SCIKIT_LEARN, norm="l1", smooth_idf=False),
        TfidfParameters(**AS_SCIKIT_LEARN, norm="none", use_idf=False),
        TfidfParameters(**AS_SCIKIT_LEARN, lowercase=False, min_df=0.01, max_df=0.5),
        TfidfParameters(**AS_SCIKIT_LEARN, min_df=3, max_df=100),
        TfidfParameters(**AS_SCIKIT_LEARN, min_df=0.0, max_df=1.0),
        CharsParameters(**AS_SCIKIT_LEARN),
        CharsParameters(**AS_SCIKIT_LEARN, char_min=1, char_max=8, char_min_df=3),
        CharsParameters(**AS_SCIKIT_LEARN, char_min=4, char_max=4, lowercase=False),
        CharsParameters(**AS_SCIKIT_LEARN, norm="l1", smooth_idf=False, sublinear_tf=False),
        CharsParameters(**AS_SCIKIT_LEARN, norm="none", use_idf=False, char_min_df=0.05),
    ],
    ids=str,
)
def test_real_texts(parameters: TfidfParameters | CharsParameters) -> None:
    is_of_words = isinstance(parameters, TfidfParameters)
    check(parameters, TEXTS, TEXTS_UNSEEN + NASTY if is_of_words else TEXTS_UNSEEN)


@pytest.mark.parametrize(
    "chosen", [{}, {"ngram_max": 2, "lowercase": False}, {"sublinear_tf": False}]
)
def test_words_of_nasty_texts(chosen: dict[str, Any]) -> None:
    check(TfidfParameters(**AS_SCIKIT_LEARN, **chosen), NASTY, TEXTS_UNSEEN)


def test_reading_unicode_changes_nothing_in_english() -> None:
    check(
        TfidfParameters(ngram_max=2, lead=0),
        [text for text in TEXTS if text.isascii()],
        ["an unseen text"],
    )


@pytest.mark.parametrize(
    ("unicode", "names"),
    [
        (True, ["ab", "café", "京", "京大", "北", "北京", "大", "大学", "学"]),
        (False, ["ab", "cafe", "北京大学"]),
    ],
)
def test_words_with_and_without_unicode(unicode: bool, names: list[str]) -> None:
    featurizer, _ = fit_tfidf(["北京大学 cafe\u0301 ab"], TfidfParameters(unicode=unicode))
    config = featurizer.config()
    assert config["unicode"] is unicode
    loaded = load_featurizer(config, featurizer.arrays(), featurizer.n_features)
    assert loaded.parameters == featurizer.parameters
    assert all_names(featurizer.names) == names


def test_more_texts_than_a_block() -> None:
    texts = [f"word{i % 977} word{i % 31} common" for i in range(2 * BLOCK_TEXTS + 5)]
    check(TfidfParameters(ngram_max=2, lead=0), texts, texts[: BLOCK_TEXTS + 1])


def test_the_most_frequent_ngrams_stay() -> None:
    texts = ["aa aa aa bb bb cc", "bb cc dd", "ee dd aa"]
    featurizer = check(TfidfParameters(max_features=2, lead=0), texts, texts)
    assert all_names(featurizer.names) == ["aa", "bb"]
    # cc and dd are equally frequent: the smaller one stays
    featurizer, _ = fit_tfidf(texts, TfidfParameters(max_features=3))
    assert all_names(featurizer.names) == ["aa", "bb", "cc"]
    assert check(TfidfParameters(max_features=99, lead=0), texts, texts).n_features == 5
    of_chars = CharsParameters(char_min=1, char_max=1, char_max_features=2, char_min_df=1)
    assert all_names(fit_chars(["bb bb b a", "cc a"], of_chars).chars.names) == [" ", "b"]


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
def test_words_of_any_text(
    texts: list[str], unseen: str, lowercase: bool, ngrams: tuple[int, int], norm: Any
) -> None:
    least, most = ngrams
    chosen = {"lowercase": lowercase, "ngram_min": least, "ngram_max": most, "norm": norm}
    parameters = TfidfParameters(**AS_SCIKIT_LEARN, **chosen)
    try:
        check(parameters, texts, [unseen, "", *texts])
    except ValueError as error:
        assert "empty vocabulary" in str(error)
        with pytest.raises(
            BadData, match="expected texts with a word of two characters, found none"
        ):
            fit_tfidf(texts, parameters)


def test_words_too_long_for_a_name_are_no_features() -> None:
    longest, longer = "x" * NAME_BYTES_MAX, "y" * (NAME_BYTES_MAX + 1)
    featurizer, rows = fit_tfidf([f"{longest} {longer} aa", longer], TfidfParameters())
    assert all_names(featurizer.names) == ["aa", longest]
    assert np.diff(rows.indptr).tolist() == [2, 0]
    assert featurizer.transform_texts([longer]).n_rows == 1


RAW: dict[str, Any] = {
    "lead": 0,
    "sublinear_tf": False,
    "use_idf": False,
    "norm": "none",
    "char_min_df": 1,
}


def counted(featurizer: CharsFeaturizer, text: str) -> dict[str, float]:
    """The n-grams of a text that the featurizer knows, and their values."""
    rows, names = featurizer.transform_texts([text]), all_names(featurizer.chars.names)
    check_sparse(rows)
    return {names[i]: v for i, v in zip(rows.indices.tolist(), rows.values.tolist(), strict=True)}


@settings(max_examples=150)
@given(
    st.text("ab é\u0301日 \t\n\x00\x85\u3000", max_size=15)
    | st.text(st.characters(codec=None), max_size=15),
    st.sampled_from([(1, 1), (3, 5), (2, 8), (5, 5)]),
    st.booleans(),
)
def test_characters_of_any_text(text: str, lengths: tuple[int, int], unicode: bool) -> None:
    least, most = lengths
    parameters = CharsParameters(char_min=least, char_max=most, unicode=unicode, clean=False, **RAW)
    featurizer, rows = fitted_chars([text, "zzz"], parameters)
    expected = Counter(char_ngrams(text, True, unicode, least, most))
    assert counted(featurizer, text) == dict(expected)
    assert rows.values[: rows.indptr[1]].sum() == expected.total()


@pytest.mark.parametrize("text", NASTY)
def test_characters_of_nasty_texts(text: str) -> None:
    featurizer, _ = fitted_chars([text, "zzz"], CharsParameters(clean=False, **RAW))
    assert counted(featurizer, text) == dict(Counter(char_ngrams(text, True, True, 3, 5)))


def test_a_megabyte_without_a_blank() -> None:
    featurizer, rows = fitted_chars(["ab" * 500_000, "abab"], CharsParameters(**RAW))
    assert rows.values.sum() == 3 * 1_000_002 - 9 + 9
    assert counted(featurizer, "x" * 1_000_000) == {}
    assert counted(featurizer, "ab" * 500_000)["aba"] == 499_999


def test_words_beside_characters_are_both_each_scaled_alone() -> None:
    parameters = WordsCharsParameters(ngram_max=2)
    featurizer, rows = fitted_chars(TEXTS, parameters)
    words, word_rows = fit_tfidf(TEXTS, TfidfParameters(ngram_max=2))
    _, char_rows = fitted_chars(TEXTS, CharsParameters())
    check_sparse(rows)
    assert rows.n_features == word_rows.n_features + char_rows.n_features
    for i in range(len(TEXTS)):
        of_words, of_chars, found = (some.cut(i, i + 1) for some in (word_rows, char_rows, rows))
        indices = np.concatenate([of_words.indices, of_chars.indices + words.n_features])
        values = np.concatenate([0.5 * of_words.values, np.sqrt(0.75) * of_chars.values])
        assert np.array_equal(found.indices, indices)
        np.testing.assert_allclose(
            found.values, values / max(np.linalg.norm(values), 1e-9), rtol=1e-6
        )
    names = feature_names(featurizer.config(), featurizer.arrays())
    assert [names.is_chars(i) for i in (words.n_features - 1, words.n_features)] == [False, True]
    assert names.name(0) == name_of(words.names, 0)
    assert names.name(words.n_features) == name_of(featurizer.chars.names, 0)


@pytest.mark.parametrize(("norm", "share"), [("l1", 0.25), ("l2", 0.25), ("l2", 1.0), ("l1", 0.0)])
def test_the_share_of_characters(norm: Any, share: float) -> None:
    featurizer, rows = fitted_chars(TEXTS, WordsCharsParameters(norm=norm, char_share=share))
    _, indices, values, *_ = rows.cut(3, 4)
    weights = values**2 if norm == "l2" else values
    is_chars = indices >= featurizer.words.names.n_names
    found = [weights[~is_chars].sum(), weights[is_chars].sum()]
    assert found == pytest.approx([1 - share, share], abs=1e-6)
    featurizer, rows = fitted_chars(
        TEXTS, WordsCharsParameters(norm="none", use_idf=False, sublinear_tf=False)
    )
    assert np.array_equal(rows.values, np.round(rows.values)) and rows.values.min() == 1


@pytest.mark.parametrize(
    ("texts", "parameters", "fault"),
    [
        (
            ["aa", "aa"],
            {"min_df": 3},
            "expected bounds with an n-gram in 3 to 2 of the 2 texts, found none",
        ),
        (["", " \x00\n"], {}, "expected texts with a character that is no blank, found none"),
        ([], {}, "expected texts with a character that is no blank, found none"),
        (
            ["abc", "xyz"],
            {"char_min": 3, "char_max": 3},
            r"features\.char_min_df: expected a bound",
        ),
        (
            ["abc"],
            {"char_min": 4, "char_max": 3},
            "char_max: expected at least char_min, 4, found 3",
        ),
    ],
)
def test_what_leaves_nothing_is_refused(
    texts: list[str], parameters: dict[str, Any], fault: str
) -> None:
    with pytest.raises((BadData, BadParameter), match=fault):
        if "min_df" in parameters:
            fit_tfidf(texts, TfidfParameters(**parameters))
        else:
            fit_chars(texts, CharsParameters(**parameters))


NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)


@kernel
def found_id(
    offsets: NDArray[np.int64],
    utf8: NDArray[np.uint8],
    table: NDArray[np.uint64],
    seed: int,
    query: NDArray[np.uint8],
    start: int,
    end: int,
) -> int:
    """Return the id of the name query[start:end], or -1."""
    key = np.uint64(0)
    if end - start > lookup.SHORT_BYTES:
        key = lookup.long_key(query, start, end, seed)
    else:
        for i in range(start, end):
            key = lookup.key_and_byte(key, i - start, query[i])
    slot = lookup.key_slot(table, lookup.first_slot(key, len(table), seed), key)
    if lookup.is_long(key):
        slot = lookup.long_slot(table, slot, offsets, utf8, query, start)
    return int(table[slot, 1]) if table[slot, 0] != np.uint64(0) else -1


def found_in(names: list[str], wanted: list[str]) -> list[int]:
    table = build_names(names)
    seed = new_seed()
    short, ids = lookup.short_names(table, seed), []
    for name in wanted:
        # what stands around a name in a text must not count
        query = np.frombuffer(f"x{name}y".encode(), np.uint8)
        ids.append(found_id(table.offsets, table.utf8, short, seed, query, 1, len(query) - 1))
    return ids


@settings(max_examples=60)
@given(st.lists(NAMES, unique=True, max_size=40), st.lists(NAMES, max_size=20))
def test_any_names_as_a_dict_finds_them(names: list[str], others: list[str]) -> None:
    ids = {name: i for i, name in enumerate(names)}
    wanted = (
        names
        + others
        + [name[:-1] for name in names if len(name) > 1]
        + [name + "a" for name in names]
    )
    assert found_in(names, wanted) == [ids.get(name, -1) for name in wanted]


def test_names_about_the_length_of_a_key() -> None:
    names = [letter * n for letter in ("a", "ä", "日", "😀") for n in range(1, 12)]
    assert found_in(names, names) == list(range(len(names)))
    assert found_in(names, ["b" * n for n in range(1, 12)]) == [-1] * 11
    assert found_in([], ["a", "aaaaaaaaaa"]) == [-1, -1]


def test_a_hundred_thousand_names_are_all_found_and_no_others() -> None:
    dice = random.Random(5)
    letters = "abcdeäöд日"
    names = sorted({"".join(dice.choices(letters, k=dice.randint(1, 6))) for _ in range(150_000)})
    dice.shuffle(names)
    known, unknown = names[: len(names) // 2], names[len(names) // 2 :][:2_000]
    assert found_in(known, known[:5_000]) == list(range(5_000))
    assert found_in(known, unknown) == [-1] * len(unknown)


def test_long_names_of_one_key_are_told_apart_by_their_bytes() -> None:
    names = build_names(["abcdefghij", "abcdefghik", "abcdefghil"])
    key = np.uint64(0xFF << 56 | 10 << 48)  # as if their hashes were the same
    table = np.zeros((7, 2), np.uint64)
    table[5], table[6], table[0] = (key, 0), (key, 1), (key, 2)
    for name, slot in (("abcdefghij", 5), ("abcdefghik", 6), ("abcdefghil", 0), ("abcdefghim", 1)):
        query = np.frombuffer(name.encode(), np.uint8)
        assert lookup.long_slot(table, np.int64(5), names.offsets, names.utf8, query, 0) == slot
