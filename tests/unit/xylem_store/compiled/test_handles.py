"""Structs handed over by handles, and kernels called by their
address: what works, and what is refused.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from numba import types
from numba.core import errors

from xylem_store.compiled import handles
from xylem_store.compiled.calls import address_of, caller
from xylem_store.compiled.decorators import kernel, nonallocating_kernel


@handles.handle
class Pair(NamedTuple):
    ints: handles.I32_1
    number: int
    floats: Annotated[np.ndarray, handles.Kind(0, 3)]


@handles.handle
class Written(NamedTuple):
    """What a kernel has a handle lead to."""

    number: int
    floats: handles.F32_1
    table: handles.I64_2


@nonallocating_kernel
def read_pair(pair_at: Any, sample: Any, i: int, j: int, k: int, m: int) -> Any:
    pair = handles.struct_at(Pair, pair_at, (sample,))
    return pair.ints[i] + pair.floats[j, k, m], pair.number, pair.ints.shape[0], pair.floats.shape


@nonallocating_kernel
def write_pair(pair_at: Any, sample: Any, i: int, value: Any) -> None:
    handles.struct_at(Pair, pair_at, (sample,)).ints[i] = value


@nonallocating_kernel
def write(written_at: Any, number: Any, floats: Any, table: Any) -> None:
    handles.write_struct(Written, written_at, (number, floats, table))


@nonallocating_kernel
def read_written(written_at: Any) -> Any:
    written = handles.struct_at(Written, written_at)
    return written.number, written.floats[-1], written.table[-1, -1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_kernel_reads_and_writes_the_arrays(dtype: Any) -> None:
    pair = Pair(np.arange(5, dtype=np.int32), -3, np.arange(24, dtype=dtype).reshape(2, 3, 4))
    pair_at, sample = handles.handle_of(pair), np.empty(0, dtype)
    assert read_pair(pair_at, sample, 4, 1, 2, 3) == (27.0, -3, 5, (2, 3, 4))
    write_pair(pair_at, sample, 2, -7)
    assert pair.ints.tolist() == [0, 1, -7, 3, 4]
    other = np.full(2, 9, np.int32)
    handles.set_field(pair_at, Pair, "ints", other)
    pair_at[handles.word_of(Pair, "number")] = 8
    assert read_pair(pair_at, sample, 1, 0, 0, 1) == (10.0, 8, 2, (2, 3, 4))


def test_a_kernel_has_a_handle_lead_to_other_arrays() -> None:
    first = Written(1, np.ones(2, np.float32), np.ones((2, 2), np.int64))
    written_at, floats = handles.handle_of(first), np.arange(5, dtype=np.float32)
    floats.flags.writeable = False
    write(written_at, 7, floats[:4], np.arange(6).reshape(2, 3))
    assert read_written(written_at) == (7, 3.0, 5)
    assert read_written(handles.handle_of(first)) == (1, 1.0, 1)


def test_a_kernel_that_would_write_other_arrays_is_refused() -> None:
    floats, table = np.zeros(2, np.float32), np.zeros((2, 2), np.int64)
    for name, arrays in (
        ("floats", (np.zeros(2), table)),
        ("floats", (np.zeros(4, np.float32)[::2], table)),
        ("table", (floats, np.zeros(2, np.int64))),
        ("table", (floats, 5)),
    ):
        with pytest.raises(errors.TypingError, match=rf"{name}: expected array\("):
            write(np.zeros(12, np.int64), 1, *arrays)


CUBE = np.zeros((1, 1, 1))


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (Pair(np.zeros(5, np.int64), 0, CUBE), "ints: expected 1 dimensions of .*int32"),
        (Pair(np.zeros((5, 1), np.int32), 0, CUBE), "ints: expected 1 dimensions"),
        (Pair(np.zeros(10, np.int32)[::2], 0, CUBE), "ints: expected a C-contiguous array"),
        (Pair(np.zeros(5, np.int32), 0, np.zeros((1, 1))), "floats: expected 3 dimensions"),
    ],
)
def test_other_arrays_are_refused(pair: Any, message: Any) -> None:
    with pytest.raises(ValueError, match=message):
        handles.handle_of(pair)


def test_a_struct_says_what_every_field_holds() -> None:
    with pytest.raises(TypeError, match=r"Other.ints: expected int or a kind of array"):
        handles.handle(NamedTuple("Other", [("ints", np.ndarray)]))


PAIR: Any = types.UniTuple(types.int64, 2)
_call = caller(PAIR)
ARRAY = np.array([3, 4, 5])


@kernel
def _ends(array: Any, step: int) -> tuple[int, int]:
    if step == 0:
        raise ValueError("expected a step")
    return array[0] * step, array[len(array) - 1] * step


@kernel
def _by_address(address: int, array: Any, step: int) -> tuple[int, int]:
    first, last = _call(address, (array[1:], step))
    return last, first


def test_a_kernel_is_called_by_its_address() -> None:
    address = address_of(_ends, PAIR, ARRAY, 0)
    assert _by_address(address, ARRAY, 10) == (50, 40)
    with pytest.raises(ValueError, match="expected a step"):
        _by_address(address, ARRAY, 0)
    with pytest.raises(TypeError, match="expected a kernel that returns int64, found UniTuple"):
        address_of(_ends, types.int64, ARRAY, 0)
