"""Chunks of texts, and the means of their scores, against slow definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.inference.answering import Predictions
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
        found,
        np.array(ptr),
        np.array(has_features, bool),
        N_LABELS,
        top_r,
        np.array(least, np.float32),
    )
    expected = slow_mean(found, ptr, has_features, top_r, least)
    pairs = list(zip(mean.labels.tolist(), mean.scores, strict=True))
    assert [pairs[a:b] for a, b in itertools.pairwise(mean.ptr.tolist())] == expected
    assert not mean.exact.any() and len(mean.exact) == len(sizes)
    assert [list(row) for row in mean.costs] == [list(costs[a:b].sum(0)) for a, b in itertools.pairwise(ptr)]
