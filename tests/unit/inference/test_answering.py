"""Batches are cut into parts that hold each row once, and gathered without the unused places."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.inference.answering import NOT_WANTED, gather, in_parts


@given(n_rows=st.integers(0, 300), threads=st.integers(1, 9))
def test_each_row_is_in_one_part(n_rows: int, threads: int) -> None:
    answered = np.zeros(n_rows, np.int64)
    lock = threading.Lock()

    def answer(first: int, last: int) -> None:
        with lock:
            answered[first:last] += 1

    in_parts(answer, n_rows, threads)
    assert (answered == 1).all()


def test_parts_are_equal_but_for_one_row() -> None:
    sizes: list[int] = []
    in_parts(lambda first, last: sizes.append(last - first), 1001, 3)
    assert sorted(sizes) == [333, 334, 334]


def test_an_error_in_a_part_is_the_callers() -> None:
    def answer(first: int, last: int) -> None:
        raise MemoryError(f"rows {first} .. {last}")

    with pytest.raises(MemoryError, match="rows"):
        in_parts(answer, 10, 2)


@given(counts=st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_what_is_gathered_is_what_was_written(counts: list[int]) -> None:
    labels = np.arange(3 * len(counts), dtype=np.int32).reshape(-1, 3)
    scores = labels.astype(np.float32) / 100
    found = gather(np.array(counts, np.int64), labels, scores, True, NOT_WANTED)
    for row, count in enumerate(counts):
        part = slice(found.ptr[row], found.ptr[row + 1])
        assert found.labels[part].tolist() == labels[row, :count].tolist()
        assert found.scores[part].tolist() == scores[row, :count].tolist()
