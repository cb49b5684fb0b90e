"""A process of its own for tests of copies: `python -m tests.copied_models WHAT FOLDER`.

It prints "same" when every answer of a copy is the one that was written beside it, with memory used
and freed in between, where a copy that still led to its original's arrays would find other bytes.
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
"""The models that a forked process has from its parent."""


def estimator_data() -> tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]:
    """Return rows and an indicator matrix of labels: more than a page of memory holds."""
    rng = np.random.default_rng(3)
    X = scipy.sparse.random(200, 300, 0.1, "csr", np.float32, random_state=3)
    Y = rng.random((200, 40)) < 0.05
    Y[np.arange(200), np.arange(200) % 40] = True
    return X, scipy.sparse.csr_matrix(Y.astype(np.int8))


def churn() -> None:
    """Free what nobody holds, and write over it."""
    gc.collect()
    for size in (1, 3, 10, 100, 1000) * 40:
        np.full(size * 64, -1, np.int64)
    gc.collect()


def answers_of(model: Any, rows: Any) -> Any:
    """Return what a model says of rows, as plain values."""
    if isinstance(model, xylem.Model):
        return [list(map(tuple, row)) for row in model.predict(rows, top_r=3, threads=2)]
    return [model.predict(rows).toarray().tolist(), model.predict_proba(rows).toarray().tolist()]


def check(model: Any, rows: Any, expected: Any) -> None:
    """Fail unless a model says what it should, twice, with memory used in between."""
    for _ in range(2):
        churn()
        assert answers_of(model, rows) == expected


def check_all(models: dict[str, Any], rows: Any, expected: dict[str, Any]) -> None:
    """Check models by name; where there are none, those that this process was forked with."""
    for name, model in (models or MODELS).items():
        check(model, rows, expected[name])


def loaded(folder: Path) -> None:
    """Every file here: (model, rows, what it says of them), pickled by pickle or by joblib."""
    files = sorted(folder.iterdir())
    assert files
    for file in files:
        check(*(joblib.load(file) if file.suffix == ".joblib" else pickle.loads(file.read_bytes())))  # noqa: S301


def copied(folder: Path) -> None:
    """Deep and shallow copies that outlive their originals, and a clone."""
    X, Y = estimator_data()
    for copied_by in (copy.deepcopy, copy.copy, clone):
        original: Any = xylem.LabelTreeClassifier(trees=2).fit(X, Y)
        expected = answers_of(original, X)
        one = copied_by(original)
        del original
        check(one.fit(X, Y) if copied_by is clone else one, X, expected)
    trained = xylem.train(X, Y)
    expected, one = answers_of(trained, X), copy.deepcopy(trained)
    del trained
    check(one, X, expected)
    one.save(folder, "m")
    check(xylem.load(folder, "m"), X, expected)


def in_workers(folder: Path) -> None:
    """Workers of joblib and of both kinds of pools."""
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
