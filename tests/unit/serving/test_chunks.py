"""Chunks of texts and parts of batches: each row once, and the means of scores."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.helpers.answers import each_row
from tests.helpers.datasets_helpers import assert_same_bits, texts_alone

from xylem.base.rows import offsets
from xylem.engine.answering import Predictions, in_parts
from xylem.engine.features.parameters import parameters_of
from xylem.engine.features.registry import fit_featurizer
from xylem.serving.chunks import chunks_of, mean_of, rows_of_divided_texts
from xylem.serving.rows import divide_texts
from xylem.serving.schemas.fields import TextInstance


@given(st.lists(st.text("ab語 \n\t", max_size=30), max_size=30), st.integers(1, 40))
def test_chunks_are_the_text(parts: list[str], most: int) -> None:
    text = " ".join(parts)
    chunks = chunks_of(text, most)
    assert "".join(chunks) == text
    assert max(map(len, chunks)) <= most
    assert all(chunks) or not text


@pytest.mark.parametrize("most", [20, 50, 333])
def test_words_stay_whole_and_chunks_without_spaces_are_full(most: int) -> None:
    text = " ".join(f"word{i}" for i in range(500))
    chunks = chunks_of(text, most)
    assert " ".join(chunk.strip() for chunk in chunks).split() == text.split()
    assert len(chunks) <= 2 * -(-len(text) // most)
    assert min(map(len, chunks[:-1])) * 2 >= most // 2
    assert chunks_of("語" * 10, 4) == ["語" * 4, "語" * 3, "語" * 3]
    assert chunks_of("short", 500) == ["short"]
    assert chunks_of("", 500) == [""]


@pytest.mark.parametrize("kind", ["tfidf", "words+chars", "hashing"])
def test_only_the_first_chunk_of_a_text_has_first_words(kind: str) -> None:
    texts = [" ".join(f"word{i % 7}" for i in range(n)) for n in (300, 3, 200)]
    data = texts_alone(texts)
    leading, plain = (
        fit_featurizer(data, parameters_of({"kind": kind, "lead": lead}))[0] for lead in (10, 0)
    )
    chunks = [chunk for text in texts for chunk in chunks_of(text, 500)]
    rows, ptr = rows_of_divided_texts(texts, 500, leading)
    assert ptr.tolist() == [0, 4, 5, 8]
    for i, chunk in enumerate(chunks):
        makes = leading if i in ptr else plain
        assert_same_bits(rows.cut(i, i + 1), makes.transform_texts([chunk]))
    changed = leading.transform_texts(chunks)
    assert changed.values.tobytes() != rows.values.tobytes()
    instances = [TextInstance(text=text) for text in texts]
    assert_same_bits(divide_texts(instances, leading, 500).rows, rows)


Chunk = tuple[dict[int, float], bool]
"""The scores of labels, and whether the chunk has features."""


def slow_mean(text: list[Chunk], top_r: int, least: list[float]) -> list[tuple[int, float]]:
    counted = [scores for scores, has_features in text if has_features] or [
        scores for scores, _ in text
    ]
    sums: Counter[int] = Counter()
    for scores in counted:
        sums.update(scores)
    means = {label: np.float32(total / len(counted)) for label, total in sums.items()}
    passing = [(label, mean) for label, mean in means.items() if mean >= least[label]]
    return sorted(passing, key=lambda each: (-each[1], each[0]))[:top_r]


chunk = st.tuples(
    st.dictionaries(st.integers(0, 6), st.sampled_from([0.0, 0.25, 0.5, 1.0])), st.booleans()
)


@given(
    st.lists(st.lists(chunk, min_size=1, max_size=4), max_size=5),
    st.lists(st.sampled_from([0.0, 0.2, 0.5]), min_size=7, max_size=7),
    st.integers(1, 8),
)
def test_means_are_their_definition(
    texts: list[list[Chunk]], least: list[float], top_r: int
) -> None:
    chunks = list(itertools.chain.from_iterable(texts))
    ptr, ends = offsets([*map(len, texts)]), offsets([len(scores) for scores, _ in chunks])
    labels = np.array([label for scores, _ in chunks for label in scores], np.int32)
    scores = np.array([score for scores, _ in chunks for score in scores.values()], np.float32)
    costs = np.arange(2 * len(chunks)).reshape(-1, 2)
    found = Predictions(ends, labels, scores, np.ones(len(chunks), np.uint8), costs)
    has_features = np.array([has for _, has in chunks], bool)
    mean = mean_of(found, ptr, has_features, 7, top_r, np.array(least, np.float32))
    rows = [list(zip(labels, scores, strict=True)) for labels, scores in each_row(mean)]
    assert rows == [slow_mean(text, top_r, least) for text in texts]
    assert mean.exact.tolist() == [0] * len(texts)
    assert [list(row) for row in mean.costs] == [
        list(costs[a:b].sum(0)) for a, b in itertools.pairwise(ptr)
    ]


@given(n_rows=st.integers(0, 300), threads=st.integers(1, 9))
def test_each_row_is_in_one_part_and_parts_are_nearly_equal(n_rows: int, threads: int) -> None:
    parts: list[range] = []
    in_parts(lambda first, last: parts.append(range(first, last)), n_rows, threads)
    assert sorted(itertools.chain.from_iterable(parts)) == [*range(n_rows)]
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_an_error_in_a_part_is_the_callers() -> None:
    def answer(first: int, last: int) -> None:
        raise MemoryError(f"rows {first} .. {last}")

    with pytest.raises(MemoryError, match="rows"):
        in_parts(answer, 10, 2)
