"""Stems, lemmas and stop words: the same tokens in training and
serving, in every kind that has words.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from tests.conftest import together
from tests.helpers.datasets_helpers import assert_same_bits, assert_same_rows, texts_alone
from tests.helpers.real_texts import TEXTS, TEXTS_UNSEEN
from tests.oracles.text_tokens import word_runs

from xylem.base.errors import BadData, BadParameter
from xylem.base.rows import SparseRows
from xylem.engine.features.characters import TextReading
from xylem.engine.features.languages import LEMMAS, STEMMERS, STOP_LISTS
from xylem.engine.features.parameters import TfidfParameters, parameters_of
from xylem.engine.features.registry import fit_featurizer, load_featurizer
from xylem.engine.features.word_forms import WORD_BYTES_MAX, WordForms, forms_of_list
from xylem.engine.features.words import split_words
from xylem_store.errors import Corrupt
from xylem_store.names import all_names

ALL = TextReading(lowercase=True, unicode=True, clean=False)
KINDS: dict[str, Any] = {
    "tfidf": {},
    "words+chars": {"char_min_df": 1},
    "hashing": {"n_features": 1024},
}


def fitted(texts: list[str], kind: str = "tfidf", **given: Any) -> tuple[Any, SparseRows]:
    return fit_featurizer(texts_alone(texts), parameters_of({"kind": kind, **given}))


def words_of(forms: WordForms, text: str) -> list[tuple[str, bool]]:
    """The forms of a text's words, and whether each touches the one before."""
    words = forms.forms_of(split_words([text], ALL))
    raw, starts, ends = words.utf8.tobytes(), words.start.tolist(), words.end.tolist()
    assert raw.decode().encode() == raw
    touches = [i > 0 and start == ends[i - 1] for i, start in enumerate(starts)]
    return [(raw[a:b].decode(), near) for a, b, near in zip(starts, ends, touches, strict=True)]


def forms_with(form_of: Callable[[str], str], *stops: str) -> WordForms:
    return WordForms(forms_of_list(TfidfParameters(), list(stops)).stops, form_of)


ALPHABET = ["the", "cats", "running", "a", "ja", "北京", "大", "ไม่", "ดี", "café", "x1", "of"]
STOPS = ["the", "of", "大", "cats"]


@settings(max_examples=80, derandomize=True)
@given(st.lists(st.sampled_from([*ALPHABET, "", ","]), max_size=12), st.sampled_from([" ", ""]))
def test_forms_are_those_of_the_words_one_by_one(parts: list[str], between: str) -> None:
    text = between.join(parts)
    forms = forms_with(lambda word: word[:3], *STOPS)
    expected: list[tuple[str, bool]] = []
    before_stayed = False
    for word, touches in word_runs(text, True, True):
        stays = word not in STOPS
        if stays:
            expected.append((word[:3], touches and before_stayed))
        before_stayed = stays
    assert words_of(forms, text) == expected


def test_texts_keep_their_own_words() -> None:
    forms = forms_of_list(TfidfParameters(), ["the"])
    several = forms.forms_of(split_words(["the cat", "the", "", "dog the cow"], ALL))
    assert several.word_ptr.tolist() == [0, 1, 1, 1, 3]
    none = forms.forms_of(split_words([], ALL))
    assert (none.word_ptr.tolist(), len(none.utf8)) == ([0], 0)


def test_an_endless_word_and_one_without_a_form_are_their_forms() -> None:
    asked: list[str] = []
    forms = forms_with(lambda word: asked.append(word) or "short")
    longest = "x" * WORD_BYTES_MAX
    assert words_of(forms, f"{longest} {longest}y") == [("short", False), (f"{longest}y", False)]
    assert asked == [longest]
    assert words_of(forms_with(lambda word: ""), "some word") == [("some", False), ("word", False)]


@pytest.mark.parametrize("ngrams", [(1, 1), (1, 3), (2, 2)])
def test_stop_words_are_left_out_as_scikit_learn_does(
    ngrams: tuple[int, int], tmp_path: Path
) -> None:
    stops = ["the", "of", "and", "library", "for"]
    file = tmp_path / "stops.txt"
    file.write_text("\n".join(stops))
    vectorizer = TfidfVectorizer(stop_words=stops, ngram_range=ngrams, sublinear_tf=True)
    chosen = {"unicode": False, "clean": False, "ngram_min": ngrams[0], "ngram_max": ngrams[1]}
    chosen |= {"lead": 0}
    featurizer, rows = fitted(TEXTS[:300], stop_words=str(file), **chosen)
    assert_same_rows(rows, vectorizer.fit_transform(TEXTS[:300]), 2e-6)
    unseen = featurizer.transform_texts(TEXTS_UNSEEN)
    assert_same_rows(unseen, vectorizer.transform(TEXTS_UNSEEN), 2e-6)
    assert featurizer.config()["stop_words"] == "stops.txt"
    file.unlink()  # the version has the words
    assert_same_bits(again(featurizer).transform_texts(TEXTS_UNSEEN), unseen)


def again(featurizer: Any, **changes: Any) -> Any:
    """The featurizer that is loaded of what one keeps."""
    config = {**featurizer.config(), **changes}
    return load_featurizer(config, featurizer.arrays(), featurizer.n_features)


@pytest.fixture
def libraries() -> None:
    """Skip where the extra is not installed."""
    for name in ("snowballstemmer", "simplemma", "stop_words"):
        pytest.importorskip(name)


@pytest.mark.parametrize(
    "chosen", [{"stem": "en"}, {"lemmas": "en"}, {"stem": "en", "stop_words": "en"}]
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("libraries")
def test_a_loaded_version_reads_texts_as_training_did(kind: str, chosen: dict[str, str]) -> None:
    given, unseen = {**KINDS[kind], "ngram_max": 2}, TEXTS_UNSEEN[:50]
    featurizer, rows = fitted(TEXTS[:200], kind, **given, **chosen)
    loaded = again(featurizer)
    for texts, expected in ((TEXTS[:200], rows), (unseen, featurizer.transform_texts(unseen))):
        assert_same_bits(loaded.transform_texts(texts), expected)
        assert_same_bits(
            SparseRows.join([loaded.transform_texts([text]) for text in texts]), expected
        )
    plain, _ = fitted(TEXTS[:200], kind, **given)
    assert not np.array_equal(plain.transform_texts(TEXTS[:200]).indices, rows.indices)


@pytest.mark.usefixtures("libraries")
def test_inflected_words_are_one_feature() -> None:
    for chosen, texts, word in (
        ({"stem": "fi"}, ["talossa talosta", "talot"], "talo"),
        ({"lemmas": "de"}, ["Häuser", "des Hauses"], "haus"),
        ({"stem": "en"}, ["libraries", "a library"], "librari"),
    ):
        featurizer, rows = fitted(texts, stop_words="de", **chosen)
        assert (all_names(featurizer.names), rows.indices.tolist()) == ([word], [0, 0])


@pytest.mark.usefixtures("libraries")
def test_many_threads_read_the_same() -> None:
    featurizer, _ = fitted(TEXTS[:200], stem="de")
    expected = [featurizer.transform_texts([text]).indices for text in TEXTS_UNSEEN]
    fresh = again(featurizer)

    def read(seed: int) -> None:
        for i in np.random.default_rng(seed).permutation(len(TEXTS_UNSEEN)).tolist():
            found = fresh.transform_texts([TEXTS_UNSEEN[i]]).indices
            assert np.array_equal(found, expected[i]), TEXTS_UNSEEN[i]

    together(*(partial(read, seed) for seed in range(4)))


@pytest.mark.usefixtures("libraries")
def test_every_language_of_the_tables_is_in_its_library() -> None:
    import simplemma.strategies.dictionaries.dictionary_factory as simplemma
    import snowballstemmer
    import stop_words

    assert set(STEMMERS.values()) <= set(snowballstemmer.algorithms())
    assert set(LEMMAS) == {code for code in simplemma.SUPPORTED_LANGUAGES if len(code) == 2}
    assert STOP_LISTS == stop_words.LANGUAGE_MAPPING


@pytest.mark.parametrize(
    ("option", "module"),
    [("stem", "snowballstemmer"), ("lemmas", "simplemma"), ("stop_words", "stop_words")],
)
def test_without_the_library_it_is_named(
    monkeypatch: pytest.MonkeyPatch, option: str, module: str
) -> None:
    featurizer, _ = fitted(["some text"])
    monkeypatch.setitem(sys.modules, module, None)
    expected = rf"features\.{option} needs {module.replace('_', '-')}"
    with pytest.raises(BadParameter, match=f"{expected}: pip install"):
        fitted(["some text"], **{option: "en"})
    if option != "stop_words":  # which a version has
        with pytest.raises(BadParameter, match=expected):
            again(featurizer, **{option: "en"})


def test_a_version_without_its_stop_words_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="features/stops"):
        again(fitted(["some text"])[0], stop_words="en")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "expected stop words, one a line, found none"),
        (b"caf\xe9", "expected UTF-8, found another byte at 3"),
        (b"x" * (1 << 20) + b"y", "expected at most 1048576 bytes of stop words, found more"),
        (None, "expected a file of stop words, found: No such file"),
    ],
)
def test_a_file_that_is_no_list_is_refused(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "stops.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadData, match=words):
        fitted(["some text"], stop_words=str(file))
