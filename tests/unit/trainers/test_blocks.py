"""Trees of rows in blocks: the bits of rows in memory where they
fit, and near them where they do not.
"""

from typing import Any

import numpy as np
import pytest
from tests.helpers.steps import Parts
from tests.helpers.trainings import bits_of, data_of

from xylem.base import no_progress
from xylem.base.errors import BadData, BadParameter
from xylem.base.executors.local import Crew
from xylem.base.rows import SparseRows
from xylem.trainers import Trained, blocks, estimate, fit, parse_parameters
from xylem.trainers.registry import estimate_blocks
from xylem.trainers.source import MemorySource, Tools, TrainingSet


def problem(n_rows: int = 600, n_labels: int = 40) -> TrainingSet:
    """Rows sorted by label, as files often are: whole numbers,
    whose sums do not depend on the order.
    """
    rng = np.random.default_rng(1)
    y = rng.random((n_rows, n_labels)) < 1.5 / n_labels
    y = y[np.argsort(y.argmax(axis=1), kind="stable")]
    x = (rng.random((n_rows, 90)) < 0.05) + y @ (rng.random((n_labels, 90)) < 0.06)
    return data_of(x, y)


def with_memory(monkeypatch: pytest.MonkeyPatch, memory_bytes: int) -> None:
    """A step holds so many bytes of the rows."""
    planned, less = blocks._plan_nodes, {"memory_bytes": memory_bytes}
    monkeypatch.setattr(
        blocks, "_plan_nodes", lambda made, shape: planned(made._replace(**less), shape)
    )


def of_blocks(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    items: list[str],
    memory_bytes: int,
    threads: int = 1,
) -> Trained:
    """Train on blocks, of which a step holds so many bytes."""
    parameters = parse_parameters(name, [*items, "memory_mib=2"])
    with monkeypatch.context() as patch:
        with_memory(patch, memory_bytes)
        return fit(name, parameters, Parts(problem(), 8), Tools(1, Crew(threads)))


def of_memory(name: str, items: list[str]) -> Trained:
    return fit(name, parse_parameters(name, items), MemorySource(problem()), Tools(1))


@pytest.mark.parametrize(
    ("name", "items"),
    [
        ("ovr", ["idf=no"]),
        ("label-tree", ["leaf_size=5", "arity=4", "idf=no", "trees=2"]),
        ("label-tree", ["leaf_size=5", "arity=4", "idf=no", "clustering=kmeans", "loss=logistic"]),
    ],
)
def test_blocks_that_fit_in_a_step_have_the_bits_of_memory(
    monkeypatch: pytest.MonkeyPatch, name: str, items: list[str]
) -> None:
    whole = of_memory(name, [*items, "memory_mib=2"])
    assert bits_of(of_blocks(monkeypatch, name, items, 1 << 30)) == bits_of(whole)


@pytest.mark.parametrize("threads", [1, 3])
def test_nodes_above_groups_have_the_bits_of_memory(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    items = ["leaf_size=5", "arity=2", "idf=yes", "trees=2"]
    plans = []
    plan = blocks._plan_nodes

    def recorded(made: Any, shape: Any) -> Any:
        plans.append(plan(made, shape))
        return plans[-1]

    monkeypatch.setattr(blocks, "_plan_nodes", recorded)
    of_rows = of_memory("label-tree", [*items, "memory_mib=2"])
    from_blocks = of_blocks(monkeypatch, "label-tree", items, 300_000, threads)
    assert bits_of(from_blocks) == bits_of(of_rows)
    large, middle, groups = plans[0]
    assert not large and len(middle) > 1 and len(groups) > 2


@pytest.mark.parametrize(
    ("loss", "memory_bytes"),
    [("squared_hinge", 1), ("logistic", 20_000), ("squared_hinge", 40_000)],
)
def test_nodes_that_do_not_fit_are_near_and_subtrees_equal(
    monkeypatch: pytest.MonkeyPatch, loss: str, memory_bytes: int
) -> None:
    items = ["leaf_size=5", "arity=4", "idf=no", "prune=0", "cost=0.5", "eps=0.005", f"loss={loss}"]
    from_blocks = of_blocks(monkeypatch, "label-tree", items, memory_bytes)
    there, here = from_blocks.ensemble, of_memory("label-tree", items).ensemble
    assert np.array_equal(there.child_ptr, here.child_ptr)
    assert np.array_equal(there.node_label, here.node_label)
    same = there.node_bias == here.node_bias
    assert not same[1:].all() and (memory_bytes == 1 or same[1:].any())
    np.testing.assert_allclose(there.node_bias, here.node_bias, atol=0.2)
    if memory_bytes > 1:  # of a block a row that takes long
        threads = of_blocks(monkeypatch, "label-tree", items, memory_bytes, threads=3)
        assert bits_of(threads) == bits_of(from_blocks)


def test_a_row_that_takes_more_than_a_step_may_hold_is_named() -> None:
    data, nothing = problem(), np.zeros(1 << 18, np.int32)
    long = SparseRows(np.array([0, 1 << 18]), nothing, nothing, 90)
    data = TrainingSet.join([data, TrainingSet(long, data.labels.cut(0, 1))])
    message = "row 601: expected rows of at most memory_mib=1 MiB, found 2,097,152 bytes"
    with pytest.raises(BadData, match=message):
        fit("ovr", parse_parameters("ovr", ["memory_mib=1"]), Parts(data, 3), Tools(1))


@pytest.mark.parametrize("memory_bytes", [1 << 30, 20_000])
def test_the_estimate_of_blocks_is_that_of_rows_in_memory(
    monkeypatch: pytest.MonkeyPatch, memory_bytes: int
) -> None:
    with_memory(monkeypatch, memory_bytes)
    parameters = parse_parameters(
        "label-tree", ["leaf_size=5", "arity=4", "idf=no", "memory_mib=2"]
    )
    found = estimate_blocks(
        "label-tree", parameters, Parts(problem(), 8), Tools(1, Crew(2), no_progress)
    )
    assert found == estimate("label-tree", parameters, problem(), Tools(1))


def test_a_trainer_without_blocks_has_no_estimate_of_a_stream() -> None:
    parameters = parse_parameters("ldsm", [])
    with pytest.raises(BadParameter, match="stream: expected one of label-tree, ovr, found ldsm"):
        estimate_blocks("ldsm", parameters, Parts(problem(), 8), Tools(1, Crew(1), no_progress))
