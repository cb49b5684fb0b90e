"""Calibrated scores: the map rises, thresholds go back through
it, and every search answers with it.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.small_models import (
    calibrated_draft,
    random_calibration,
    random_rerank,
    small_draft,
)
from tests.oracles.trees import random_rows

from xylem.base.rows import SparseRows
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.kernels.search.calibrated import calibrate_scores, log_reaching
from xylem.engine.options import PredictOptions
from xylem_store.compiled.decorators import kernel
from xylem_store.extras import Calibration, check_calibration
from xylem_store.version import model_of

STEP = st.floats(1e-6, 1.0)


def apply(x: Any, y: Any, scores: Any, out: Any) -> None:
    calibrate_scores((x, y), scores, out)


@kernel
def invert(x: Any, y: Any, thresholds: Any, out: Any) -> None:
    for i in range(len(thresholds)):
        out[i] = log_reaching(x, y, thresholds[i])


@kernel
def exp_of(x: Any, y: Any, logs: Any, out: Any) -> None:
    for i in range(len(logs)):
        out[i] = np.exp(logs[i])


def through(function: Any, calibration: Any, values: Any) -> Any:
    values = np.asarray(values, np.float32)
    out = np.empty(len(values), np.float32)
    function(calibration.x, calibration.y, values, out)
    return out


@st.composite
def calibrations(draw: Any) -> Any:
    steps = draw(st.lists(st.tuples(STEP, STEP), min_size=1, max_size=40))
    x, y = (np.cumsum([0.0, *column]) for column in zip(*steps, strict=True))
    most = draw(st.floats(0.01, 1.0))
    found = Calibration((x / x[-1]).astype(np.float32), (most * y / y[-1]).astype(np.float32))
    rises = all((np.diff(values) > 0).all() for values in found)
    return found if rises else random_calibration(len(steps))


@settings(max_examples=200)
@given(calibration=calibrations(), seed=st.integers(0, 2**32))
def test_the_map_rises_and_thresholds_go_back_through_it(calibration: Any, seed: int) -> None:
    check_calibration(calibration)
    rng = np.random.default_rng(seed)
    x, y = calibration
    near = [np.nextafter(x, np.float32(side)) for side in (-1.0, 2.0)]
    scores = np.sort(np.concatenate([x, *near, rng.random(200), 10.0 ** -rng.uniform(0, 38, 50)]))
    scores = np.clip(scores, 0, 1).astype(np.float32)
    found = through(apply, calibration, scores)
    assert (np.diff(found) >= 0).all()
    assert found[0] >= 0
    assert found[-1] == y[-1]
    assert through(apply, calibration, x).tolist() == y.tolist()
    slow = np.interp(scores.astype(np.float64), x.astype(np.float64), y.astype(np.float64))
    assert np.allclose(found, slow, rtol=1e-6, atol=1e-12)
    thresholds = np.concatenate([y, found, rng.random(50), [0.0, 1.0]]).astype(np.float32)
    logs = through(invert, calibration, thresholds)
    for threshold, log in zip(thresholds, logs, strict=True):
        if threshold == 0:
            assert log == -np.inf
        elif threshold > y[-1]:
            assert log == np.inf
        else:
            own = through(exp_of, calibration, [log, np.nextafter(log, np.float32(-np.inf))])
            at, below = through(apply, calibration, own)
            assert at >= threshold
            assert below < threshold or log <= -103


MODELS = {
    "one tree": {"n_trees": 1, "n_labels": 40},
    "three trees": {"n_trees": 3, "n_labels": 40},
    "int8": {"n_trees": 1, "weights": "int8"},
    "decision trees": {"kind": "decision-tree"},
    "re-ranked": {"kind": "decision-tree", "extra": random_rerank(3, 11, 70)},
}


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def models(request: Any) -> Any:
    """A model that is calibrated, and the same model without its calibration."""
    return [model_of(draft(4, **request.param)) for draft in (calibrated_draft, small_draft)]


def rows_for(model: Any, n_rows: int = 30) -> Any:
    n_features = model.manifest.n_features
    return SparseRows(*random_rows(5, n_rows, n_features), n_features)


@pytest.mark.parametrize("exact", [False, True])
def test_every_search_has_the_same_labels_with_calibrated_scores(models: Any, exact: Any) -> None:
    model, plain = models
    rows, options = rows_for(model), PredictOptions(top_r=7, beam_width=2, exact=exact)
    one, other = make_predictor(model), make_predictor(plain)
    for threads in (1, 2):
        found = one.predict(rows, options, threads)
        before = other.predict(rows, options, threads)
        for name in ("labels", "ptr", "exact"):
            assert getattr(found, name).tobytes() == getattr(before, name).tobytes(), name
        assert (
            found.scores.tobytes() == through(apply, random_calibration(4), before.scores).tobytes()
        )
    alone = one.predict(rows.cut(0, 1), options)
    assert alone.scores.tobytes() == found.scores[: len(alone.scores)].tobytes()


def test_thresholds_are_on_the_calibrated_scale(models: Any) -> None:
    model, _ = models
    predictor, rows, n_labels = make_predictor(model), rows_for(model), model.manifest.n_labels
    every = predictor.predict(rows, PredictOptions(top_r=n_labels, exact=True))
    number = float(np.median(every.scores))
    each = np.random.default_rng(0).choice(every.scores, n_labels).astype(np.float32)
    prepared = predictor.node_thresholds(np.zeros(n_labels, np.float32))
    predictor.move_thresholds(prepared, np.arange(n_labels, dtype=np.int32), each)
    assert prepared.tobytes() == predictor.node_thresholds(each).tobytes()
    for threshold, least in ((number, np.full(n_labels, number, np.float32)), (prepared, each)):
        found = predictor.predict(
            rows, PredictOptions(top_r=n_labels, exact=True, threshold=threshold)
        )
        assert found.exact.all()
        for row in range(rows.n_rows):
            low, high = every.ptr[row : row + 2]
            labels, above = (
                every.labels[low:high],
                every.scores[low:high] - least[every.labels[low:high]],
            )
            here = set(found.labels[slice(*found.ptr[row : row + 2])])
            assert set(labels[above > 1e-6]) <= here <= set(labels[above >= -1e-6])
    none = predictor.predict(rows, PredictOptions(top_r=n_labels, threshold=0.95))
    assert len(none.labels) == 0  # no score is calibrated to more than 0.9


def test_scores_of_named_labels_are_those_of_the_search(models: Any) -> None:
    model, _ = models
    predictor, rows = make_predictor(model), rows_for(model, 10)
    every = predictor.predict(rows, PredictOptions(top_r=model.manifest.n_labels, exact=True))
    found = predictor.score_labels(rows, every.ptr, every.labels)
    assert found.scores.tobytes() == every.scores.tobytes()
    with np.errstate(divide="ignore"):
        assert np.allclose(found.logs, np.log(every.scores), rtol=1e-5)


def test_scores_with_weights_of_labels_are_not_calibrated(models: Any) -> None:
    one, other = map(make_predictor, models)
    weights = np.linspace(0.5, 2, models[0].manifest.n_labels, dtype=np.float32)
    rows, options = (
        rows_for(models[0]),
        PredictOptions(exact=True, weights=one.node_weights(weights)),
    )
    found, plain = one.predict(rows, options), other.predict(rows, options)
    assert found.labels.tobytes() == plain.labels.tobytes()
    assert found.scores.tobytes() == plain.scores.tobytes()


def test_a_stopped_search_keeps_what_is_sure(models: Any) -> None:
    model, _ = models
    options = PredictOptions(exact=True, stop=np.ones(1, np.uint8))
    found = make_predictor(model).predict(rows_for(model), options)
    assert len(found.labels) == 0
    assert not found.exact.any()
