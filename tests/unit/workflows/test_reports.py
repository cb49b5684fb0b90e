"""Reports of versions: forests against a slow count, sizes against the arrays, tables and pictures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store.build import store_weights
from model_store.version import model_of
from service.base.errors import BadInput
from service.base.rows import SparseRows
from service.evaluation.model_reports import FLAT_WEIGHT_BYTES, WEIGHT_BYTES, size_report
from service.trainers import TrainingSet, estimate, parse_parameters, size, train
from service.trainers.source import Tools
from service.workflows.charts import _points_of, draw_report
from service.workflows.choose_features import trial_model
from service.workflows.train import version_report
from tests.contract.test_every_trainer import learnable, trained_on
from tests.oracles.problems import to_labels, to_rows
from tests.oracles.routing import leaves_reached, random_decision_forest, whole_rows
from tests.small_models import small_draft

N_LABELS = 5
LINK = "multiway"


@pytest.fixture(scope="module")
def forest() -> Any:
    """Trees, their model, and rows with labels, some of them without."""
    trees, ensemble = random_decision_forest(8, n_trees=3, n_labels=N_LABELS, n_features=20, arity=4)
    draft = small_draft(kind="decision-tree", n_labels=N_LABELS, n_features=20, ensemble=ensemble)
    model = model_of(draft)
    carried = np.random.default_rng(2).random((60, N_LABELS)) < 0.3
    return trees, model, SparseRows(*whole_rows(5, 60, 20), 20), carried


def test_the_criteria_of_a_forest_are_those_of_a_slow_count(forest: Any) -> None:
    trees, model, rows, carried = forest
    report = version_report(model, {"epochs": 3}, TrainingSet(rows, to_labels(carried)), None)
    assert report["training"] == {"epochs": 3}
    assert report["forest"]["rows"] == 60
    for tree, found in zip(trees, report["forest"]["trees"], strict=True):
        counts = np.zeros((len(tree.chunks), N_LABELS))
        for row in range(60):
            own = slice(*rows.indptr[row : row + 2])
            values = dict(zip(rows.indices[own].tolist(), rows.values[own].tolist(), strict=True))
            for leaf in leaves_reached(tree, LINK, values):
                if len(tree.histograms[leaf][0]):
                    counts[leaf] += carried[row]
        weight = counts.sum(axis=1)
        share = counts[weight > 0] / weight[weight > 0, None]
        weight = weight[weight > 0] / weight.sum()
        logs = np.log(share, where=share > 0, out=np.zeros_like(share))
        assert found["shannon"] == pytest.approx(weight @ -(share * logs).sum(axis=1), abs=1e-4)
        assert found["gini"] == pytest.approx(weight @ (share * (1 - share)).sum(axis=1), abs=1e-4)
        assert found["error"] == pytest.approx(weight @ (1 - share.max(axis=1)), abs=1e-4)
        assert found["nodes"] == len(tree.chunks)
        assert found["leaves"] == sum(chunk is None for chunk in tree.chunks)


@pytest.mark.parametrize("name", ["fastxml", "ldsm", "lomtree"])
def test_splits_make_leaves_purer_and_answers_better(name: str) -> None:
    x, y = learnable(200)
    trained = trained_on(name, x, y)
    model = trial_model(trained, y.shape[1], x.shape[1])
    unseen = learnable(80, seed=9)
    test = TrainingSet(to_rows(unseen[0]), to_labels(unseen[1]))
    report = version_report(model, {}, TrainingSet(to_rows(x), to_labels(y)), test)["forest"]
    first, last = report["splits"][0], report["splits"][-1]
    assert first["splits"] == 0
    assert first["error"] == pytest.approx(1 - y.mean(axis=0).max(), abs=1e-4)
    for name_of in ("shannon", "gini", "modified_gini", "error", "test_error"):
        assert last[name_of] < first[name_of]
    for line in report["splits"]:
        assert line["error"] <= line["shannon"] * np.log2(np.e) + 1e-4
    for line in report["depths"]:
        assert 0 <= line["objective"] <= 1 and 0 <= line["smaller_side"] <= 0.5 and 0 <= line["purity"] <= 1


def test_a_report_says_the_test_error_only_of_test_rows(forest: Any) -> None:
    _, model, rows, carried = forest
    sample = TrainingSet(rows, to_labels(carried))
    assert "test_error" not in version_report(model, {}, sample, None)["forest"]["splits"][0]
    same = version_report(model, {}, sample, sample)["forest"]["splits"]
    for line in same:
        assert line["test_error"] == pytest.approx(line["error"], abs=1e-4), "on the training rows they agree"


def test_the_size_of_a_label_tree_is_that_of_its_arrays() -> None:
    x, y = learnable(150)
    parameters = parse_parameters("label-tree", ["leaf_size=2", "arity=2", "prune=0"])
    rows, labels = to_rows(x), to_labels(y)
    trained = train("label-tree", parameters, rows, labels)
    report = size_report(trained.ensemble)
    assert report["weights"] == trained.n_nonzeros
    assert report["bytes"] == sum(array.nbytes for array in trained.ensemble)
    assert report["ovr_bytes"] == 8 * np.count_nonzero(x.any(axis=0)) * y.shape[1]
    assert sum(line["nodes"] for line in report["depths"]) == np.count_nonzero(
        trained.ensemble.node_chunk >= 0
    )
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


def test_a_weight_counts_the_same_before_and_after_a_training() -> None:
    assert (WEIGHT_BYTES, FLAT_WEIGHT_BYTES) == (size.WEIGHT_BYTES, size.FLAT_WEIGHT_BYTES)


def test_pictures_are_drawn_of_what_there_is(forest: Any, tmp_path: Path) -> None:
    _, model, rows, carried = forest
    sample = TrainingSet(rows, to_labels(carried))
    drawn = draw_report(version_report(model, {}, sample, sample), "m@1", tmp_path / "forest")
    assert [file.name for file in drawn] == ["criteria.png", "error.png", "objective.png"]
    depths = [
        {"depth": 0, "nodes": 1, "children": 2, "features_mean": 9.0},
        {"depth": 1, "nodes": 2, "children": 4, "features_mean": 5.0, "alpha": 0.5},
    ]
    drawn += draw_report({"size": {"depths": depths}}, "m@1", tmp_path / "size")
    assert [file.name for file in drawn[3:]] == ["features.png", "alpha.png"]
    updates = [
        {"rows": 10, "labels_moved": 3, "share_moved": 0.3, "levels": [{"level": 0, "share": 0.1}]},
        {"rows": 20, "labels_moved": 1, "share_moved": 0.1, "levels": [{"share": 0.4}, {"share": 0.2}]},
    ]
    curve = draw_report({"training": {"updates": updates}}, "m@1", tmp_path / "learned")
    assert [file.name for file in curve] == ["updates.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in [*drawn, *curve])
    points, names = _points_of(updates)
    assert names == ["J, level 0", "J, level 1", "labels moved"]
    assert [point["J, level 0"] for point in points] == [0.1, 0.4]
    assert np.isnan(points[0]["J, level 1"])
    assert [point["labels moved"] for point in points] == [0.3, 0.1]
    assert draw_report({}, "m@1", tmp_path / "none") == []


def test_without_matplotlib_the_error_says_what_to_install(
    hide_module: Callable[[str], None], tmp_path: Path
) -> None:
    hide_module("matplotlib")
    depths = [{"depth": 0, "features_mean": 9.0}]
    with pytest.raises(BadInput, match=r"expected matplotlib.*xylem-serve\[report\]"):
        draw_report({"size": {"depths": depths}}, "m@1", tmp_path)
