"""Texts that the kernels take of bodies and lines have the rows of the general way, to the bit."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.bodies import (
    BYTES_MAX,
    FORMS,
    KINDS,
    NO_TEXTS,
    featurizer_of,
    fitted,
    is_the_same,
    parsed_line,
    texts,
)
from tests.helpers.datasets_helpers import assert_same_bits
from tests.helpers.oip_requests import changed

from xylem.serving.dialects.predict.kernels.request_bodies import RequestBodies
from xylem.serving.kernels.text_lines import text_rows_of_lines

PLAIN = (
    '{"instances":[{"text":"Caf\\u00e9 \\"editor\\" é😀"},{"text":"debug\\tit"}],"top_r":3}'
).encode()
PLAIN_LINE = '{"text":"Caf\\u00e9 \\"editor\\" é😀"}'.encode()


def are_the_same(lines: list[bytes], kind: str = "words") -> bool:
    """Compare lines of texts; return whether the kernel took them."""
    found = text_rows_of_lines(lines, featurizer_of(kind), BYTES_MAX)
    if found is None:
        return False
    read = [parsed_line(line, "text").text for line in lines]
    assert_same_bits(found, featurizer_of(kind).transform_texts(read))
    return True


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
    style = {"ensure_ascii": is_ascii, "separators": (",", ":") if tight else None}
    instances = [{"text": text} for text in found]
    is_the_same(json.dumps({"instances": instances, **options}, **style).encode(), kind)
    are_the_same([json.dumps(instance, **style).encode() for instance in instances], kind)


def body_of(text: bytes, more: bytes = b"") -> bytes:
    return b'{"instances":[{"text":"debug ' + text + b'"}' + more + b"]}"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_taken(kind: str) -> None:
    for text in (
        b"",
        b"caf\xc3\xa9 \xe2\x80\x99 \xe8\xaa\x9e \xf0\x9f\x98\x80",
        rb"\u00E9\u00e9 \ud83d\ude00 \"\\\/\b\f\n\r\t",
        b"\x7f",
        rb"\u0000",
    ):
        assert is_the_same(body_of(text), kind), text


@pytest.mark.parametrize(
    "text",
    [
        *(b"\x00", b"\n", b"\x1f"),  # control characters
        *(b"\\", b"\\x", b"\\u12", b"\\u12g4", b"\\u 123", b"\\U0041"),  # escapes
        *(b"\\ud83d", b"\\ud83d\\u0041", b"\\ude00", b"\\ud83dx"),  # half characters
        *(b"\x80", b"\xc3", b"\xc3x", b"\xe2\x80", b"\xf0\x9f\x98", b"\xff"),  # cut UTF-8
        *(b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xf0\x80\x80\x80"),  # longer than need be
        *(b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80"),  # no characters
        *(
            odd.encode() for odd in ("e\u0301", "İ", "Σ", "so\u00adft", "ﬁ", "\U0002f800")
        ),  # for Python
        *(rb"exam-\nple", rb"exam- \r\nple"),
    ],
)
def test_what_is_not(text: bytes) -> None:
    assert not is_the_same(body_of(text), "words")


@pytest.mark.parametrize(
    "other",
    [
        *(
            b'{"indices":[1],"values":[1]}',
            b'{"features":{}}',
            b'{"text":1}',
            b'{"text":"a","id":1}',
        ),
        *(b"{}", b"", b'{"text":"a"'),
    ],
)
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
    body = json.dumps(
        {"instances": [{"text": text} for text in found]}, ensure_ascii=False
    ).encode()
    assert is_the_same(body, "words") == is_taken


def test_there_is_room_for_the_features_of_all_characters() -> None:
    """Each kind says how many features a character makes at most: more texts are left unread."""
    forms = FORMS._replace(values_max=400, characters_max=10_000, text_bytes_max=10_000)
    for kind in KINDS:
        bodies = RequestBodies(forms, featurizer_of(kind))
        for word in ("a b c d ", "北京大学", "editor "):
            for n in range(1, 200):
                asked = bodies.read(json.dumps({"instances": [{"text": word * n}]}).encode(), 0)
                if asked.n_rows:
                    rows = featurizer_of(kind).transform_texts([word * n])
                    assert len(rows.indices) <= 400
                    assert (bodies.rows_read(asked) is None) == (len(rows.indices) == 0)


@pytest.mark.parametrize("config", NO_TEXTS, ids=str)
def test_models_whose_texts_need_python_leave_them_unread(config: dict[str, Any]) -> None:
    featurizer = fitted(config)
    assert text_rows_of_lines([PLAIN_LINE], featurizer, BYTES_MAX) is None
    assert RequestBodies(FORMS, featurizer).read(body_of(b""), 0).n_rows == 0


def test_the_work_on_a_text_ends_at_a_character_for_python() -> None:
    bodies = RequestBodies(FORMS, featurizer_of("words"))
    bodies.texts.utf8[:] = 255
    assert bodies.read(body_of("e\u0301".encode() + b"x" * 40), 0).n_rows == 0
    assert np.count_nonzero(bodies.texts.utf8 != 255) == len("debug e")


def test_lines_that_are_taken() -> None:
    assert are_the_same(
        [PLAIN_LINE, b' { "text" : "" } \r', b'{"text":"' + b"x" * BYTES_MAX + b'"}']
    )
    many = [json.dumps({"text": f"editor {i} Größe"}).encode() for i in range(3000)]
    assert are_the_same(many)
    assert np.diff(text_rows_of_lines(many, featurizer_of("words"), BYTES_MAX).indptr).min() > 0


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{}", b'{"text":"a"', b'{"text":"a"}}', b'{"text":"a"},', b'"a"', b'{"text":1}'),
        *(b'{"text":"a","id":1}', b'{"text":"a","labels":[]}', b'{"indices":[1],"values":[1]}'),
        b'{"text":"' + b"x" * (BYTES_MAX + 1) + b'"}',
        '{"text":"e\u0301"}'.encode(),
    ],
)
def test_lines_that_are_not_taken(line: bytes) -> None:
    for lines in ([line], [PLAIN_LINE, line], [line, PLAIN_LINE]):
        assert not are_the_same(lines)


def test_lines_of_one_text_and_too_many_bytes_are_left_unread() -> None:
    assert not are_the_same([b'{"text":"a', b'b"}'])
    assert not are_the_same([b'{"text":"a"},{"text":"b"}', PLAIN_LINE])
    line = b'{"text":"' + b"x" * (1 << 23) + b'"}'
    assert text_rows_of_lines([line], featurizer_of("words"), 1 << 24) is not None
    assert text_rows_of_lines([line] * 2, featurizer_of("words"), 1 << 24) is None


LETTERS = b'01248dD\\"u{}[]:, \n\x00\x1f\x7f\x80\xbf\xc0\xc3\xe0\xed\xa0\xf0\xf4\x90\xff'


@settings(max_examples=400)
@given(st.data(), st.sampled_from(["words", "chars"]))
def test_what_was_changed_is_never_taken_for_others(data: st.DataObject, kind: str) -> None:
    is_the_same(changed(data, PLAIN, None, LETTERS)[0], kind)
    line, _ = changed(data, PLAIN_LINE, None, LETTERS)
    are_the_same([PLAIN_LINE, line, PLAIN_LINE], kind)
