"""Sparse rows that the kernels take of bodies and lines are those of the general way,
to the bit.
"""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.helpers.bodies import (
    LIMITS,
    NORMS,
    SPARSE_FORMS,
    featurizer_of,
    instances,
    is_the_same,
    numbers,
    parsed_line,
)
from tests.helpers.oip_requests import changed

from xylem.serving.dialects.predict.kernels.request_bodies import RequestBodies
from xylem.serving.kernels.text_lines import read_sparse_lines

PLAIN = b'{"instances":[{"indices":[3,17],"values":[0.5,1]}],"top_r":3,"beam_width":7}'
PLAIN_TUNED = b'{"threshold":"tuned","instances":[{"indices":[3],"values":[0.5]}],"top_r":3}'
PLAIN_NUMBER = b'{"threshold":0.25,"instances":[{"indices":[3],"values":[0.5]}],"exact":true}'
options = {
    "top_r": st.integers(0, 12),
    "beam_width": st.integers(0, 1200),
    "threshold": st.sampled_from(["tuned", "tune", "tunedd", 0, 1, -1, 2, None]) | st.floats(0, 1),
    "exact": st.sampled_from([True, False, 1, "true", None]),
}
norms = st.sampled_from(NORMS)


@given(
    st.fixed_dictionaries({"instances": st.lists(instances, max_size=5)}, optional=options),
    norms,
    st.booleans(),
    st.booleans(),
)
def test_bodies_make_the_same_rows(
    request: dict[str, Any], norm: str, tight: bool, is_sorted: bool
) -> None:
    separators = (",", ":") if tight else None
    is_the_same(json.dumps(request, separators=separators, sort_keys=is_sorted).encode(), norm)


@pytest.mark.parametrize(
    "body",
    [
        PLAIN,
        PLAIN_TUNED,
        PLAIN_NUMBER,
        PLAIN_TUNED[:-1] + b',"threshold":1e-3, "exact" : true ,"exact":false}',
        PLAIN_NUMBER[:-1] + b',"threshold":"tuned"}',
        PLAIN_NUMBER.replace(b"0.25", b"0.99999"),
        b'{"instances":[{"indices":[],"values":[]}],"threshold" : "tuned", "threshold":"tuned" }',
        b'{"instances":[{"indices":[],"values":[]}]}',
        b' { "top_r" : 2 , "instances" : [ { "indices" : [ 39 ] , "values" : [ 1 ] } ] , '
        b'"top_r" : 4 }\r',
        b'{"instances":[{"indices":[5,1,5],"values":[1,2,3]},{"indices":[0],"values":[1e-3]}]}',
    ],
)
def test_what_is_plain(body: bytes) -> None:
    assert is_the_same(body, "l2")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"instances":[]}',
        b'{"top_r":3}',
        PLAIN + b"}",
        PLAIN + PLAIN,
        PLAIN[:-1],
        PLAIN + b"\n",
        PLAIN.replace(b"17", b"40"),
        *(
            PLAIN.replace(b'"top_r":3', b'"top_r":' + odd)
            for odd in (b"0", b"03", b"3.0", b'"3"', b"null")
        ),
        PLAIN.replace(b'"top_r":3', b'"exact":1'),
        PLAIN.replace(b'"top_r":3', b'"exact":tru'),
        *(
            PLAIN_NUMBER.replace(b"0.25", odd)
            for odd in (b"0", b"1", b"-0.5", b"1.5", b".5", b"0.999999999")
        ),
        PLAIN_NUMBER.replace(b"0.25", b"0.5").replace(b"0.5,", b"0.5 5,"),
        PLAIN.replace(b'"top_r":3', b'"tops":3'),
        PLAIN.replace(b'"top_r":3', b'"instances":[{"indices":[],"values":[]}]'),
        PLAIN.replace(b"[3,17]", b"[3,3]").replace(b"[0.5,1]", b"[3e38,3e38]"),
        b'{"instances":[{"text":"a"}]}',
    ],
)
def test_what_is_not(body: bytes) -> None:
    assert not is_the_same(body, "none")


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances":[{"text":"a"}],"top_r":3}',
        b'{"instances":[{"features":{"a":1.0}}]}',
        b'{"instances":[{"indices":[1],"values":["a"]}]}',
        b'{"instances":[{"indices":[1],"values":[1',
        b'{"instances":[{}]}',
        b"{}",
        b"",
    ],
)
def test_the_work_on_a_body_is_bounded_by_its_length(body: bytes) -> None:
    """Each turn of the kernel's loops writes an index, a value or a row's end: these count."""
    bodies = RequestBodies(
        SPARSE_FORMS._replace(rows_max=64, values_max=100_000), featurizer_of("none")
    )
    indptr, indices, values, _ = bodies.arrays
    indptr[1:], indices[:], values[:] = -1, -1, np.nan
    assert bodies.read(body, 0).n_rows == 0
    n_written = np.count_nonzero(indptr[1:] != -1) + np.count_nonzero(indices != -1)
    n_written += np.count_nonzero(~np.isnan(values))
    assert n_written <= len(body) + 2


def row(indices: list[int], values: list[float]) -> dict[str, Any]:
    return {"indices": indices, "values": values}


@pytest.mark.parametrize(
    ("rows", "is_taken"),
    [
        ([row([5, 1, 5], [1, 2, 3])], True),
        ([row([1], [1])] * 4, True),
        ([row([1], [1])] * 5, False),
        ([row([1] * 20, [1] * 20)], True),
        ([row([1] * 21, [1] * 21)], False),
        ([row([*range(5)], [1] * 5)] * 4, True),
        ([row([*range(6)], [1] * 6)] * 4, False),
        ([row([3, 3], [3e38, 3e38])], False),
        ([row([40], [1])], False),
        *(([row([1], [odd])], False) for odd in (np.nan, np.inf, -np.inf)),
    ],
)
def test_rows_beyond_the_buffers_and_odd_ones_are_left(
    rows: list[dict[str, Any]], is_taken: bool
) -> None:
    assert is_the_same(json.dumps({"instances": rows}).encode(), "none") == is_taken


def are_the_same(lines: list[bytes], features_max: int = LIMITS.features_max) -> bool:
    """Compare lines of sparse rows; return whether the kernel took them."""
    found = read_sparse_lines(lines, features_max)
    if found is None:
        return False
    indptr, indices, values = found
    for row, line in enumerate(lines):
        instance = parsed_line(line, "indices", "values")
        cut = slice(*indptr[row : row + 2])
        assert indices[cut].tolist() == instance.indices
        with np.errstate(over="ignore"):
            expected = np.array(instance.values, np.float64).astype(np.float32)
        assert values[cut].tobytes() == expected.tobytes()
    return True


pairs = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), numbers | st.integers(-(2**70), 2**70)), max_size=8
)
PLAIN_LINE = b'{"indices":[3,17],"values":[0.5,1]}'


def written(pairs: list[tuple[int, float]], **style: Any) -> bytes:
    return json.dumps(row([i for i, _ in pairs], [v for _, v in pairs]), **style).encode()


@given(st.lists(pairs, min_size=1, max_size=4), st.booleans())
def test_lines_are_read_as_the_parser_reads_them(
    rows: list[list[tuple[int, float]]], tight: bool
) -> None:
    are_the_same([written(row, separators=(",", ":") if tight else None) for row in rows])


@pytest.mark.parametrize(
    "line",
    [
        PLAIN_LINE,
        b' { "indices" : [ 3 , 17 ] , "values" : [ 0.5 , 1 ] } \r',
        b'{"indices":[],"values":[]}',
        b'{"indices":[2147483647],"values":[-1.5e-3]}',
        b'{"indices":[0],"values":[0]}',
        b'{"indices":[0],"values":[3.4028235e38]}',
    ],
)
def test_lines_that_are_plain(line: bytes) -> None:
    assert are_the_same([line, line])


ODD_IDS = b"true", b"01", b"-1", b"1.0", b"2147483648", b"1,", b",1"
ODD_VALUES = b"NaN", b"1e400", b"1e39", b"-0", b"+1", b"01", b"1.", b".5", b"1.e5", b"1e", b'"1"'


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        PLAIN_LINE[:-1],
        PLAIN_LINE + b"}",
        PLAIN_LINE + b"," + PLAIN_LINE,
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
def test_lines_that_are_not(line: bytes) -> None:
    for lines in ([line], [PLAIN_LINE, line], [line, PLAIN_LINE]):
        assert read_sparse_lines(lines, LIMITS.features_max) is None


def test_features_of_a_line_at_the_limit_and_one_more() -> None:
    assert are_the_same([PLAIN_LINE], 2)
    assert read_sparse_lines([PLAIN_LINE], 1) is None
    assert [array.tolist() for array in read_sparse_lines([], 1)] == [[0], [], []]


LETTERS = b'0123456789.,-+eE[]{}" :\n\tx\xff\x00tbif'


@given(st.data(), st.sampled_from([PLAIN, PLAIN_TUNED, PLAIN_NUMBER]), pairs)
def test_what_was_changed_is_never_taken_for_others(
    data: st.DataObject, body: bytes, some: Any
) -> None:
    is_the_same(changed(data, body, None, LETTERS)[0], "none")
    line, _ = changed(data, written(some), None, LETTERS)
    are_the_same([PLAIN_LINE, line, PLAIN_LINE])
