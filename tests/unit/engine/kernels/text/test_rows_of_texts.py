"""Decimal numbers of a text, and the features of a row in their order."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from xylem.base.rows import offsets
from xylem.datasets.kernels.decimals import EXACT, HARD, MALFORMED, NON_FINITE, parse_decimal
from xylem.engine.kernels.text.sort_and_sum import sort_and_sum_rows, sort_labels
from xylem_store.compiled.decorators import kernel

GRAMMAR = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@kernel
def parse_first(data: np.ndarray) -> tuple[np.float32, int, int]:
    return parse_decimal(data, 0)


def parse(text: str) -> tuple[np.float32, int, int]:
    return parse_first(np.frombuffer(text.encode() + b"\n", np.uint8))


def check(text: str) -> int:
    with np.errstate(over="ignore", under="ignore"):
        expected = np.float32(float(text))
    value, end, code = parse(text)
    if code == EXACT:
        assert end == len(text)
        assert np.float32(value).tobytes() == expected.tobytes(), text
    elif code == NON_FINITE:
        assert np.isinf(expected)
    else:
        assert code == HARD, text
    return code


@settings(max_examples=500)
@given(st.from_regex(GRAMMAR, fullmatch=True, alphabet="0123456789+-.eE"))
@example("16777217")
@example("16777217.0000000001")
@example("0.00000000000000000000000000000000000000000000070064923216240853546186479164495")
@example("3.4028235677973366e38")
@example("3.4028235677973365e38")
@example("9007199254740993")
@example("1" + "0" * 60)
@example("0." + "0" * 60 + "1")
@example("-0")
def test_numbers_are_those_of_float(text: str) -> None:
    check(text)


@settings(max_examples=500)
@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from(["r", ".6g", ".9g", ".17g", "f"]),
)
def test_what_programs_write_is_read(value: float, style: str) -> None:
    text = repr(value) if style == "r" else format(value, style)
    code = check(text)
    if 1e-20 < abs(value) < 1e20 and style != ".17g":
        assert code == EXACT or abs(value) > 2**24


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((text, NON_FINITE) for text in ("nan", "NaN", "-inf", "Infinity", "1e39")),
        ("1e400", HARD),
        *((text, MALFORMED) for text in ("", ".", "-", "+-1", "e5", "1e", "1e+", "x")),
    ],
)
def test_what_is_no_number(text: str, code: int) -> None:
    assert parse(text)[2] == code


@pytest.mark.parametrize(
    ("text", "end"), [("1 2", 1), ("1.5x", 3), ("0x10", 1), ("1_000", 1), ("1.2.3", 3)]
)
def test_a_number_ends_at_the_first_byte_outside_it(text: str, end: int) -> None:
    assert parse(text)[1:] == (end, EXACT)


Row = list[tuple[int, float]]
values = st.floats(-(2.0**100), 2.0**100, width=32)
pairs = st.lists(st.lists(st.tuples(st.integers(0, 6), values), max_size=40), max_size=6)


def flat(rows: list[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pairs = np.array([pair for row in rows for pair in row]).reshape(-1, 2)
    return offsets(map(len, rows)), pairs[:, 0].astype(np.int32), pairs[:, 1].astype(np.float32)


@given(pairs)
def test_rows_are_sorted_and_summed_in_the_order_given(rows: list[Row]) -> None:
    indptr, indices, values = flat(rows)
    n, bad = sort_and_sum_rows(indptr, indices, values)
    assert bad == -1 and n == indptr[-1]
    for row, start, end in zip(rows, indptr[:-1], indptr[1:], strict=True):
        sums: dict[int, float] = {}
        for i, value in row:
            sums[i] = sums.get(i, 0.0) + value
        assert indices[start:end].tolist() == sorted(sums)
        assert values[start:end].tolist() == [float(np.float32(sums[i])) for i in sorted(sums)]


@given(st.lists(st.lists(st.integers(0, 9), max_size=20), max_size=6))
def test_labels_are_sorted_sets(rows: list[list[int]]) -> None:
    indptr = offsets(map(len, rows))
    indices = np.array(
        [*(i for row in rows for i in row), 7, 7], np.int32
    )  # with room behind the last row
    assert sort_labels(indptr, indices) == indptr[-1]
    found = [indices[a:b].tolist() for a, b in itertools.pairwise(indptr)]
    assert found == [sorted(set(row)) for row in rows]


@pytest.mark.parametrize(
    ("rows", "first_bad"),
    [
        ([[(0, 1.0)], [(0, np.inf)], [(0, np.nan)]], 1),
        ([[(1, 1.0), (0, np.nan)]], 0),
        ([[(0, 1.0)], [(1, 3e38), (1, 3e38)]], 1),
        ([[(1, 3e38), (1, 3e38), (1, -3e38)]], -1),
    ],
)
def test_the_first_row_that_is_not_finite_is_named(rows: list[Row], first_bad: int) -> None:
    assert sort_and_sum_rows(*flat(rows))[1] == first_bad
