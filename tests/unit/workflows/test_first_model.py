"""What `xylem try` says of `--rerank`; and `--rerank` beside features that are chosen."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.labelled_rows import rows_of

from xylem.base import DEFAULT_COLUMNS, BadParameter, Dataset
from xylem.workflows import first_model, prepared
from xylem.workflows.choose_features import choose_features
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

N_RANKED = 200


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    rows = [{"text": text, "labels": labels} for text, labels in rows_of(300)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_model, "RANKED_ROWS", N_RANKED)


def make(store: Store, data: Path) -> dict[str, Any]:
    return first_model.make_first_model(
        store, "m", data, DEFAULT_COLUMNS, 0, 1, lambda phase, done, total: None
    )


def test_a_first_model_says_what_ranking_again_gains(data: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first, second = (make(store, data)["rerank"] for _ in range(2))
    assert first["rows"] == N_RANKED and first["gained"] >= 0 and first["times_as_long"] > 0
    assert first["gained"] == second["gained"]
    assert store.manifest("m", 1).trainer.name == "label-tree"  # published without a ranker


def test_a_small_file_is_not_ranked_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_model, "RANKED_ROWS", 300)  # a fifth of the 300 rows is held out
    assert make(Store(tmp_path / "store"), data)["rerank"] is None


def test_without_scikit_learn_nothing_is_said_of_ranking(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise BadParameter("fitting a ranker needs scikit-learn")

    monkeypatch.setattr(first_model, "check_installed", missing)
    facts = make(Store(tmp_path / "store"), data)
    assert facts["rerank"] is None and facts["version"] == 1


def test_features_are_chosen_once_for_a_ranker_and_its_folds(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices: list[int] = []

    def choose(dataset: Dataset, *args: Any) -> Any:
        choices.append(dataset.n_rows)
        return choose_features(dataset, *args)

    monkeypatch.setattr(prepared, "choose_features", choose)
    request = TrainRequest(
        trainer="label-tree", data=data, rerank=True, parameters=("features.kind=auto",)
    )
    train_and_publish(Store(tmp_path / "store"), "m", request)
    assert choices == [300]
