"""Check copies of models in a process of its own: `python -m tests.helpers.copied_models WHAT
FOLDER`.

It prints "same" if all answers of the copies are as expected. Memory is used and freed in between:
a copy that still referred to its original's arrays would find other bytes there.
"""

import copy
import gc
import multiprocessing
import pickle
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy.sparse
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict

import xylem

TEXTS = ["first word1 one", "second word2 two", "third word1 word2"] * 10
LABELS = [["a"], ["b", "c"], ["a", "c"]] * 10

MODELS: dict[str, Any] = {}
"""The models that a forked process inherits from its parent."""


def estimator_data() -> tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]:
    """Return rows and an indicator matrix of labels, both larger than a page of memory."""
    rng = np.random.default_rng(3)
    X = scipy.sparse.random(200, 300, 0.1, "csr", np.float32, random_state=3)
    Y = rng.random((200, 40)) < 0.05
    Y[np.arange(200), np.arange(200) % 40] = True
    return X, scipy.sparse.csr_matrix(Y.astype(np.int8))


def churn() -> None:
    """Free memory that is no longer referred to, and overwrite it."""
    gc.collect()
    for size in (1, 3, 10, 100, 1000) * 40:
        np.full(size * 64, -1, np.int64)
    gc.collect()


def answers_of(model: Any, rows: Any) -> Any:
    """Return the predictions of a model for rows, as plain values."""
    if isinstance(model, xylem.Model):
        return [list(map(tuple, row)) for row in model.predict(rows, top_r=3, threads=2)]
    return [model.predict(rows).toarray().tolist(), model.predict_proba(rows).toarray().tolist()]


def check(model: Any, rows: Any, expected: Any) -> None:
    """Fail unless the predictions are as expected, twice, with memory overwritten before each."""
    for _ in range(2):
        churn()
        assert answers_of(model, rows) == expected


def check_all(models: dict[str, Any], rows: Any, expected: dict[str, Any]) -> None:
    """Check models by name; if there are none, those that this process has from its parent."""
    for name, model in (models or MODELS).items():
        check(model, rows, expected[name])


def loaded(folder: Path) -> None:
    """Check the models in all files: (model, rows, expected), pickled by pickle or by joblib."""
    files = sorted(folder.iterdir())
    assert files
    for file in files:
        check(*(joblib.load(file) if file.suffix == ".joblib" else pickle.loads(file.read_bytes())))  # noqa: S301


def copied(folder: Path) -> None:
    """Check deep and shallow copies that outlive their originals, and a clone."""
    X, Y = estimator_data()
    for copied_by in (copy.deepcopy, copy.copy, clone):
        original: Any = xylem.LabelTreeClassifier(trees=2).fit(X, Y)
        expected = answers_of(original, X)
        model_copy = copied_by(original)
        del original
        check(model_copy.fit(X, Y) if copied_by is clone else model_copy, X, expected)
    trained = xylem.train(X, Y)
    expected, model_copy = answers_of(trained, X), copy.deepcopy(trained)
    del trained
    check(model_copy, X, expected)
    model_copy.save(folder, "m")
    check(xylem.load(folder, "m"), X, expected)


def in_workers(folder: Path) -> None:
    """Check models in workers of joblib, and of pools that fork and that spawn."""
    X, Y = estimator_data()
    dense = Y.toarray()
    alone = cross_val_predict(xylem.LabelTreeClassifier(), X, dense, cv=3)
    assert np.array_equal(
        cross_val_predict(xylem.LabelTreeClassifier(), X, dense, cv=3, n_jobs=2), alone
    )
    MODELS["estimator"] = xylem.LabelTreeClassifier(trees=2).fit(X, Y)
    MODELS["model"] = xylem.train(X, Y)
    expected = {name: answers_of(model, X) for name, model in MODELS.items()}
    task = joblib.delayed(check_all)(MODELS, X, expected)
    joblib.Parallel(n_jobs=2, max_nbytes=100)([task] * 4)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.starmap(check_all, [({}, X, expected)] * 4)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.starmap(check_all, [(MODELS, X, expected)] * 2)


if __name__ == "__main__":
    {"loaded": loaded, "copied": copied, "in-workers": in_workers}[sys.argv[1]](Path(sys.argv[2]))
    print("same")
