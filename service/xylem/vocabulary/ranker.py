"""The ranker of a combined version: scikit-learn fits it to candidates of labelled rows.

It is stored as arrays.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadData, BadParameter, LabelRows, OnProgress, offsets
from xylem.engine import CombinedPredictor
from xylem.evaluation import Labelled, PredictedRows, mark_true, ranks_of, row_sums, rows_of
from xylem_store import F32, F64, I32, I64, Bools, Ranker

# Rows are measured with a ranker that was fitted to the other folds.
FOLDS = 5

# Fewer rows are refused.
ROWS_MIN = 30

# From this many rows on boosted trees are the default, for fewer a linear ranker.
BOOSTED_ROWS = 100

# Near rows are kept if P@1 or P@5 of held-out rows is greater by at least this, in percent.
GAIN_MIN = 0.1

# The number of labels of a row that are measured.
TOP = 10

_BOOSTED = {
    "learning_rate": 0.05,
    "max_iter": 200,
    "max_leaf_nodes": 8,
    "min_samples_leaf": 20,
    "l2_regularization": 1.0,
    "max_features": 0.5,
    "early_stopping": False,
}
_BOOSTED_MANY_ROWS = {
    "learning_rate": 0.1,
    "max_iter": 100,
    "max_leaf_nodes": 16,
    "min_samples_leaf": 100,
}

# From this many rows on there are fewer trees, and they have more leaves.
#
# This was chosen by held-out rows of two sets of training rows. 200 trees with half the learning
# rate gain at most 0.1 P@1 there, and take twice as long, also to answer.
MANY_ROWS = 2000

# allowed distance of the arrays' margins from scikit-learn's: float32 rounds them
_MARGIN_TOLERANCE = 1e-3

# The number of candidates whose margins are compared with scikit-learn's.
#
# It is enough to see other trees, and takes a second; all candidates took longer than the fit.
CHECKED_CANDIDATES = 10_000


class Candidates(NamedTuple):
    """The candidates of n rows: those of row i are at ptr[i] .. ptr[i + 1] - 1.

    ptr       int64[n + 1]
    labels    int32[m]
    features  float32[m, F]
    are_true  bool[m]
    """

    ptr: I64
    labels: I32
    features: F32
    are_true: Bools


def candidates_of(
    predictor: CombinedPredictor, labelled: Labelled, on_progress: OnProgress
) -> Candidates:
    """Return the candidates of labelled rows. Cost: that of answering the rows."""
    labels = []
    features = []
    for row in range(labelled.n_rows):
        on_progress("candidates", row, labelled.n_rows)
        row_candidates = predictor.candidates(labelled.rows, row)
        labels.append(row_candidates[0])
        features.append(row_candidates[1])
    on_progress("candidates", labelled.n_rows, labelled.n_rows)
    ptr = offsets(map(len, labels))
    joined = np.concatenate(labels)
    return Candidates(
        ptr,
        joined,
        np.concatenate(features),
        mark_true(PredictedRows(ptr, joined), labelled.labels),
    )


def fit_ranker(kind: str, candidates: Candidates, rows: I64, seed: int) -> Ranker:
    """Return the ranker fitted to some rows' candidates: "boosted" or "linear".

    Raises BadParameter if scikit-learn is not installed, BadData if no candidate is true, or all
    are. Deterministic.
    """
    checked = candidates.features[:CHECKED_CANDIDATES]
    # one thread: scikit-learn divides the rows anew for each of some hundred trees, in fits and in
    # margins, and on a busy machine its threads would wait for each other
    with _sklearn("threadpoolctl").threadpool_limits(1):
        model = _fit(kind, candidates, rows, seed)
        margins = model.decision_function(checked)
    ranker = _ranker_of_trees(model) if kind == "boosted" else _linear_ranker(model)
    worst = float(np.abs(margins_of(ranker, checked) - margins).max())
    if worst > _MARGIN_TOLERANCE:  # its trees' fields are not a public interface
        raise BadParameter(
            "combine: expected trees as scikit-learn 1.6 to 1.9 has them, found others, whose "
            f"margins are {worst:.3g} from its own"
        )
    return ranker


def _fit(kind: str, candidates: Candidates, rows: I64, seed: int) -> Any:
    """Return an estimator of scikit-learn with a decision function. Raises as `fit_ranker`."""
    is_chosen = np.zeros(len(candidates.ptr) - 1, np.bool_)
    is_chosen[rows] = True
    of_rows = is_chosen[rows_of(candidates.ptr)]
    x = candidates.features[of_rows]
    y = candidates.are_true[of_rows]
    if y.all() or not y.any():
        raise BadData(
            "combine: expected rows of which some candidates are true, and others not, found "
            f"{y.sum()} true ones among {len(y)} candidates of {len(rows)} rows"
        )
    if kind == "boosted":
        options = _BOOSTED | (_BOOSTED_MANY_ROWS if len(candidates.ptr) > MANY_ROWS else {})
        model = _sklearn("sklearn.ensemble").HistGradientBoostingClassifier(
            **options, random_state=seed
        )
    else:
        model = _sklearn("sklearn.pipeline").make_pipeline(
            _sklearn("sklearn.preprocessing").StandardScaler(),
            _sklearn("sklearn.linear_model").LogisticRegression(max_iter=1000, random_state=seed),
        )
    return model.fit(x, y)


def rank_by_folds(kind: str, candidates: Candidates, seed: int) -> F64:
    """Return the margin of each candidate by a ranker fitted to the other folds, float64[m].

    The folds divide the rows, and are drawn by the seed. Of many rows there are two: five would
    take four times as long, and half of many rows is enough to see what a ranker gains.
    """
    n_rows = len(candidates.ptr) - 1
    n_folds = 2 if n_rows > MANY_ROWS else FOLDS
    fold = np.random.default_rng(seed).permutation(n_rows) % n_folds
    margins = np.empty(len(candidates.labels))
    of_candidate = fold[rows_of(candidates.ptr)]
    with _sklearn("threadpoolctl").threadpool_limits(1):
        for number in range(n_folds):
            model = _fit(kind, candidates, np.flatnonzero(fold != number), seed)
            held_out = of_candidate == number
            # OpenBLAS may report an invalid operation in lanes that it does not use; scikit-learn
            # has checked that all numbers are finite
            with np.errstate(invalid="ignore"):
                margins[held_out] = model.decision_function(candidates.features[held_out])
    return margins


def margins_of(ranker: Ranker, x: F32) -> F64:
    """Return the ranker's margins of candidates.

    They are added up as `xylem.engine.kernels.search.combined` does.
    """
    margins: F64 = x.astype(np.float64) @ ranker.linear[:-1] + ranker.linear[-1]
    rows = np.arange(len(x))
    for root in ranker.tree_ptr[:-1].tolist():
        node = np.full(len(x), root)
        while True:
            is_right = x[rows, ranker.feature[node]] > ranker.threshold[node]
            next_node = np.where(ranker.child[node] == node, node, ranker.child[node] + is_right)
            if (next_node == node).all():
                break
            node = next_node
        margins += ranker.value[node]
    return margins


def precisions(candidates: Candidates, margins: F64) -> dict[str, float]:
    """Return P@1, P@3 and P@5 of rows ranked by margins, in percent.

    Among equal margins the first candidate comes first.
    """
    n_rows = len(candidates.ptr) - 1
    place = ranks_of(candidates.ptr)
    hits = candidates.are_true[np.lexsort((-margins, rows_of(candidates.ptr)))]
    return {
        f"P@{k}": round(float(hits[place < k].sum()) * 100 / (k * n_rows), 2) for k in (1, 3, 5)
    }


def gain_of(alone: dict[str, float], ranked: dict[str, float], n_rows: int) -> dict[str, Any]:
    """Return the report on a re-ranking: whether it is "kept", the rows, and both precisions."""
    gain = max(round(ranked[name] - alone[name], 2) for name in ("P@1", "P@5"))
    return {"kept": gain >= GAIN_MIN, "rows": n_rows, "alone": alone, "ranked": ranked}


def _linear_ranker(model: Any) -> Ranker:
    """Return the ranker of a scaler and a logistic regression: the scales go into the weights."""
    scaler, regression = model[0], model[1]
    weights = regression.coef_[0] / scaler.scale_
    return _ranker(np.append(weights, regression.intercept_[0] - weights @ scaler.mean_), [])


def _ranker_of_trees(model: Any) -> Ranker:
    constant = np.zeros(model.n_features_in_ + 1)
    constant[-1] = float(np.ravel(model._baseline_prediction)[0])
    return _ranker(constant, [predictor.nodes for (predictor,) in model._predictors])


def _ranker(linear: F64, trees: list[NDArray[Any]]) -> Ranker:
    """Return a ranker with scikit-learn's trees, renumbered so that siblings follow each other."""
    parts: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("feature", "threshold", "child", "value")
    }
    sizes = [0]
    first = 0
    for nodes in trees:
        order = _by_levels(nodes)
        place = np.empty(len(nodes), np.int64)
        place[order] = np.arange(len(nodes))
        ordered = nodes[order]
        is_leaf = ordered["is_leaf"].astype(np.bool_)
        child = np.where(
            is_leaf, np.arange(len(ordered)), place[np.where(is_leaf, 0, ordered["left"])]
        )
        threshold = ordered["num_threshold"].astype(np.float32)
        # rounded down: a float32 is above the float64 exactly if it is above this float32
        above = threshold.astype(np.float64) > ordered["num_threshold"]
        threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
        parts["feature"].append(np.where(is_leaf, 0, ordered["feature_idx"]))
        parts["threshold"].append(np.where(is_leaf, 0, threshold))
        parts["child"].append(child + first)
        parts["value"].append(np.where(is_leaf, ordered["value"], 0))
        first += len(nodes)
        sizes.append(first)

    def joined(name: str, dtype: type[np.generic]) -> NDArray[Any]:
        return np.concatenate([np.empty(0, dtype), *parts[name]]).astype(dtype)

    return Ranker(
        linear=linear.astype(np.float32),
        tree_ptr=np.array(sizes, np.int32),
        feature=joined("feature", np.int32),
        threshold=joined("threshold", np.float32),
        child=joined("child", np.int32),
        value=joined("value", np.float32),
    )


def _by_levels(nodes: NDArray[Any]) -> list[int]:
    """Return the nodes of a tree level by level from the root, left children before right ones."""
    order = [0]
    for i in order:  # it grows meanwhile
        node = nodes[i]
        if not node["is_leaf"]:
            order += [int(node["left"]), int(node["right"])]
    return order


def check_installed() -> None:
    """Raise BadParameter if scikit-learn, which fits rankers, is not installed."""
    _sklearn("sklearn.ensemble")


def _sklearn(module: str) -> Any:
    """Return a module of scikit-learn. Raises BadParameter if it is not installed."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BadParameter(
            f"fitting a ranker needs scikit-learn: pip install 'xylem-serve[sklearn]' ({error})"
        ) from None


def ranking_figures(ranked: PredictedRows, labels: LabelRows, unknown: I32) -> dict[str, float]:
    """Return P@1, P@3, P@5, F1@5 and nDCG@10 of rankings, in percent.

    F1@5 is the mean over the rows of F1 of the first five labels, as `annif eval` computes it;
    nDCG@10 is that of the first ten, divided by the gain that a row's labels could have. Labels
    that the model does not know count as missed.
    """
    sums, _ = row_sums(ranked, labels, unknown, TOP)
    n_true = np.diff(labels.indptr) + unknown
    n_found = np.minimum(np.diff(ranked.ptr), 5)
    of_rows = {f"P@{k}": sums.hits[:, k - 1] / k for k in (1, 3, 5)}
    of_rows["F1@5"] = 2 * sums.hits[:, 4] / np.maximum(n_found + n_true, 1)
    of_rows["nDCG@10"] = sums.gain[:, TOP - 1] / sums.ideal[:, TOP - 1]
    return {name: 100.0 * float(values.mean()) for name, values in of_rows.items()}


def best_of(candidates: Candidates, margins: F64) -> PredictedRows:
    """Return the first TOP candidates of each row by their margins, of equals the smaller label."""
    order = np.lexsort((candidates.labels, -margins, rows_of(candidates.ptr)))
    return PredictedRows(
        offsets(np.minimum(np.diff(candidates.ptr), TOP)),
        candidates.labels[order[ranks_of(candidates.ptr) < TOP]],
    )
