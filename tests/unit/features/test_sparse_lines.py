"""Lines that the kernel takes for plain are what the parser makes of them: sparse rows and texts."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.errors import BadInput
from service.base.settings import Limits
from service.features.text_lines import read_sparse_lines, text_rows_of_lines
from service.serving.parse import parse_line
from tests.datasets_helpers import assert_same_bits
from tests.oip_requests import changed
from tests.unit.features.bodies import BYTES_MAX, KINDS, NO_TEXTS, featurizer_of, fitted, numbers, texts

LIMITS = Limits(text_bytes_max=BYTES_MAX)
PLAIN = b'{"indices":[3,17],"values":[0.5,1]}'
PLAIN_TEXT = '{"text":"Caf\\u00e9 \\"editor\\" é😀"}'.encode()


def parsed(line: bytes, fields: set[str]) -> Any:
    """What the parser of requests makes of a line that has these fields alone, as it must have."""
    try:
        found = parse_line(line, LIMITS)
    except BadInput as error:
        raise AssertionError(f"{line!r} was taken") from error
    assert found.model_fields_set == fields, line
    return found


def are_the_same(lines: list[bytes], features_max: int = LIMITS.features_max) -> bool:
    """Compare lines of sparse rows; return whether the kernel took them."""
    found = read_sparse_lines(lines, features_max)
    if found is None:
        return False
    indptr, indices, values = found
    for row, line in enumerate(lines):
        instance = parsed(line, {"indices", "values"})
        cut = slice(*indptr[row : row + 2])
        assert indices[cut].tolist() == instance.indices
        with np.errstate(over="ignore"):
            expected = np.array(instance.values, np.float64).astype(np.float32)
        assert values[cut].tobytes() == expected.tobytes()
    return True


def are_the_same_texts(lines: list[bytes], kind: str = "words") -> bool:
    """Compare lines of texts; return whether the kernel took them."""
    found = text_rows_of_lines(lines, featurizer_of(kind), BYTES_MAX)
    if found is None:
        return False
    read = [parsed(line, {"text"}).text for line in lines]
    assert_same_bits(found, featurizer_of(kind).transform_texts(read))
    return True


pairs = st.lists(st.tuples(st.integers(0, 2**31 - 1), numbers | st.integers(-(2**70), 2**70)), max_size=8)


def written(pairs: list[tuple[int, float]], **style: Any) -> bytes:
    return json.dumps({"indices": [i for i, _ in pairs], "values": [v for _, v in pairs]}, **style).encode()


@given(st.lists(pairs, min_size=1, max_size=4), st.booleans())
def test_instances_are_read_as_the_parser_reads_them(
    rows: list[list[tuple[int, float]]], tight: bool
) -> None:
    are_the_same([written(row, separators=(",", ":") if tight else None) for row in rows])


@given(pairs, st.data())
def test_changed_lines_are_never_taken_for_others(row: list[tuple[int, float]], data: st.DataObject) -> None:
    line, _ = changed(data, written(row), None, b'0123456789.,-+eE[]{}" :\tx\xff\x00')
    are_the_same([PLAIN, line, PLAIN])


@pytest.mark.parametrize(
    "line",
    [
        PLAIN,
        b' { "indices" : [ 3 , 17 ] , "values" : [ 0.5 , 1 ] } \r',
        b'{"indices":[],"values":[]}',
        b'{"indices":[2147483647],"values":[-1.5e-3]}',
        b'{"indices":[0],"values":[0]}',
        b'{"indices":[0],"values":[3.4028235e38]}',
    ],
)
def test_what_is_plain(line: bytes) -> None:
    assert are_the_same([line, line])


ODD_IDS = b"true", b"01", b"-1", b"1.0", b"2147483648", b"1,", b",1"
ODD_VALUES = b"NaN", b"1e400", b"1e39", b"-0", b"+1", b"01", b"1.", b".5", b"1.e5", b"1e", b'"1"'


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        PLAIN[:-1],
        PLAIN + b"}",
        PLAIN + b"," + PLAIN,
        b'{"values":[1],"indices":[1]}',
        b'{"indices":[1],"values":[1],"id":3}',
        b'{"indices":[1,2],"values":[1]}',
        *(b'{"indices":[%b],"values":[1]}' % odd for odd in ODD_IDS),
        *(b'{"indices":[1],"values":[%b]}' % odd for odd in ODD_VALUES),
        b'{"indices":[1],"values":[1]',
        b'{"indices":[1],"values":[1}',
        b'{"indices":[1]"values":[1]}',
        b'{"Indices":[1],"values":[1]}',
    ],
)
def test_what_is_not(line: bytes) -> None:
    for lines in ([line], [PLAIN, line], [line, PLAIN]):
        assert read_sparse_lines(lines, LIMITS.features_max) is None


def test_features_at_the_limit_and_one_more_and_no_lines() -> None:
    assert are_the_same([PLAIN], 2)
    assert read_sparse_lines([PLAIN], 1) is None
    assert [array.tolist() for array in read_sparse_lines([], 1)] == [[0], [], []]


@settings(max_examples=300)
@given(st.lists(texts, min_size=1, max_size=6), st.sampled_from(sorted(KINDS)), st.booleans(), st.booleans())
def test_texts_become_the_rows_of_the_general_way(
    found: list[str], kind: str, is_ascii: bool, tight: bool
) -> None:
    separators = (",", ":") if tight else None
    lines = [json.dumps({"text": text}, ensure_ascii=is_ascii, separators=separators) for text in found]
    are_the_same_texts([line.encode(errors="surrogatepass") for line in lines], kind)


@settings(max_examples=300)
@given(st.data())
def test_changed_texts_are_never_taken_for_others(data: st.DataObject) -> None:
    letters = b'0d8D\\"u{}[]:, \x00\x1f\x7f\x80\xbf\xc0\xc3\xe0\xed\xa0\xf0\xf4\x90\xff'
    line, _ = changed(data, PLAIN_TEXT, None, letters)
    are_the_same_texts([PLAIN_TEXT, line, PLAIN_TEXT])


def test_texts_that_are_taken() -> None:
    assert are_the_same_texts([PLAIN_TEXT, b' { "text" : "" } \r', b'{"text":"' + b"x" * BYTES_MAX + b'"}'])
    many = [json.dumps({"text": f"editor {i} Größe"}).encode() for i in range(3000)]
    assert are_the_same_texts(many)
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
def test_what_is_no_text(line: bytes) -> None:
    for lines in ([line], [PLAIN_TEXT, line], [line, PLAIN_TEXT]):
        assert not are_the_same_texts(lines)


def test_two_lines_that_are_one_text_together_are_none() -> None:
    assert not are_the_same_texts([b'{"text":"a', b'b"}'])
    assert not are_the_same_texts([b'{"text":"a"},{"text":"b"}', PLAIN_TEXT])


@pytest.mark.parametrize("config", NO_TEXTS, ids=str)
def test_models_whose_texts_are_not_for_kernels(config: dict[str, object]) -> None:
    assert text_rows_of_lines([PLAIN_TEXT], fitted(config), BYTES_MAX) is None


def test_lines_of_more_bytes_than_there_is_room_for_are_left() -> None:
    line = b'{"text":"' + b"x" * (1 << 23) + b'"}'
    assert text_rows_of_lines([line], featurizer_of("words"), 1 << 24) is not None
    assert text_rows_of_lines([line] * 2, featurizer_of("words"), 1 << 24) is None
