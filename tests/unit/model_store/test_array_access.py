"""Arrays taken by name: what the format asks for, or a refusal that says where."""

from __future__ import annotations

import numpy as np
import pytest

from model_store.array_access import at, take
from model_store.errors import Corrupt

ARRAYS = {"tree/parent": np.arange(6, dtype=np.int32).reshape(2, 3)}


@pytest.mark.parametrize("shape", [(2, 3), (None, 3), (2, None), (None, None)])
def test_an_array_that_fits_is_taken_without_a_copy_and_cannot_be_written(
    shape: tuple[int | None, ...],
) -> None:
    found = take(ARRAYS, "tree/parent", "int32", shape)
    assert np.shares_memory(found, ARRAYS["tree/parent"])
    assert ARRAYS["tree/parent"].flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("int64", (2, 3)),
        ("uint32", (2, 3)),
        ("int32", (3, 2)),
        ("int32", (6,)),
        ("int32", (2, 3, 1)),
        ("int32", ()),
    ],
)
def test_another_type_or_shape_is_refused(dtype: str, shape: tuple[int | None, ...]) -> None:
    with pytest.raises(Corrupt, match="parent") as refused:
        take(ARRAYS, "tree/parent", dtype, shape)
    assert "int32[2, 3]" in str(refused.value)


def test_a_missing_array_is_refused() -> None:
    with pytest.raises(Corrupt, match=r"an array tree/child_ptr, found none"):
        take(ARRAYS, "tree/child_ptr", "int32", (None,))


def test_an_array_that_is_not_contiguous_is_refused() -> None:
    with pytest.raises(Corrupt):
        take({"a": ARRAYS["tree/parent"].T}, "a", "int32", (3, 2))


def test_an_element_is_named_by_its_file() -> None:
    assert at("tree/parent", 7).endswith("parent.npy[7]")
