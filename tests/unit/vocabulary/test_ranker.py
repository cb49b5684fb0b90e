"""Rankers that scikit-learn fits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from sklearn.ensemble import HistGradientBoostingClassifier

from xylem.vocabulary.ranker import Candidates, fit_ranker, rank_by_folds


def test_trees_are_fitted_and_asked_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several would wait for each other at each of the trees, spinning on a busy machine."""
    threads: dict[str, set[int]] = {"fit": set(), "decision_function": set()}

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any) -> Any:
            threads[name] |= {
                library["num_threads"]
                for library in threadpoolctl.threadpool_info()
                if library["user_api"] == "openmp"
            }
            return call(*arguments)

        return count

    for name in threads:
        method = getattr(HistGradientBoostingClassifier, name)
        monkeypatch.setattr(HistGradientBoostingClassifier, name, counted(name, method))
    n_rows = 60
    are_true = np.arange(3 * n_rows) % 3 == 0
    candidates = Candidates(
        ptr=np.arange(0, 3 * n_rows + 1, 3),
        labels=np.tile(np.arange(3, dtype=np.int32), n_rows),
        features=are_true[:, None].astype(np.float32),
        are_true=are_true,
    )
    with threadpoolctl.threadpool_limits(2):
        fit_ranker("boosted", candidates, np.arange(n_rows), 0)
        of_true = rank_by_folds("boosted", candidates, 0)[are_true]
    assert threads == {"fit": {1}, "decision_function": {1}}
    assert (of_true > 0).all()
