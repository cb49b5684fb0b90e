"""What a training is said to take at most before it begins: for every trainer, and by hand."""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service import cli
from service.rows import LabelRows, SparseRows
from service.trainers import Trained, parse_parameters, train
from service.trainers.bounds import plan_within
from service.trainers.label_tree import LABEL_TREE
from service.trainers.ovr import OVR
from service.trainers.registry import TRAINERS
from service.trainers.source import Plan
from service.trainers.spec import TrainingSet
from tests.oracles.problems import random_labels, random_rows, to_labels, to_rows

VARIANTS = [
    *((name, ()) for name in TRAINERS),
    ("label-tree", ("leaf_size=5", "arity=4", "trees=2", "prune=0")),
    ("label-tree", ("clustering=kmeans", "leaf_size=5", "arity=4", "prune=0")),
    ("plt", ("leaf_size=1", "arity=2", "prune=0")),
    ("plt", ("tree=random", "arity=3", "prune=0")),
    ("plt", ("tree=huffman", "arity=2", "prune=0")),
    ("plt", ("solver=sgd", "epochs=2", "prune=0")),
    ("ldsm", ("rerank=yes", "prune=0", "trees=2")),
    ("fastxml", ("cost=100", "max_leaf=1", "trees=3")),
    *(("huffman-tree", (f"tree={tree}", "arity=3")) for tree in ("kmeans", "clustered", "flat")),
    ("huffman-tree", ("arity=2", "dim=3", "optimiser=adagrad")),
    ("learned-tree", ("statistics=paths", "arity=2", "slack=0")),
]
"""Trainers and parameters; no test may hold for the default trees alone."""


def ids(variant: Any) -> str:
    return ",".join([variant[0], *variant[1]])


def data_of(shape: str) -> tuple[SparseRows, LabelRows]:
    """Rows and labels of awkward shapes."""
    rng = np.random.default_rng(4)
    if shape == "one":
        return to_rows(np.ones((1, 3))), to_labels(np.ones((1, 1), bool))
    n_rows, n_features, n_labels, density = {
        "usual": (300, 60, 40, 0.2),
        "wide": (40, 5000, 30, 0.01),
        "many labels": (60, 20, 200, 0.5),
    }[shape]
    rows = random_rows(rng, n_rows, n_features, density)
    return rows, random_labels(rng, n_rows, n_labels, 0.1)


def planned(name: str, items: Any, data: Any, threads: int = 1) -> tuple[list[Plan], Trained]:
    plans: list[Plan] = []
    few = [item for item in ("trees=3",) if name in ("fastxml", "pfastrexml", "ldsm")]
    items = [*(item for item in few if not any("trees" in other for other in items)), *items]
    if name == "lomtree":
        items = [*items, "memory_mb=4"]
    trained = train(name, parse_parameters(name, items), *data, 1, threads, on_plan=plans.append)
    return plans, trained


def size_of(trained: Trained) -> int:
    return sum(np.asarray(array).nbytes for array in [*trained.ensemble, *trained.extra.values()])


@pytest.mark.parametrize("shape", ["usual", "wide", "many labels", "one"])
@pytest.mark.parametrize("variant", VARIANTS, ids=ids)
def test_no_training_takes_more_than_was_said(variant: Any, shape: str) -> None:
    data = data_of(shape)
    plans, trained = planned(*variant, data)
    assert len(plans) == 1
    plan = plans[0]
    assert plan.rows == data[0].n_rows
    assert trained.n_nonzeros <= plan.weights
    assert size_of(trained) <= plan.model_bytes
    assert plan.steps > 0
    assert plan.epochs > 0


@pytest.mark.parametrize("name", ["label-tree", "ovr", "plt", "fastxml", "pfastrexml", "ldsm", "lomtree"])
def test_memory_stays_within_what_was_said(name: str) -> None:
    """As far as Python allocates it; kernels allocate what their docstrings say."""
    data = data_of("usual")
    planned(name, (), data)  # compiles
    tracemalloc.start()
    try:
        plans, _ = planned(name, (), data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= plans[0].training_bytes + 2 * plans[0].model_bytes + (1 << 20)


def test_the_bound_of_flat_one_vs_rest_by_hand() -> None:
    x = np.zeros((4, 6))
    x[0, :3] = x[1, 2:5] = x[2, 1] = 1
    y = np.zeros((4, 3), bool)
    y[0, 0] = y[1, :2] = y[2, 2] = True
    plan = plan_within(
        OVR.bound, parse_parameters("ovr", ["max_epochs=7"]), TrainingSet(to_rows(x), to_labels(y)), 1
    )
    # 7 values meet 3 children 7 times; clustering is bounded as for a tree: 20 rounds, 16, 3 + 2 * 3 + 1.
    assert plan.steps == 7 * 7 * 3 + 20 * 16 * 10
    assert plan.weights == 5 * 3
    assert (plan.rows, plan.epochs, plan.capped) == (4, 7, False)


def test_more_threads_take_more_memory_and_longer_trainings_more_steps() -> None:
    data = TrainingSet(*data_of("usual"))
    parameters = parse_parameters("label-tree", [])
    one, two = (plan_within(LABEL_TREE.bound, parameters, data, threads) for threads in (1, 2))
    assert one.training_bytes < two.training_bytes
    assert one.steps == two.steps
    longer = plan_within(LABEL_TREE.bound, parse_parameters("label-tree", ["max_epochs=200"]), data, 1)
    assert longer.steps > one.steps


@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_says_it_before_the_training(
    as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.txt"
    file.write_text("4 3 2\n0 0:1 1:0.5\n1 1:1\n0 0:1\n1 2:1\n")
    store = str(tmp_path / "store")
    arguments = ["xylem", "train", "ovr", "--data", str(file), "--model", "m", "--store", store]
    monkeypatch.setattr(sys, "argv", [*arguments, "--json"] if as_json else arguments)
    assert cli.run() == 0
    said = capfd.readouterr()
    if as_json:
        plan, report = map(json.loads, said.out.splitlines())
        assert (plan["plan"]["rows"], report["model"]) == (4, "m")
        assert said.err == ""
    else:
        assert "Training on 4 rows takes at most 100 passes" in said.err
        assert said.err.count(" MiB") == 2
