"""Chunks of texts and parts of batches: each row once, and the means of scores."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.inference.answering import NOT_WANTED, Predictions, gather, in_parts
from service.inference.chunks import chunks_of, mean_of

N_LABELS = 7


@given(st.lists(st.text("ab語 \n\t", max_size=30), max_size=30), st.integers(1, 40))
def test_chunks_are_the_text(parts: list[str], most: int) -> None:
    text = " ".join(parts)
    chunks = chunks_of(text, most)
    assert "".join(chunks) == text
    assert max(map(len, chunks)) <= most
    assert all(chunks) or not text


@pytest.mark.parametrize("most", [20, 50, 333])
def test_words_stay_whole(most: int) -> None:
    text = " ".join(f"word{i}" for i in range(500))
    chunks = chunks_of(text, most)
    assert " ".join(chunk.strip() for chunk in chunks).split() == text.split()
    assert len(chunks) <= 2 * -(-len(text) // most)
    assert min(map(len, chunks[:-1])) * 2 >= most // 2


def test_a_text_without_spaces_is_cut_where_a_chunk_is_full() -> None:
    assert chunks_of("語" * 10, 4) == ["語" * 4, "語" * 3, "語" * 3]
    assert chunks_of("short", 500) == ["short"]
    assert chunks_of("", 500) == [""]


def slow_mean(
    found: Predictions, ptr: list[int], has_features: list[bool], top_r: int, least: list[float]
) -> list[list[tuple[int, float]]]:
    answers = []
    for first, last in itertools.pairwise(ptr):
        counted = [c for c in range(first, last) if has_features[c]] or list(range(first, last))
        sums: dict[int, float] = {}
        for chunk in counted:
            for at in range(found.ptr[chunk], found.ptr[chunk + 1]):
                label = int(found.labels[at])
                sums[label] = sums.get(label, 0.0) + float(found.scores[at])
        means = {label: np.float32(total / len(counted)) for label, total in sums.items()}
        passing = [(label, mean) for label, mean in means.items() if mean >= least[label]]
        answers.append(sorted(passing, key=lambda each: (-each[1], each[0]))[:top_r])
    return answers


@given(st.data())
def test_means_are_their_definition(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), max_size=5))
    n_chunks = sum(sizes)
    ptr = [0, *itertools.accumulate(sizes)]
    rows = data.draw(
        st.lists(st.lists(st.integers(0, N_LABELS - 1), unique=True), min_size=n_chunks, max_size=n_chunks)
    )
    ends = [0, *itertools.accumulate(map(len, rows))]
    n_places = ends[-1]
    scores = data.draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=n_places, max_size=n_places))
    has_features = data.draw(st.lists(st.booleans(), min_size=n_chunks, max_size=n_chunks))
    least = data.draw(st.lists(st.sampled_from([0.0, 0.2, 0.5]), min_size=N_LABELS, max_size=N_LABELS))
    top_r = data.draw(st.integers(1, 8))
    costs = np.arange(2 * n_chunks).reshape(-1, 2)
    found = Predictions(
        np.array(ends),
        np.array([label for row in rows for label in row], np.int32),
        np.array(scores, np.float32),
        np.ones(n_chunks, np.uint8),
        costs,
    )
    mean = mean_of(
        found, np.array(ptr), np.array(has_features, bool), N_LABELS, top_r, np.array(least, np.float32)
    )
    expected = slow_mean(found, ptr, has_features, top_r, least)
    pairs = list(zip(mean.labels.tolist(), mean.scores, strict=True))
    assert [pairs[a:b] for a, b in itertools.pairwise(mean.ptr.tolist())] == expected
    assert not mean.exact.any() and len(mean.exact) == len(sizes)
    assert [list(row) for row in mean.costs] == [list(costs[a:b].sum(0)) for a, b in itertools.pairwise(ptr)]


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
