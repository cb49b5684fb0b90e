"""Words and their n-grams are those of the slow oracle, in every script."""

import itertools
import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.datasets_helpers import assert_same_bits
from tests.oracles.text_tokens import word_ngrams, word_runs

from xylem.base.errors import BadData
from xylem.datasets.reader import read_texts
from xylem.engine.features import characters
from xylem.engine.features.characters import TextReading, classes, cleaned, encoded, ready_codes
from xylem.engine.features.context import ContextFeaturizer, context_of, tokens_of
from xylem.engine.features.parameters import ContextParameters
from xylem.engine.features.registry import load_featurizer
from xylem.engine.features.words import NgramSpans, ngram_spans, split_words
from xylem.engine.kernels.text.texts import LINE_END
from xylem_store.errors import Corrupt
from xylem_store.names import all_names

ODD = [
    *("", "a", "ab", "A_b 9", "a b c", "  ab", "ab  ", "x" * 300),
    *("a-bc--d_e", "\x00ab\x7f", "[ab]`cd`{ef}@gh"),
    "\ud800lone \udfffsurrogate\ud83d",
    "e\u0301te\u0301 \u0301 a\u0300\u0300 q\u0303",
    "日本語 テキスト 한국어 iPhone手机",
    "ภาษาไทย ລາວ ភាសាខ្មែរ မြန်မာ",
    "मैं हिन्दी में",
    "東" * 50,
]
texts = st.text(
    alphabet=string.ascii_letters + string.digits + "_ -\n\x00\x7f[]`{}@/:", max_size=40
)
scripts = st.text(alphabet="ab _é\u0301日本ก็ี่ម្កहि\u3000ー々9", max_size=12)


def found(all_texts: list[str], lowercase: bool, unicode: bool = False) -> list[list[str]]:
    words = split_words(all_texts, TextReading(lowercase, unicode, False))
    whole = words.utf8.tobytes()
    spelt = [
        whole[a:b].decode() for a, b in zip(words.start.tolist(), words.end.tolist(), strict=True)
    ]
    return [spelt[first:last] for first, last in itertools.pairwise(words.word_ptr.tolist())]


def expected(all_texts: list[str], lowercase: bool) -> list[list[str]]:
    return [re.findall(r"(?u)\b\w\w+\b", text.lower() if lowercase else text) for text in all_texts]


def ngrams(text: str, unicode: bool, ngram_min: int, ngram_max: int) -> list[str]:
    words = split_words([text], TextReading(True, unicode, False))
    spans, whole = NgramSpans(*ngram_spans(*words[1:], ngram_min, ngram_max)), words.utf8.tobytes()
    assert spans.row_ptr.tolist() == [0, len(spans.start)]
    return [
        whole[a:b].decode() for a, b in zip(spans.start.tolist(), spans.end.tolist(), strict=True)
    ]


@pytest.mark.parametrize("lowercase", [True, False])
def test_odd_texts(lowercase: bool) -> None:
    assert found(ODD, lowercase) == expected(ODD, lowercase)
    for text in ODD:
        assert found([text], lowercase) == expected([text], lowercase)
        assert found([text], lowercase, True) == [
            [word for word, _ in word_runs(text, lowercase, True)]
        ]
    assert found([], lowercase) == []


@given(st.lists(texts, max_size=5), st.booleans())
def test_any_texts(all_texts: list[str], lowercase: bool) -> None:
    assert found(all_texts, lowercase) == expected(all_texts, lowercase)
    assert found(all_texts, lowercase, True) == expected(all_texts, lowercase)


@given(st.one_of(scripts, st.text(st.characters(codec=None), max_size=12)), st.booleans())
def test_ngrams_are_those_of_the_oracle(text: str, unicode: bool) -> None:
    for least, most in ((1, 1), (1, 2), (2, 2), (1, 3), (3, 3)):
        assert ngrams(text, unicode, least, most) == word_ngrams(text, True, unicode, least, most)


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("北京", ["北", "北京", "京"]),
        ("iphone手机 x", ["iphone", "手", "手机", "机"]),
        ("ไม่ดี", ["ไ", "ไม่", "ม่", "ม่ดี", "ดี"]),
        ("मैं", ["मैं"]),
        ("cafe\u0301", ["café"]),
        ("北 京", ["北", "京"]),
    ],
)
def test_scripts_without_blanks_are_cut_and_marks_stay(text: str, features: list[str]) -> None:
    assert ngrams(text, True, 1, 1) == features


def test_one_long_run_without_blanks() -> None:
    assert found(["a" * 1_000_000], True, True) == [["a" * 1_000_000]]
    assert len(ngrams("東" * 300_000, True, 1, 1)) == 599_999


@pytest.mark.parametrize("unicode", [True, False])
def test_every_code_point_is_what_python_says(unicode: bool) -> None:
    found = classes(unicode).tolist()
    assert len(found) == sys.maxunicode + 1
    is_word, is_blank = re.compile(r"\w").match, re.compile(r"\s").match
    for code, kind in enumerate(found):
        category = unicodedata.category(chr(code))
        assert bool(kind & characters.WORD) == bool(is_word(chr(code))), hex(code)
        assert bool(kind & characters.SPACE) == (bool(is_blank(chr(code))) or category == "Cc"), (
            hex(code)
        )
        assert bool(kind & characters.MARK) == (unicode and category[0] == "M"), hex(code)
        if kind & characters.UNSPACED:
            assert unicode and kind & characters.WORD, hex(code)


def test_scripts_without_blanks_are_known() -> None:
    for character in "語ภあアㄅ가":
        assert bool(classes(True)[ord(character)] & characters.UNSPACED) == (character != "가")


ALL = TextReading(True, True, True)
READINGS = [
    ALL,
    ALL._replace(lowercase=False),
    ALL._replace(unicode=False),
    ALL._replace(clean=False),
]
READY = {reading: ready_codes(reading) for reading in READINGS}


@pytest.mark.parametrize("reading", READY)
def test_a_character_becomes_what_it_becomes_in_any_text(reading: TextReading) -> None:
    found = READY[reading].tolist()
    for code, ready in enumerate(found):
        text, _ = encoded([chr(code)], reading)
        became = code if ready == LINE_END else ready
        assert became == -1 or chr(became).encode() == text.tobytes(), hex(code)


@settings(max_examples=300)
@given(st.data(), st.sampled_from(sorted(READY)))
def test_beside_others_too(data: st.DataObject, chosen: TextReading) -> None:
    """Composition and lower case look at neighbours: no character that is not -1
    makes them do so.
    """
    ready = READY[chosen]
    character = st.characters(max_codepoint=len(ready) - 1).filter(lambda c: ready[ord(c)] >= 0)
    text = data.draw(st.text(character, max_size=12))
    utf8, _ = encoded([text], chosen)
    assert "".join(chr(ready[ord(c)]) for c in text).encode() == utf8.tobytes()


def test_what_is_left_to_python_and_what_is_not() -> None:
    ready = READY[ALL]
    assert all(ready[ord(c)] >= 0 for c in "aZ09 \t\x00ÄéßЖΩ’…€™語가ع😀")
    assert all(ready[ord(c)] < 0 for c in "İΣ\u0301\u1161\u212b\ud800\u00ad\u2010ﬁ\r\n")
    assert all(READY[True, True, False][ord(c)] >= 0 for c in "\u00ad\u2010ﬁ\r\n")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("exam-\nple", "example"),
        ("exam- \r\n\t ple", "example"),
        ("exam\u2010\n\nple", "example"),
        ("exam\u00ad\nple", "example"),
        ("e\u0301-\nx", "e\u0301x"),
        ("of-\nﬁce", "office"),
        ("ex\u00adam\u00adple", "example"),
        ("ﬀ ﬁ ﬂ ﬃ ﬄ ﬅ ﬆ", "ff fi fl ffi ffl st st"),
        ("a-\nb-\nc", "abc"),
        *((same, same) for same in ("exam- ple", "Nord-\nOstsee", "12-\nmal", "a -\nb", "a--\nb")),
        *(
            (same, same)
            for same in ("-\na", "a-\n", "UTF-\n8", "a-\nDž", "x²", "Ⅳ", "well-known\nwords")
        ),
    ],
)
def test_what_setting_in_lines_did_is_undone(text: str, clean: str) -> None:
    assert cleaned(text) == clean


def test_blanks_behind_a_hyphen_take_linear_time() -> None:
    for blanks in (" " * 10**6, "\n" * 10**6, " \n" * 10**6):
        assert cleaned(f"a-{blanks}.") == f"a-{blanks}."
        assert cleaned(f"a-\n{blanks}b") == "ab"


TEXTS = ["The cat sat, the cat SAT.", "a dog's life", "", "the the"]


def fitted(window: int, min_count: int = 2, texts: Sequence[str] = TEXTS) -> ContextFeaturizer:
    parameters = ContextParameters(window=window, min_count=min_count)
    return context_of(Counter(word for text in texts for word in tokens_of(text)), parameters)


def test_words_are_lower_case_and_ordered_by_frequency() -> None:
    assert tokens_of("It's 3, or\u00a0ÉTÉ!") == ["it's", "3", ",", "or", "été", "!"]
    assert all_names(fitted(3).words) == ["<s>", "</s>", "<unk>", "the", "cat", "sat"]


@pytest.mark.parametrize("window", [1, 2, 5])
def test_windows_are_what_stands_before_each_word(window: int) -> None:
    featurizer = fitted(window)
    names = all_names(featurizer.words)
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
        features = rows.cut(i, i + 1).indices.tolist()
        assert [names[f % len(names)] for f in features] == before
        assert [f // len(names) for f in features] == list(range(window))
        assert names[labels.indices[i]] == word
    assert (rows.values == 1).all()
    assert all(a < b for a, b in itertools.pairwise(rows.indptr.tolist()))


def test_a_text_to_predict_is_its_last_window() -> None:
    featurizer = fitted(3)
    rows, _ = featurizer.windows_of(TEXTS)
    ends = np.cumsum([len(tokens_of(text)) + 1 for text in TEXTS]) - 1
    np.testing.assert_array_equal(
        featurizer.transform_texts(TEXTS).indices, rows.take(ends).indices
    )
    assert featurizer.transform_texts([]).n_rows == 0


def test_it_is_stored_and_loaded_and_refused_when_damaged() -> None:
    featurizer = fitted(2)
    config, arrays = featurizer.config(), featurizer.arrays()
    again = load_featurizer(config, arrays, featurizer.n_features)
    assert_same_bits(again.transform_texts(TEXTS), featurizer.transform_texts(TEXTS))
    for damaged, n_features in ((arrays, featurizer.n_features + 1), ({}, featurizer.n_features)):
        with pytest.raises(Corrupt):
            load_featurizer(config, damaged, n_features)


def test_texts_without_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"expected texts with words, found none"):
        fitted(3, texts=["", "  "])
    assert fitted(3, min_count=5, texts=["x"]).words.n_names == 3
    data = tmp_path / "texts.jsonl"
    for content in ("", "{}\n", '{"text": 1}\n', "[]\n", "{\n"):
        data.write_text(content)
        with pytest.raises(BadData, match=r"expected.*found"):
            read_texts(data)
    data.write_text('{"text": "a", "labels": ["x"]}\n\n{"text": ""}\n')
    assert read_texts(data) == ["a", ""]
