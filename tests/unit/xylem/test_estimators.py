"""The estimator keeps scikit-learn's rules, and answers as the model within does."""

import sys

import numpy as np
import pytest

pytest.importorskip("sklearn")
import scipy.sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

import xylem

COLOURS = ["red", "green", "blue", "white", "black"]


def texts_and_labels(n: int) -> tuple[list[str], scipy.sparse.csr_matrix]:
    pairs = [(i % 5, i * i % 5) for i in range(n)]
    texts = [f"{COLOURS[a]} {COLOURS[b]} word{i % 7}" for i, (a, b) in enumerate(pairs)]
    labels = np.zeros((n, 5), np.int8)
    for i, pair in enumerate(pairs):
        labels[i, list(pair)] = 1
    return texts, scipy.sparse.csr_matrix(labels)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_s_own_checks() -> None:
    from unittest import SkipTest

    n_passed, skipped = 0, []
    for estimator, check in estimator_checks_generator(xylem.LabelTreeClassifier()):
        try:
            check(estimator)
            n_passed += 1
        except SkipTest as reason:
            skipped.append(str(reason))
    assert n_passed >= 50 and len(skipped) <= 4, skipped


def test_many_labels_in_a_pipeline() -> None:
    texts, labels = texts_and_labels(100)
    pipeline = make_pipeline(TfidfVectorizer(), xylem.LabelTreeClassifier(trees=2, top_r=2, random_state=3))
    found = pipeline.fit(texts, labels).predict(texts)
    assert scipy.sparse.issparse(found) and found.shape == (100, 5)
    assert (found != labels).nnz == 0
    scores = pipeline.predict_proba(texts)
    assert scores.nnz <= 200 and 0 < scores.data.min() <= scores.data.max() <= 1
    dense = clone(pipeline).fit(texts, labels.toarray())
    assert np.array_equal(dense.predict(texts), found.toarray())
    rows = pipeline[0].transform(texts)
    model = xylem.train(rows, labels, trees=2, seed=3)
    wanted = [{(int(label), score) for label, score in row} for row in model.predict(rows, top_r=2)]
    assert [{(i, float(row[0, i])) for i in row.indices} for row in scores] == wanted


def test_classes_are_cross_validated() -> None:
    texts = [f"{COLOURS[i % 5]} word{i % 7}" for i in range(100)]
    classes = [COLOURS[i % 5] for i in range(100)]
    rows = TfidfVectorizer().fit_transform(texts)
    assert cross_val_score(xylem.LabelTreeClassifier(), rows, classes, cv=3).min() == 1
    estimator = xylem.LabelTreeClassifier().fit(rows, classes)
    assert estimator.classes_.tolist() == sorted(COLOURS)
    assert estimator.predict_proba(rows).sum(axis=1) == pytest.approx(np.ones(100))


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "xylem.estimators", raising=False)
    monkeypatch.delitem(vars(xylem), "LabelTreeClassifier", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'xylem-serve\[sklearn\]'"):
        _ = xylem.LabelTreeClassifier
