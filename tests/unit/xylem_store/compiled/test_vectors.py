"""Vec16 operations against numpy, and the machine code they become."""

import platform
import socket
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import pytest
from numba.core.errors import NumbaError, TypingError

from xylem_store.compiled.decorators import kernel
from xylem_store.compiled.vectors import (
    add_scaled8,
    load8,
    prefetch,
    vadd,
    vall,
    vbroadcast,
    vdiv,
    vfirst,
    vgreater,
    vkeep,
    vload,
    vlog,
    vmax,
    vmin,
    vmul,
    vnonzero,
    vselect,
    vstore,
    vsub,
    zero8,
)


@kernel
def _arithmetic(a: Any, b: float, out: Any) -> None:
    x, y = vload(a, 0), vload(b, 0)
    vstore(out, 0, vadd(x, y))
    vstore(out, 16, vsub(x, y))
    vstore(out, 32, vmul(x, y))
    vstore(out, 48, vdiv(x, y))
    vstore(out, 64, vmax(x, y))
    vstore(out, 80, vmin(x, y))


@kernel
def _sets(a: Any, b: float, lanes: Any, out: Any) -> Any:
    x, y = vload(a, 0), vload(b, 0)
    vstore(out, 0, vselect(lanes, x, y))
    return vgreater(x, y), vnonzero(x)


@kernel
def _copy(source: socket.socket, start: Any, out: Any, to: Any) -> None:
    prefetch(source, start)
    vstore(out, to, vload(source, start))


@kernel
def _weighted_sum(indices: Any, values: Any, weights: Any, out: Any) -> None:
    total = vbroadcast(0.0)
    for k in range(len(indices)):
        total = vadd(total, vmul(vbroadcast(values[k]), vload(weights, indices[k] * 16)))
    vstore(out, 0, total)


def _bits(lanes: Any) -> Any:
    return sum(1 << k for k, lane in enumerate(lanes) if lane)


def test_arithmetic_is_that_of_float32() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 16)).astype(np.float32)
    out = np.zeros(96, np.float32)
    _arithmetic(a, b, out)
    expected = np.concatenate([a + b, a - b, a * b, a / b, np.maximum(a, b), np.minimum(a, b)])
    np.testing.assert_array_equal(out, expected)


def test_max_and_min_of_nan_are_the_right_operand() -> None:
    nan, b, out = (
        np.full(16, np.nan, np.float32),
        np.arange(16, dtype=np.float32),
        np.zeros(96, np.float32),
    )
    _arithmetic(nan, b, out)
    np.testing.assert_array_equal(out[64:], np.concatenate([b, b]))
    one = np.where(b == 3, nan, 0)
    assert _sets(one, np.full(16, -1, np.float32), 0, out) == (0xFFFF ^ 1 << 3, 1 << 3)


@pytest.mark.parametrize("lanes", [0, 1, 0x8000, 0xA5C3, 0xFFFF])
def test_sets_of_lanes(lanes: Any) -> None:
    rng = np.random.default_rng(lanes)
    a, b = rng.integers(-1, 2, (2, 16)).astype(np.float32)
    out = np.zeros(16, np.float32)
    assert _sets(a, b, lanes, out) == (_bits(a > b), _bits(a != 0))
    np.testing.assert_array_equal(out, np.where([lanes >> k & 1 for k in range(16)], a, b))


@pytest.mark.parametrize("start", range(18))
def test_load_and_store_need_no_alignment(start: Any) -> None:
    source, out, expected = np.arange(40, dtype=np.float32), *np.full((2, 40), -1, np.float32)
    source.flags.writeable = False
    _copy(source, start, out, 17 - start)
    expected[17 - start : 33 - start] = source[start : start + 16]
    np.testing.assert_array_equal(out, expected)


def test_index_counts_through_all_dimensions() -> None:
    source, out = np.arange(64, dtype=np.float32).reshape(4, 16), np.zeros((2, 16), np.float32)
    _copy(source, 32, out, 16)
    np.testing.assert_array_equal(out, [np.zeros(16), source[2]])


@pytest.mark.parametrize("start", [0, 1, 3])
def test_bfloat16_is_the_upper_half_of_float32(start: Any) -> None:
    numbers, out = np.random.default_rng(2).standard_normal(20), np.zeros(16, np.float32)
    words = (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    words.flags.writeable = False
    _copy(words, start, out, 0)
    expected = (words[start : start + 16].astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(out, expected)


def test_other_dtypes_and_read_only_arrays_are_refused() -> None:
    out, fixed = np.zeros(16, np.float32), np.zeros(16, np.float32)
    fixed.flags.writeable = False
    for kernel_of, arguments, error, message in (
        (_copy, (np.zeros(16), 0, out, 0), TypingError, "float32"),
        (_copy, (out, 0, fixed, 0), TypingError, "writable"),
        (_copy8, (np.zeros(16), 0, out, 0), TypingError, "C-contiguous array of"),
        (_add_numbers, (out, np.float32(1), out), NumbaError, "Cannot cast float32 to Vec8"),
    ):
        with pytest.raises(error, match=message):
            kernel_of(*arguments)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 instructions")
def test_a_loop_keeps_its_sum_in_registers() -> None:
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((50, 16)).astype(np.float32)
    weights.flags.writeable = False
    indices = rng.integers(0, 50, 30).astype(np.int32)
    values = rng.standard_normal(30).astype(np.float32)
    out = np.zeros(16, np.float32)
    _weighted_sum(indices, values, weights, out)
    expected = np.zeros(16, np.float32)
    for i, v in zip(indices, values, strict=True):
        expected += v * weights[i]
    np.testing.assert_array_equal(out, expected)

    # Compiled anew: numba does not show the code of a function from its cache.
    fresh = numba.njit(_weighted_sum.py_func)
    fresh(indices, values, weights, out)
    np.testing.assert_array_equal(out, expected)
    (code,) = fresh.inspect_asm().values()
    lines = code.splitlines()
    products = [i for i, line in enumerate(lines) if "mulps" in line]
    assert len(products) >= 2, "the products must be vector instructions"
    loop = lines[products[0] : products[-1]]
    stores = [line for line in loop if "movups" in line and line.endswith(")")]
    assert stores == [], "the running sum must stay in registers"
    if llvmlite.binding.get_host_cpu_features().get("avx"):
        assert not [lines[i] for i in products if "xmm" in lines[i]], (
            "no vector may be cut into four"
        )


@kernel
def _sets_of_bits(a: Any, thresholds: Any, bits: Any, values: Any, first: int, out: Any) -> None:
    left = vall()
    for k in range(len(bits)):
        left = vkeep(left, vload(a, 0), thresholds[k], bits[k])
    vstore(out, 0, vfirst(left, values, first))


def test_the_lowest_bit_that_is_kept_chooses_a_value() -> None:
    a = np.arange(16, dtype=np.float32)
    a[15] = np.nan  # is above nothing
    kept = [~1, ~0b110, 1 << 31]
    bits = np.array(kept, np.int64).astype(np.uint32).view(np.int32)
    values, out = np.arange(40, dtype=np.float32), np.empty(16, np.float32)
    _sets_of_bits(a, np.array([3, 7, 11], np.float32), bits, values, 5, out)
    assert out.tolist() == [5.0] * 4 + [6.0] * 4 + [8.0] * 4 + [36.0] * 3 + [5.0]


@kernel
def _log(a: Any, out: Any) -> None:
    for i in range(0, len(a), 16):
        vstore(out, i, vlog(vload(a, i)))


def test_log_is_right_to_two_units_in_the_last_place() -> None:
    rng = np.random.default_rng(5)
    a = np.exp(rng.uniform(-80, 80, 16 * 5000)).astype(np.float32)
    a[: 16 * 2000] = 1 + rng.uniform(-0.5, 0.5, 16 * 2000)
    a[:3] = [1.0, np.finfo(np.float32).tiny, np.finfo(np.float32).max]
    out = np.empty_like(a)
    _log(a, out)
    exact = np.log(a.astype(np.float64))
    assert out[0] == 0
    assert (np.abs(out - exact) <= 2 * np.spacing(np.abs(exact).astype(np.float32))).all()


@kernel
def _copy8(source: Any, start: Any, out: Any, to: Any) -> None:
    vstore(out, to, load8(source, start))


@kernel
def _add_scaled(a: Any, scalar: Any, b: float, out: Any) -> None:
    vstore(out, 0, add_scaled8(load8(a, 0), scalar, load8(b, 0)))
    vstore(out, 8, add_scaled8(zero8(), scalar, load8(b, 0)))


@kernel
def _add_numbers(a: Any, scalar: Any, out: Any) -> None:
    vstore(out, 0, add_scaled8(load8(a, 0), scalar, scalar))


def test_eight_elements_are_copied_by_their_indices() -> None:
    out = np.full(20, -1, np.float32)
    _copy8(np.arange(40, dtype=np.float32).reshape(10, 4), 13, out, 5)
    assert out.tolist() == [-1.0] * 5 + list(range(13, 21)) + [-1.0] * 7


def test_narrow_weights_are_widened() -> None:
    numbers = np.array([0, 1, -2, 3.5, -0.25, 96, 1e30, -7], np.float32)
    out = np.zeros(8, np.float32)
    _copy8(np.concatenate([[0], numbers.view(np.uint32) >> 16]).astype(np.uint16), 1, out, 0)
    assert out.tolist() == (numbers.view(np.uint32) & 0xFFFF0000).view(np.float32).tolist()
    _copy8(np.array([9, -128, -1, 0, 1, 2, 50, 127, -3], np.int8), 1, out, 0)
    assert out.tolist() == [-128, -1, 0, 1, 2, 50, 127, -3]


@pytest.mark.parametrize("seed", range(3))
def test_products_are_rounded_before_they_are_added(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(8).astype(np.float32) * 10 for _ in range(2))
    scalar, out = np.float32(rng.standard_normal()), np.empty(16, np.float32)
    _add_scaled(a, scalar, b, out)
    assert out[:8].tobytes() == (a + scalar * b).tobytes()
    assert out[8:].tobytes() == (scalar * b).tobytes()
