"""Lines of texts that the kernel takes have the rows that the parser and the featurizer make of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.errors import BadInput
from service.base.settings import Limits
from service.features.text_lines import text_rows_of_lines
from service.serving.parse import parse_line
from service.serving.schemas.predict import TextLine
from tests.unit.features.test_text_bodies import BYTES_MAX, KINDS, NO_TEXTS, featurizer_of, fitted, texts

LIMITS = Limits(text_bytes_max=BYTES_MAX)
PLAIN = '{"text":"Caf\\u00e9 \\"editor\\" é😀"}'.encode()


def text_of(line: bytes) -> str | None:
    """What the parser of requests says of a line; None: it is refused, or more than a text."""
    try:
        found = parse_line(line, LIMITS)
    except BadInput:
        return None
    is_plain = isinstance(found, TextLine) and found.model_fields_set == {"text"}
    return found.text if is_plain else None  # type: ignore[union-attr]


def is_the_same(lines: list[bytes], kind: str = "words") -> bool:
    """Compare the two; return whether the kernel took the lines."""
    found = text_rows_of_lines(lines, featurizer_of(kind), BYTES_MAX)
    if found is None:
        return False
    read = [text_of(line) for line in lines]
    assert None not in read, lines
    expected = featurizer_of(kind).transform_texts(read)  # type: ignore[arg-type]
    for mine, theirs in zip(found[:3], expected[:3], strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.tobytes() == theirs.tobytes()
    return True


@settings(deadline=None, max_examples=300)
@given(st.lists(texts, min_size=1, max_size=6), st.sampled_from(sorted(KINDS)), st.booleans(), st.booleans())
def test_texts_become_the_rows_of_the_general_way(
    found: list[str], kind: str, is_ascii: bool, tight: bool
) -> None:
    separators = (",", ":") if tight else None
    lines = [json.dumps({"text": text}, ensure_ascii=is_ascii, separators=separators) for text in found]
    is_the_same([line.encode(errors="surrogatepass") for line in lines], kind)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_changed_lines_are_never_taken_for_others(data: st.DataObject) -> None:
    line = PLAIN
    alphabet = b'0d8D\\"u{}[]:, \x00\x1f\x7f\x80\xbf\xc0\xc3\xe0\xed\xa0\xf0\xf4\x90\xff'
    for _ in range(data.draw(st.integers(1, 4))):
        at, more = data.draw(st.integers(0, len(line))), data.draw(st.sampled_from(alphabet))
        line = line[:at] + bytes([more]) + line[at + data.draw(st.integers(0, 2)) :]
    is_the_same([PLAIN, line, PLAIN])


def test_what_is_taken() -> None:
    assert is_the_same([PLAIN, b' { "text" : "" } \r', b'{"text":"' + b"x" * BYTES_MAX + b'"}'])


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{}", b'{"text":"a"', b'{"text":"a"}}', b'{"text":"a"},', b'"a"', b'{"text":1}'),
        *(b'{"text":"a","id":1}', b'{"text":"a","labels":[]}', b'{"indices":[1],"values":[1]}'),
        b'{"text":"' + b"x" * (BYTES_MAX + 1) + b'"}',
        '{"text":"e\u0301"}'.encode(),
    ],
)
def test_what_is_not(line: bytes) -> None:
    assert not is_the_same([line])
    assert not is_the_same([PLAIN, line])
    assert not is_the_same([line, PLAIN])


def test_two_lines_that_are_one_text_together_are_none() -> None:
    assert not is_the_same([b'{"text":"a', b'b"}'])
    assert not is_the_same([b'{"text":"a"},{"text":"b"}', PLAIN])


@pytest.mark.parametrize("config", NO_TEXTS, ids=str)
def test_models_whose_texts_are_not_for_kernels(config: dict[str, object]) -> None:
    assert text_rows_of_lines([PLAIN], fitted(config), BYTES_MAX) is None


def test_lines_of_more_bytes_than_there_is_room_for_are_left() -> None:
    line = b'{"text":"' + b"x" * (1 << 23) + b'"}'
    assert text_rows_of_lines([line], featurizer_of("words"), 1 << 24) is not None
    assert text_rows_of_lines([line] * 2, featurizer_of("words"), 1 << 24) is None


def test_many_lines() -> None:
    lines = [json.dumps({"text": f"editor {i} Größe"}).encode() for i in range(3000)]
    assert is_the_same(lines)
    assert np.diff(text_rows_of_lines(lines, featurizer_of("words"), BYTES_MAX).indptr).min() > 0  # type: ignore[union-attr]
