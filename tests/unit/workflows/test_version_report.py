"""Reports of versions: criteria of trees against slow counts, and sizes."""

from typing import Any

import numpy as np
import pytest
from tests.contract.test_every_trainer import learnable, trained_on
from tests.helpers.small_models import small_draft
from tests.oracles.problems import to_labels, to_rows
from tests.oracles.routing import leaves_reached, random_decision_forest, whole_rows

from xylem.base.rows import SparseRows
from xylem.trainers import TrainingSet, estimate, parse_parameters, size, train
from xylem.trainers.source import Tools
from xylem.trainers.tree_criteria import FLAT_WEIGHT_BYTES, WEIGHT_BYTES
from xylem.trainers.tree_reports import size_report
from xylem.workflows.choose_features import trial_model
from xylem.workflows.version_report import version_report
from xylem_store.build import store_weights
from xylem_store.version import model_of

N_LABELS = 5


@pytest.fixture(scope="module")
def forest() -> Any:
    """Trees, their model, rows, and labels, some rows without."""
    trees, ensemble = random_decision_forest(
        8, n_trees=3, n_labels=N_LABELS, n_features=20, arity=4
    )
    draft = small_draft(kind="decision-tree", n_labels=N_LABELS, n_features=20, ensemble=ensemble)
    carried = np.random.default_rng(2).random((60, N_LABELS)) < 0.3
    return trees, model_of(draft), SparseRows(*whole_rows(5, 60, 20), 20), carried


def test_the_criteria_of_a_forest_are_those_of_a_slow_count(forest: Any) -> None:
    trees, model, rows, carried = forest
    sample = TrainingSet(rows, to_labels(carried))
    report = version_report(model, {"epochs": 3}, sample, None)
    assert report["training"] == {"epochs": 3}
    assert report["forest"]["rows"] == 60
    for tree, found in zip(trees, report["forest"]["trees"], strict=True):
        counts = np.zeros((len(tree.chunks), N_LABELS))
        for row in range(60):
            own = slice(*rows.indptr[row : row + 2])
            values = dict(zip(rows.indices[own].tolist(), rows.values[own].tolist(), strict=True))
            for leaf in leaves_reached(tree, "multiway", values):
                if len(tree.histograms[leaf][0]):
                    counts[leaf] += carried[row]
        weight = counts.sum(axis=1)
        share = counts[weight > 0] / weight[weight > 0, None]
        weight = weight[weight > 0] / weight.sum()
        logs = np.log(share, where=share > 0, out=np.zeros_like(share))
        expected = {
            "shannon": weight @ -(share * logs).sum(axis=1),
            "gini": weight @ (share * (1 - share)).sum(axis=1),
            "error": weight @ (1 - share.max(axis=1)),
            "nodes": len(tree.chunks),
            "leaves": sum(chunk is None for chunk in tree.chunks),
        }
        assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-4)
    assert "test_error" not in report["forest"]["splits"][0]
    for line in version_report(model, {}, sample, sample)["forest"]["splits"]:
        assert line["test_error"] == pytest.approx(line["error"], abs=1e-4), (
            "on the training rows they agree"
        )


@pytest.mark.parametrize("name", ["fastxml", "ldsm", "lomtree"])
def test_splits_make_leaves_purer_and_answers_better(name: str) -> None:
    x, y = learnable(200)
    model = trial_model(trained_on(name, x, y), y.shape[1], x.shape[1])
    rows, test = (TrainingSet(to_rows(x), to_labels(y)) for x, y in ((x, y), learnable(80, seed=9)))
    report = version_report(model, {}, rows, test)["forest"]
    first, last = report["splits"][0], report["splits"][-1]
    assert first["splits"] == 0
    assert first["error"] == pytest.approx(1 - y.mean(axis=0).max(), abs=1e-4)
    for name_of in ("shannon", "gini", "modified_gini", "error", "test_error"):
        assert last[name_of] < first[name_of]
    for line in report["splits"]:
        assert line["error"] <= line["shannon"] * np.log2(np.e) + 1e-4
    for line in report["depths"]:
        assert (
            0 <= line["objective"] <= 1
            and 0 <= line["smaller_side"] <= 0.5
            and 0 <= line["purity"] <= 1
        )


def test_the_size_of_a_label_tree_is_that_of_its_arrays() -> None:
    x, y = learnable(150)
    parameters = parse_parameters("label-tree", ["leaf_size=2", "arity=2", "prune=0"])
    rows, labels = to_rows(x), to_labels(y)
    trained = train("label-tree", parameters, rows, labels)
    report = size_report(trained.ensemble)
    assert report["weights"] == trained.n_nonzeros
    assert report["bytes"] == sum(array.nbytes for array in trained.ensemble)
    assert report["ovr_bytes"] == 8 * np.count_nonzero(x.any(axis=0)) * y.shape[1]
    n_inner = np.count_nonzero(trained.ensemble.node_chunk >= 0)
    assert sum(line["nodes"] for line in report["depths"]) == n_inner
    alpha = [line["alpha"] for line in report["depths"][1:]]
    bound = estimate("label-tree", parameters, TrainingSet(rows, labels), Tools())
    assert alpha == pytest.approx(bound["alpha_per_depth"], abs=0.05)
    assert report["weights"] <= bound["nonzeros_bound"]
    flat = bound["bytes_bound"] / bound["ratio_to_ovr"]
    assert flat == pytest.approx(report["ovr_bytes"])
    assert report["ratio_to_ovr"] == pytest.approx(12 * report["weights"] / flat, abs=1e-5)
    assert report["ratio_to_ovr"] <= bound["ratio_to_ovr"], "the same quotient as the bound's"
    assert report["stored_to_ovr"] == pytest.approx(report["bytes"] / flat, abs=1e-5)
    narrow = size_report(store_weights(trained.ensemble, "bfloat16"))
    assert narrow["ratio_to_ovr"] == report["ratio_to_ovr"], "weights are counted, not their bytes"
    assert narrow["stored_to_ovr"] < report["stored_to_ovr"]
    model = trial_model(trained, y.shape[1], x.shape[1])
    assert version_report(model, {}, None, None) == {"size": report}
    assert (WEIGHT_BYTES, FLAT_WEIGHT_BYTES) == (size.WEIGHT_BYTES, size.FLAT_WEIGHT_BYTES)
