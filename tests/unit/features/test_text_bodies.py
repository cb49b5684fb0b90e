"""Whatever the kernel takes for a body of texts is what the general way makes of it, to the bit."""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.errors import BadInput
from service.base.settings import Limits
from service.features import Featurizer, fit_featurizer, load_featurizer, parameters_of
from service.features.request_bodies import BodyForms, RequestBodies
from service.kernels.text.texts import TEXTS
from service.serving.parse import parse_body
from service.serving.rows import to_rows
from service.serving.schemas.predict import Options, PredictRequest
from tests.datasets_helpers import assert_same_bits, texts_alone
from tests.oip_requests import changed
from tests.real_texts import TEXTS as REAL_TEXTS

BYTES_MAX, CHARACTERS_MAX = 60, 90
FORMS = BodyForms(4, 4000, CHARACTERS_MAX, BYTES_MAX, Options().top_r, Options().beam_width)
LIMITS = Limits(text_bytes_max=BYTES_MAX)
KINDS: dict[str, dict[str, Any]] = {
    "words": {"kind": "tfidf"},
    "words as they are": {"kind": "tfidf", "lowercase": False, "unicode": False, "ngram_max": 2},
    "words set in lines": {"kind": "tfidf", "clean": False},
    "chars": {"kind": "chars", "char_min_df": 1},
    "words+chars": {"kind": "words+chars", "char_min_df": 1, "norm": "l1"},
    "hashing": {"kind": "hashing", "n_features": 1 << 12, "ngram_max": 3},
}
NO_TEXTS: list[dict[str, Any]] = [{"kind": "raw", "norm": "l2"}, {"kind": "tfidf", "stop_words": "en"}]


@cache
def featurizer_of(kind: str) -> Featurizer:
    return fitted(KINDS[kind])


def fitted(config: dict[str, Any]) -> Featurizer:
    if config["kind"] == "raw":
        return load_featurizer(config, {}, 40)
    texts = [
        *REAL_TEXTS[:200],
        "Äpfel Straße ΌΣΟΣ 北京大学 naïve café éléphant déjà vu 😀 emoji",
        "İstanbul e\u0301t debug",
    ]
    return fit_featurizer(texts_alone(texts), parameters_of(config))[0]


def is_the_same(body: bytes, kind: str, before: bytes = b"before") -> bool:
    """Compare the two; return whether the kernel took the body."""
    featurizer = featurizer_of(kind)
    bodies = RequestBodies(FORMS, featurizer)
    bodies.rows_read(bodies.read(b'{"instances":[{"text":"leaves nothing behind"}],"top_r":9}', 0))
    asked = bodies.read(before + body, len(before))
    if asked.n_rows == 0:
        return False
    try:
        query = parse_body(body, PredictRequest, LIMITS)
    except BadInput as error:
        raise AssertionError(f"{body!r} was taken") from error
    options = query.top_r, query.beam_width, query.exact
    assert (asked.top_r, asked.beam_width, bool(asked.is_exact)) == options
    if asked.n_values != TEXTS:
        return True
    expected = to_rows(query.instances, featurizer)
    found = bodies.rows_read(asked)
    if found is None:
        assert np.diff(expected.indptr).min() == 0
        return False
    rows, finally_asked, _ = found
    assert finally_asked.n_values == len(expected.indices)
    assert_same_bits(rows, expected)
    return True


words = st.sampled_from([word for text in REAL_TEXTS[:60] for word in text.split()])
odd = st.sampled_from(
    [
        *("Äpfel", "STRASSE", "straße", "ΌΣΟΣ", "北京大学", "éléphant", "😀", "İstanbul", "e\u0301t"),
        *("soft\u00adly", "ﬁne", "exam-\nple", "exam- \r\n ple", "-", "\n", "\t", '"', "\\"),
    ]
)
texts = st.lists(words | odd | st.text(max_size=4), max_size=8).map(" ".join)


@settings(max_examples=400)
@given(
    st.lists(texts, max_size=5),
    st.fixed_dictionaries({}, optional={"top_r": st.integers(1, 9), "exact": st.booleans()}),
    st.sampled_from(sorted(KINDS)),
    st.booleans(),
    st.booleans(),
)
def test_texts_become_the_rows_of_the_general_way(
    found: list[str], options: dict[str, Any], kind: str, is_ascii: bool, tight: bool
) -> None:
    request = {"instances": [{"text": text} for text in found], **options}
    body = json.dumps(request, ensure_ascii=is_ascii, separators=(",", ":") if tight else None)
    is_the_same(body.encode(errors="surrogatepass"), kind)


PLAIN = '{"instances":[{"text":"Caf\\u00e9 \\"editor\\" é😀"},{"text":"debug\\tit"}],"top_r":3}'.encode()


@settings(max_examples=400)
@given(st.data())
def test_changed_bodies_are_never_taken_for_others(data: st.DataObject) -> None:
    letters = b'0d8D\\"u{}[]:, \n\x00\x1f\x7f\x80\xbf\xc0\xc3\xe0\xed\xa0\xf0\xf4\x90\xff'
    body, _ = changed(data, PLAIN, None, letters)
    is_the_same(body, data.draw(st.sampled_from(["words", "chars"])))


def body_of(text: bytes, more: bytes = b"") -> bytes:
    return b'{"instances":[{"text":"debug ' + text + b'"}' + more + b"]}"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"caf\xc3\xa9 \xe2\x80\x99 \xe8\xaa\x9e \xf0\x9f\x98\x80",
        rb"\u00E9\u00e9 \ud83d\ude00 \"\\\/\b\f\n\r\t",
        b"\x7f",
        rb"\u0000",
    ],
)
def test_what_is_taken(text: bytes) -> None:
    for kind in KINDS:
        assert is_the_same(body_of(text), kind)


@pytest.mark.parametrize(
    "text",
    [
        *(b"\x00", b"\n", b"\x1f"),  # control characters
        *(b"\\", b"\\x", b"\\u12", b"\\u12g4", b"\\u 123", b"\\U0041"),  # escapes
        *(b"\\ud83d", b"\\ud83d\\u0041", b"\\ude00", b"\\ud83dx"),  # half characters
        *(b"\x80", b"\xc3", b"\xc3x", b"\xe2\x80", b"\xf0\x9f\x98", b"\xff"),  # cut UTF-8
        *(b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xf0\x80\x80\x80"),  # longer than need be
        *(b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80"),  # no characters
        "e\u0301".encode(),
        "İ".encode(),
        "Σ".encode(),
        "so\u00adft".encode(),
        "ﬁ".encode(),
        rb"exam-\nple",
        rb"exam- \r\nple",
        "\U0002f800".encode(),
    ],
)
def test_what_is_not(text: bytes) -> None:
    assert not is_the_same(body_of(text), "words")


OTHERS = [
    *(b'{"indices":[1],"values":[1]}', b'{"features":{}}', b'{"text":1}', b'{"text":"a","id":1}'),
    *(b"{}", b"", b'{"text":"a"'),
]


@pytest.mark.parametrize("other", OTHERS)
def test_instances_beside_a_text_that_are_none(other: bytes) -> None:
    assert not is_the_same(body_of(b"", b"," + other), "words")
    assert not is_the_same(body_of(b"")[:-1] + b"," + other, "words")


def test_a_text_without_features_is_told_by_the_general_way() -> None:
    assert not is_the_same(body_of(b"", b',{"text":""}'), "words")
    assert not is_the_same(b'{"instances":[{"text":"zzzzqqqq"}]}', "words")


@pytest.mark.parametrize(
    ("found", "is_taken"),
    [
        (["debug"] * 4, True),
        (["debug"] * 5, False),
        (["debug " + "x" * (BYTES_MAX - 6)], True),
        (["debug " + "x" * (BYTES_MAX - 5)], False),
        (["debug " + "é" * ((BYTES_MAX - 6) // 2)], True),
        (["debug " + "é" * ((BYTES_MAX - 6) // 2) + "x"], False),
        (["debug " + "x" * 39] * 2, True),
        (["debug " + "x" * 39, "debug " + "x" * 40], False),
    ],
)
def test_limits_and_one_more(found: list[str], is_taken: bool) -> None:
    body = json.dumps({"instances": [{"text": text} for text in found]}, ensure_ascii=False).encode()
    assert is_the_same(body, "words") == is_taken


def test_there_is_always_room_for_the_features_of_the_characters_taken() -> None:
    """Each kind says how many features a character makes at most: more texts are left unread."""
    forms = FORMS._replace(values_max=400, characters_max=10_000, text_bytes_max=10_000)
    for kind in KINDS:
        bodies = RequestBodies(forms, featurizer_of(kind))
        for word in ("a b c d ", "北京大学", "editor "):
            for n in range(1, 200):
                body = json.dumps({"instances": [{"text": word * n}]}).encode()
                asked = bodies.read(body, 0)
                if asked.n_rows:
                    rows = featurizer_of(kind).transform_texts([word * n])
                    assert len(rows.indices) <= 400
                    assert (bodies.rows_read(asked) is None) == (len(rows.indices) == 0)


@pytest.mark.parametrize("config", NO_TEXTS, ids=str)
def test_models_whose_texts_are_not_for_kernels_leave_them_unread(config: dict[str, Any]) -> None:
    assert RequestBodies(FORMS, fitted(config)).read(body_of(b""), 0).n_rows == 0


def test_the_work_on_a_text_ends_at_the_first_character_that_is_for_python() -> None:
    bodies = RequestBodies(FORMS, featurizer_of("words"))
    bodies.texts.utf8[:] = 255
    assert bodies.read(body_of("e\u0301".encode() + b"x" * 40), 0).n_rows == 0
    assert np.count_nonzero(bodies.texts.utf8 != 255) == len("debug e")
