"""Estimators of scikit-learn for the trainers of xylem: `pip install 'xylem-serve[sklearn]'`."""

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

if TYPE_CHECKING:
    from xylem.python.model import Model


AUTO = "auto"
THRESHOLD = 0.5  # the threshold if there are too few rows to choose one
ROWS_MIN = 50

# One of five parts of the rows is held out to choose the threshold, if there are at least
# ROWS_MIN rows.
HELD_OUT_PARTS = 5


class LabelTreeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A label tree, for rows with any number of labels, or with one of many classes.

    trees, leaf_size, arity, clustering, cost  as for `xylem train label-tree`; None: its default
    threshold     `predict` returns the labels with at least this score, from 0 to 1. "auto": the
                  threshold, one for all labels, that has the best micro-F on a fifth of the rows;
                  a second model is trained without them, so that `fit` takes nearly twice as long.
                  With fewer than 50 rows it is 0.5. With one class for each row there is no
                  threshold
    top_r         the most labels that are predicted for a row
    random_state  the seed, an integer
    n_jobs        the number of threads; None or -1: the number of cores

    With many labels, predictions are sparse if `y` was sparse in `fit`: use a sparse `y` for more
    than some thousand labels. `fit` sets `classes_`, the class of each column; `n_features_in_`;
    `threshold_`.
    """

    def __init__(
        self,
        trees: int | None = None,
        leaf_size: int | None = None,
        arity: int | None = None,
        clustering: str | None = None,
        cost: float | None = None,
        threshold: float | Literal["auto"] = "auto",
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on a matrix of features, sparse or dense, and the rows' labels.

        y              an indicator matrix with n rows and a column for each label, sparse or dense;
                       or n classes
        sample_weight  the weight of each row; None: all are 1. A threshold is chosen on held-out
                       rows of which each counts once
        """
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
            labels = csr_matrix(
                (np.ones(len(codes), np.float32), (np.arange(len(codes)), codes)),
                shape=(len(codes), len(self.classes_)),
            )
        matrix = csr_matrix(X)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, matrix)
        self.threshold_: Any = THRESHOLD
        if self._is_multilabel:
            self.threshold_ = (
                self._threshold(matrix, labels, weights)
                if self.threshold == AUTO
                else self.threshold
            )
        self._model = self._train(matrix, labels, weights)
        return self

    def _train(self, matrix: csr_matrix, labels: csr_matrix, weights: Any) -> "Model":
        from xylem.python.making import train

        values = {
            name: getattr(self, name)
            for name in ("trees", "leaf_size", "arity", "clustering", "cost")
        }
        return train(
            matrix,
            labels,
            seed=int(self.random_state),
            threads=self._threads(),
            sample_weight=weights,
            progress=False,
            **{name: value for name, value in values.items() if value is not None},
        )

    def _threshold(self, matrix: csr_matrix, labels: csr_matrix, weights: Any) -> float:
        """Return the threshold with the best micro-F on rows that a trial model is not trained on.

        Returns THRESHOLD if there are too few rows, or if either part of them has no labels.
        """
        n_rows = matrix.shape[0]
        order = np.random.default_rng(int(self.random_state)).permutation(n_rows)
        held_out_rows = np.sort(order[: n_rows // HELD_OUT_PARTS])
        training_rows = np.sort(order[n_rows // HELD_OUT_PARTS :])
        if n_rows < ROWS_MIN or not labels[held_out_rows].nnz or not labels[training_rows].nnz:
            return THRESHOLD
        trial = self._train(
            matrix[training_rows],
            labels[training_rows],
            None if weights is None else weights[training_rows],
        )
        return trial._best_threshold(
            matrix[held_out_rows], labels[held_out_rows], self.top_r, self._threads()
        )

    def predict(self, X: Any) -> Any:
        """Return an indicator matrix of the labels with at least the score `threshold_`.

        With classes, return the best class of each row.
        """
        check_is_fitted(self)
        if not self._is_multilabel:
            return self.classes_[self.predict_proba(X).argmax(axis=1)]
        scores = self._scores(X, self.threshold_)
        indicator = csr_matrix(
            (np.ones(len(scores.data), np.int64), scores.indices, scores.indptr), scores.shape
        )
        return indicator if self._is_sparse else indicator.toarray()

    def predict_proba(self, X: Any) -> Any:
        """Return the scores of the best `top_r` labels of each row; other labels have 0.

        With classes, return the scores of all classes, scaled so that their sum is 1.
        """
        check_is_fitted(self)
        scores = self._scores(X, None)
        if self._is_multilabel:
            return scores if self._is_sparse else scores.toarray()
        dense = scores.toarray().astype(np.float64)
        sums = dense.sum(axis=1, keepdims=True)
        return np.where(sums > 0, dense / np.where(sums > 0, sums, 1), 1 / len(self.classes_))

    def _scores(self, X: Any, threshold: float | None) -> Any:
        """Return the scores of the predicted labels, float32[n, len(classes_)], sparse."""
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        n_labels = len(self.classes_)
        predictions = self._model._search(
            csr_matrix(X),
            self.top_r if self._is_multilabel else n_labels,
            threshold,
            self._threads(),
        )
        return csr_matrix(
            (predictions.scores, predictions.labels, predictions.ptr), shape=(X.shape[0], n_labels)
        )

    def _threads(self) -> int | None:
        return self.n_jobs if self.n_jobs is not None and self.n_jobs > 0 else None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags
