"""Rankers do not learn from what members propose for rows that these were trained on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.datasets_helpers import refused, write_lines

import xylem
from xylem.base.errors import BadParameter
from xylem.base.progress import no_progress
from xylem.datasets.reader import read_dataset
from xylem.vocabulary.combine import CombineRequest, combine_and_publish
from xylem.workflows.evaluate import valid_figures
from xylem.workflows.labelled import read_labelled
from xylem.workflows.part_training import part_trainer
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store


def noisy_rows(n: int, seed: int) -> list[dict[str, Any]]:
    """Rows whose label is that of most of their words, but for every fifth."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        label = int(draw.integers(8))
        sources = np.where(draw.random(4) < 0.5, label, draw.integers(8, size=4)).tolist()
        words = [f"w{source}x{draw.integers(5)}" for source in sources]
        noise = [f"n{word}" for word in draw.integers(60, size=4)]
        shown = label if draw.random() < 0.8 else int(draw.integers(8))
        rows.append({"text": " ".join(words + noise), "labels": [f"l{shown}"]})
    return rows


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree, and a member that memorises: its leaves have one row each."""
    home = tmp_path_factory.mktemp("folds")
    train = write_lines(home / "train.jsonl", noisy_rows(600, 1))
    write_lines(home / "unseen.jsonl", noisy_rows(2000, 2))
    write_lines(home / "half.jsonl", noisy_rows(600, 1)[:100] + noisy_rows(100, 3))
    store = Store(home / "store")
    train_and_publish(store, "tree", TrainRequest(trainer="label-tree", data=train))
    leaves = TrainRequest(trainer="fastxml", data=train, parameters=("trees=1", "max_leaf=1"))
    train_and_publish(store, "memory", leaves)
    return home


def combined(home: Path, data: str, *members: str, folds: bool) -> tuple[dict[str, Any], float]:
    """Return the report of a combination, and its P@1 of unseen rows."""
    store = Store(home / "store")
    request = CombineRequest(
        [(member, 1) for member in members],
        home / data,
        candidates=8,
        beam_width=10,
        trainer_of=part_trainer if folds else None,
    )
    report = combine_and_publish(store, "both", request)
    model = store.open("both")
    unseen = read_labelled(model, home / "unseen.jsonl", no_progress)
    return report, valid_figures(model, unseen, 1, no_progress)[0]["P@1"]


def test_a_member_that_memorises_is_not_believed(home: Path) -> None:
    _, expected = combined(home, "train.jsonl", "tree", folds=True)
    both, measured = combined(home, "train.jsonl", "tree", "memory", folds=True)
    assert abs(measured - expected) <= 0.5
    assert abs(both["combined"]["P@1"] - measured) < 5 and not both["warnings"]
    assert both["rows"] == 600 and both["members"]["memory@1"]["P@1"] < 60
    seen, worse = combined(home, "train.jsonl", "tree", "memory", folds=False)
    assert seen["combined"]["P@1"] > 80 and worse < expected - 5
    assert [warning.partition(":")[0] for warning in seen["warnings"]] == [
        f"{name}@1 was trained on 600 of the 600 rows" for name in ("tree", "memory")
    ]
    assert "--folds" in seen["warnings"][0]


def test_rows_that_a_member_has_seen_are_left_out(home: Path) -> None:
    report, _ = combined(home, "half.jsonl", "tree", "memory", folds=False)
    assert report["rows"] == 100
    assert report["warnings"] == [
        f"{name}@1 was trained on 100 of the 200 rows: they are left out"
        for name in ("tree", "memory")
    ]
    with refused(BadParameter, r"folds: expected a member that was trained on half\.jsonl"):
        combined(home, "half.jsonl", "tree", folds=True)


def test_models_in_this_process_are_trained_by_folds_too() -> None:
    rows = noisy_rows(200, 4)
    texts, labels = ([row[name] for row in rows] for name in ("text", "labels"))
    tree = xylem.train(texts, labels, progress=False)
    options: dict[str, Any] = {"beam_width": 10, "progress": False}
    by_folds = xylem.combine([tree], None, texts, labels, folds=True, **options).report
    seen = xylem.combine([tree], None, texts, labels, **options).report
    figures = [report["combined"]["combined"]["P@1"] for report in (by_folds, seen)]
    assert figures[1] > figures[0] + 10
    assert "warnings" not in by_folds and "--folds" in seen["warnings"][0]


def test_members_of_a_fold_list_only_labels_of_their_rows(tmp_path: Path) -> None:
    lines = [{"text": f"w{i % 3}", "labels": [f"l{i % 3}"]} for i in range(9)]
    dataset = read_dataset(write_lines(tmp_path / "rows.jsonl", lines))
    part = dataset.take(np.array([1, 2, 4])).with_occurring_labels()
    assert (part.names, part.labels.n_labels) == (["l1", "l2"], 2)
    assert part.labels.indices.tolist() == [0, 1, 0]
