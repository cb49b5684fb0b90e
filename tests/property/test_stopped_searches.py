"""A traversal that is stopped gives the part of its answer that it has."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.forests import forest_of
from tests.helpers.traversals import N_ROWS, WAYS, forests_of_a_row, links, low_thresholds, run
from tests.oracles.trees import random_rows

from xylem.engine.kernels.search.beam import beam_rows
from xylem.engine.kernels.search.best_first import best_first_rows, threshold_rows


def stopped_at(forest: Any, where: Any) -> Any:
    """Stop an exact or thresholded traversal once a node has a
    score, so far on in the order of nodes.
    """
    n_trees = len(forest.trees)
    node = n_trees + int(where * (len(forest.ensemble.parent) - n_trees - 1))
    return lambda _, queue: queue.node_stamp[node:]


@settings(max_examples=60)
@given(forests_of_a_row, st.integers(1, 60), st.floats(0, 1), links)
def test_a_stopped_best_first_search_answers_its_first_labels(
    forest: Any, top_r: int, where: Any, link: str
) -> None:
    (whole,) = run(best_first_rows, forest, link, top_r)
    (part,) = run(best_first_rows, forest, link, top_r, stop=stopped_at(forest, where))
    assert list(part.items()) == list(whole.items())[: len(part)]


@settings(max_examples=60)
@given(forests_of_a_row, low_thresholds, st.floats(0, 1), links)
def test_a_stopped_threshold_search_gives_labels_of_its_answer(
    forest: Any, threshold: Any, where: Any, link: str
) -> None:
    log_threshold = np.log(np.full(1, threshold, np.float32))
    search = threshold_rows, forest, link, forest.n_labels
    (whole,) = run(*search, log_threshold=log_threshold)
    (part,) = run(*search, log_threshold=log_threshold, stop=stopped_at(forest, where))
    assert part.items() <= whole.items()


@pytest.mark.parametrize("way", ["exact", "threshold"])
def test_searches_that_stop_half_way_have_part_of_their_answer(way: str) -> None:
    partial = 0
    for seed in range(40):
        forest = forest_of("label-tree", seed, 1, 60, 70, 5, n_rows=1)
        (whole,) = run(best_first_rows, forest, "hinge2", 60)
        kernel, options = WAYS[way]
        (part,) = run(kernel, forest, "hinge2", 60, **options, stop=stopped_at(forest, 0.5))
        partial += 0 < len(part) < len(whole)
    assert partial > 0


@pytest.mark.parametrize("n_trees", [1, 3])
def test_a_stopped_beam_gives_what_it_has_found(n_trees: int) -> None:
    partial = 0
    for seed in range(30):
        forest = forest_of("label-tree", seed, n_trees, 60, 70, 9, n_rows=1)
        search = beam_rows, forest, "hinge2", 60
        (whole,) = run(*search, beam_width=50)
        # The list of nodes has its first entry behind it: the search ends
        # after a chunk of the second level.
        (part,) = run(*search, beam_width=50, stop=lambda work, _: work.turns)
        assert part.keys() <= whole.keys()
        assert all(score <= whole[label] for label, score in part.items())
        partial += 0 < len(part) < len(whole)
    assert partial > 0


@pytest.mark.parametrize("way", WAYS)
def test_a_search_stopped_before_it_begins_finds_nothing(way: str) -> None:
    forest = forest_of("label-tree", 3, 1, 30, 20, 4)._replace(rows=random_rows(1, N_ROWS, 20))
    kernel, options = WAYS[way]
    flag = np.ones(1, np.uint8)
    search = {**options, "stop": lambda *_: flag}
    assert run(kernel, forest, "hinge2", 5, **search) == [{}] * N_ROWS
    flag[0] = 0
    assert all(run(kernel, forest, "hinge2", 5, **search))
