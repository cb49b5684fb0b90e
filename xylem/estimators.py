"""Estimators of scikit-learn over the service's trainers: `pip install 'xylem-serve[sklearn]'`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from xylem.command import refuse_shadows

if TYPE_CHECKING:
    from service.in_memory import InMemoryModel

refuse_shadows()  # here: also a pickle of an estimator imports this before the service


class LabelTreeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A label tree, for many labels a row or one of many classes.

    trees, leaf_size, arity, clustering, cost  as for `xylem train label-tree`; None: its default
    threshold     `predict` gives a row the labels of at least this score, from 0 to 1
    top_r         at most so many labels a row: so many entries a row has what is predicted
    random_state  the seed, an integer
    n_jobs        threads; None or -1: as many as there are cores

    What is predicted of many labels is sparse if `y` was sparse in `fit`: for more than some thousand labels.
    After `fit`: `classes_`, the class of each column; `n_features_in_`.
    """

    def __init__(
        self,
        trees: int | None = None,
        leaf_size: int | None = None,
        arity: int | None = None,
        clustering: str | None = None,
        cost: float | None = None,
        threshold: float = 0.5,
        top_r: int = 100,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.trees = trees
        self.leaf_size = leaf_size
        self.arity = arity
        self.clustering = clustering
        self.cost = cost
        self.threshold = threshold
        self.top_r = top_r
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> Self:
        """Train on a matrix of features, sparse or dense, and the rows' labels.

        y  an indicator matrix, n rows and a column for each label, sparse or dense; or n classes
        """
        from service.in_memory import train_from_memory

        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32)
        self._is_sparse = issparse(y)
        y = y if self._is_sparse else np.asarray(y)
        self._is_multilabel = self._is_sparse or type_of_target(y).startswith("multilabel")
        if self._is_multilabel:
            labels = csr_matrix(y)
            self.classes_ = np.arange(labels.shape[1])
        else:
            y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32)[1]
            check_classification_targets(y)
            self.classes_, codes = np.unique(y, return_inverse=True)
            cells = (np.ones(len(codes), np.float32), (np.arange(len(codes)), codes))
            labels = csr_matrix(cells, shape=(len(codes), len(self.classes_)))
        names = ("trees", "leaf_size", "arity", "clustering", "cost")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        matrix = csr_matrix(X)
        self._model: InMemoryModel = train_from_memory(
            matrix, labels, "label-tree", given, "float32", int(self.random_state), self._threads()
        )
        return self

    def predict(self, X: Any) -> Any:
        """Return an indicator matrix of the labels that reach `threshold`, or the best class of each row."""
        check_is_fitted(self)
        if not self._is_multilabel:
            return self.classes_[self.predict_proba(X).argmax(axis=1)]
        scores = self._scores(X, self.threshold)
        found = csr_matrix((np.ones(len(scores.data), np.int64), scores.indices, scores.indptr), scores.shape)
        return found if self._is_sparse else found.toarray()

    def predict_proba(self, X: Any) -> Any:
        """Return the scores: the best `top_r` labels a row, others 0; of classes all, their sum 1."""
        check_is_fitted(self)
        found = self._scores(X, None)
        if self._is_multilabel:
            return found if self._is_sparse else found.toarray()
        dense = found.toarray().astype(np.float64)
        sums = dense.sum(axis=1, keepdims=True)
        return np.where(sums > 0, dense / np.where(sums > 0, sums, 1), 1 / len(self.classes_))

    def _scores(self, X: Any, threshold: float | None) -> Any:
        """Return the scores of the labels that are found, float32[n, len(classes_)], sparse."""
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        n_labels = len(self.classes_)
        top_r = self.top_r if self._is_multilabel else n_labels
        found = self._model.search(csr_matrix(X), top_r, threshold, self._threads())
        return csr_matrix((found.scores, found.labels, found.ptr), shape=(X.shape[0], n_labels))

    def _threads(self) -> int | None:
        return self.n_jobs if self.n_jobs is not None and self.n_jobs > 0 else None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags
