"""Results of steps in the order of the items, while later items are worked on."""

from collections.abc import Iterator

import numpy as np
import pytest

from service.base.errors import BadData
from service.executors.local import Crew
from tests.steps import Scaled, Sleeping

MATRIX = np.random.default_rng(0).random((20, 5)).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_the_order_of_the_items_though_later_ones_end_first(threads: int) -> None:
    items = [0.2, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert list(Crew(threads).mapped(Sleeping(), items)) == items
    found = [one.number for one in Crew(threads).mapped(Scaled(MATRIX, 2.0), range(20))]
    assert found == list(range(20))
    assert not list(Crew(threads).mapped(Sleeping(), []))


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (3, 6)])
def test_few_items_are_taken_before_the_first_result_is(threads: int, ahead: int) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    results = Crew(threads).mapped(Scaled(MATRIX, 2.0), items())
    assert next(results).number == 0 and len(taken) == ahead
    results.close()  # type: ignore[attr-defined]  # what a consumer does that wants no more
    assert len(taken) == ahead


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_comes_where_its_result_would(threads: int) -> None:
    crew = Crew(threads)
    results = crew.mapped(Scaled(MATRIX, 2.0, bad=7), range(20))
    assert [next(results).number for _ in range(7)] == list(range(7))
    with pytest.raises(BadData, match="row 7: expected another"):
        next(results)
    assert len(list(crew.mapped(Scaled(MATRIX, 2.0), range(20)))) == 20
