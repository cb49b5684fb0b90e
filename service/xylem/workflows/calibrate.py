"""Calibrate a version: fit probabilities to held-out rows, and publish the version with them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import (
    DEFAULT_COLUMNS,
    BadData,
    BadParameter,
    OnProgress,
    TableColumns,
    no_progress,
    one_step,
)
from xylem.engine import PredictOptions, make_predictor
from xylem.evaluation import (
    Labelled,
    PredictedRows,
    ReliabilityBin,
    apply_calibration,
    calibration_error,
    fit_calibration,
    mark_true,
    ranks_of,
    reliability,
    rows_of,
)
from xylem.workflows.evaluate import F_MEASURES, TOP_R
from xylem.workflows.labelled import read_labelled
from xylem_store import (
    CALIBRATION,
    FEEDBACK,
    ORIGIN,
    REPORT,
    Calibration,
    DataInfo,
    Draft,
    Model,
    Store,
    draft_of,
    group_of,
    json_array,
    learnt_feedback,
    parent_of,
    read_report,
)

# predictions of each row that are fitted: more than are shown, because low thresholds use them
FITTED_TOP_R = 20
ROWS_MIN = 100  # the fewest rows that a calibration is fitted to


class CalibrationFit(NamedTuple):
    """A calibration fitted to all rows, and the reliability of scores without and with one.

    source       the file of these rows, as a version's origin records it
    n_pairs      number of predictions that were fitted
    bins_before  reliability of the first TOP_R labels of each row, without a calibration
    bins_after   the same with a calibration. Each half of the rows is measured with a fit to the
                 other half, so that no row is measured with what was fitted to it.
    """

    calibration: Calibration
    source: DataInfo
    n_pairs: int
    bins_before: list[ReliabilityBin]
    bins_after: list[ReliabilityBin]

    @property
    def errors(self) -> dict[str, float]:
        """Return the expected calibration errors, 0 to 1, as "before" and "after"."""
        return {
            "before": calibration_error(self.bins_before) or 0.0,
            "after": calibration_error(self.bins_after) or 0.0,
        }


def refuse_link(model: Model) -> None:
    """Raise BadParameter for a model whose probabilities are exact and sum to 1 over the labels."""
    if model.manifest.link == "softmax":
        raise BadParameter(
            f"calibrate: expected a model that scores each label by itself, found one of "
            f"{model.manifest.trainer.name}: its probabilities sum to 1 over the labels, and "
            "calibrated ones would not"
        )


def fit_to_rows(
    model: Model, labelled: Labelled, threads: int, on_progress: OnProgress
) -> CalibrationFit:
    """Fit a calibration of a model's uncalibrated scores to rows that it was not trained on.

    The calibration that the model may have is ignored. Raises BadData for too few rows, rows that
    the model was trained on, and rows of which no prediction is true; BadParameter for a model that
    cannot be calibrated. Cost: a prediction for each row.
    """
    refuse_link(model)
    labelled = labelled.repeated()
    source = labelled.source
    n_rows = labelled.rows.n_rows
    assert source is not None, (
        "expected rows of a file: windows of words are of models that are refused"
    )
    if any(
        source.sha256 == manifest.data.sha256
        for manifest in [model.manifest, *model.manifest.members]
    ):
        raise BadData(
            "calibrate: expected rows that the model was not trained on, found those that it "
            "was trained on"
        )
    if n_rows < ROWS_MIN:
        raise BadData(f"calibrate: expected at least {ROWS_MIN} rows, found {n_rows}")
    uncalibrated = replace(model, arrays=_without_calibration(model.arrays))
    with one_step(on_progress, "fit"):
        predictions = make_predictor(uncalibrated).predict(
            labelled.rows, PredictOptions(top_r=FITTED_TOP_R), threads
        )
        are_true = mark_true(PredictedRows(predictions.ptr, predictions.labels), labelled.labels)
        if not are_true.any():
            raise BadData(
                "calibrate: expected rows of which a prediction is true, found none in "
                f"{n_rows} rows"
            )
        is_listed = ranks_of(predictions.ptr) < TOP_R
        in_half = np.zeros(n_rows, np.bool_)
        in_half[np.random.default_rng(0).permutation(n_rows)[: n_rows // 2]] = True
        in_half = in_half[rows_of(predictions.ptr)]
        cross_fitted = predictions.scores.copy()
        for fitted in (in_half, ~in_half):
            if fitted.any():
                cross_fitted[~fitted] = apply_calibration(
                    fit_calibration(predictions.scores[fitted], are_true[fitted]),
                    predictions.scores[~fitted],
                )
        return CalibrationFit(
            fit_calibration(predictions.scores, are_true),
            source,
            len(predictions.labels),
            reliability(predictions.scores[is_listed], are_true[is_listed]),
            reliability(cross_fitted[is_listed], are_true[is_listed]),
        )


def calibrated_draft(draft: Draft, fit: CalibrationFit, origin: Mapping[str, Any]) -> Draft:
    """Return a draft with a calibration, which replaces the one that the draft may have.

    origin  the other fields of the draft's origin

    The draft's F-measures, and the part of its report on a validation file, are left out: they were
    measured on other scores.
    """
    facts = {
        **fit.source._asdict(),
        "knots": len(fit.calibration.x),
        "predictions": fit.n_pairs,
        **{f"error_{stage}": error for stage, error in fit.errors.items()},
    }
    extra = _without_calibration(draft.extra)
    extra.update(group_of(CALIBRATION, fit.calibration))
    if REPORT in extra:
        extra[REPORT] = json_array(
            REPORT,
            {name: part for name, part in read_report(extra).items() if name != "validation"},
        )
    extra[ORIGIN] = json_array(ORIGIN, {**origin, CALIBRATION: facts})
    return replace(
        draft,
        metrics={name: value for name, value in draft.metrics.items() if name not in F_MEASURES},
        extra=extra,
    )


def calibrate_and_publish(
    store: Store,
    name: str,
    reference: str,
    data: Path,
    columns: TableColumns = DEFAULT_COLUMNS,
    threads: int = 1,
    on_progress: OnProgress = no_progress,
) -> dict[str, Any]:
    """Publish a version once more, calibrated on a labelled file, as the model's `latest`.

    Returns the keys of `xylem calibrate --json`. Raises BadInput for a file that cannot be used,
    such as the one that the version was trained on, and StoreError.
    """
    store.prepare()
    model = store.open(name, reference)
    refuse_link(model)
    fit = fit_to_rows(model, read_labelled(model, data, on_progress, columns), threads, on_progress)
    origin = {"parent": parent_of(model.manifest), FEEDBACK: learnt_feedback(model.arrays)}
    with one_step(on_progress, "publish"):
        draft = calibrated_draft(draft_of(model), fit, origin)
        published = store.publish(name, replace(draft, files=store.files_of(model, draft.arrays())))
    return {
        "model": name,
        "version": published.version,
        "parent": model.manifest.version,
        "rows": fit.source.rows,
        "predictions": fit.n_pairs,
        "knots": len(fit.calibration.x),
        "calibration_error": fit.errors,
        "reliability": {
            "before": [reliability_bin._asdict() for reliability_bin in fit.bins_before],
            "after": [reliability_bin._asdict() for reliability_bin in fit.bins_after],
        },
    }


def _without_calibration(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: array for name, array in arrays.items() if not name.startswith(f"{CALIBRATION}/")}
