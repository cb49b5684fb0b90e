"""Measure a version on a labelled file."""

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from xylem.base import BadParameter, DataReport, OnProgress, SparseRows, no_progress
from xylem.engine import (
    Predictions,
    PredictOptions,
    Searcher,
    make_predictor,
    predict_all,
    predict_parts,
)
from xylem.evaluation import (
    LEAST_THRESHOLD,
    USUAL_EMPTY,
    A,
    B,
    EmptyConvention,
    LabelCounts,
    Labelled,
    PredictedRows,
    ReliabilityBin,
    ThresholdPoint,
    ThresholdSweep,
    Truth,
    calibration_error,
    constants_of,
    count_labels,
    f_measures,
    mark_true,
    propensities,
    ranking_metrics,
    reliability,
)
from xylem.thresholds import Tuned
from xylem.workflows.branch_figures import branch_groups, near_misses
from xylem.workflows.labelled import note_never_answered
from xylem.workflows.stored_figures import Band, frequency_bands, group_figures, kept_figures
from xylem_store import F32, I64, U8, LabelInfo, Model, find_names, has_calibration, has_rerank

TOP_R = 5  # labels predicted for each row, for the measures of rankings and for the timing

THRESHOLD_UNTUNED = 0.5  # the threshold of F-measures if a version has no tuned thresholds

F_MEASURES = ("macro_f", "micro_f", "instance_f")

NAMES_MAX = 20  # at most this many labels that the model does not know are named

# Why a version that re-ranks, and is not calibrated, has no F-measures after training.
RERANKED = (
    f"re-ranked scores are no probabilities: at {THRESHOLD_UNTUNED} hardly a label is predicted, "
    "F-measures say nothing before xylem thresholds has tuned the version"
)

_REPEATS = 5
_SECONDS_MAX = 10.0


# Figures by name; None for a figure that cannot be computed.
Report = dict[str, float | int | str | None]


class Evaluation(NamedTuple):
    """The measurements of a version on labelled rows.

    report       the keys of `xylem evaluate --json`
    counts       the decisions about each label
    thresholds   float32[K], of these decisions
    reliability  scores of the first TOP_R labels of each row against the share that is true
    sweep        precision and recall of one threshold for all labels; empty unless requested
    """

    report: dict[str, Any]
    counts: LabelCounts
    thresholds: F32
    reliability: list[ReliabilityBin]
    sweep: list[ThresholdPoint]


def evaluate_rows(
    model: Model,
    labelled: Labelled,
    threads: int = 1,
    on_progress: OnProgress = no_progress,
    *,
    tuned: Tuned | None = None,
    empty: EmptyConvention = USUAL_EMPTY,
    sweep: bool = False,
    allowed: U8 | None = None,
    info: LabelInfo | None = None,
    concepts: Sequence[str] = (),
) -> Evaluation:
    """Measure an opened version on labelled rows.

    Rankings are the first TOP_R labels of the default beam. F-measures are of the labels at
    `tuned` thresholds, or at THRESHOLD_UNTUNED, under the convention `empty`. `us_per_row` is of a
    batch, on one thread, the median of some runs. The report has `note` if F-measures say nothing,
    and for tuned thresholds `objective`.

    sweep     whether precision and recall of one threshold for all labels are measured, which takes
              one more exact search
    allowed   uint8[K], 0 for labels that a server never answers; None: those that the label info
              says to be deprecated. Those of the rows are a finding, as are labels without a leaf
    info      the label info, by which near misses are counted; None: they are not counted
    concepts  those whose branches have figures of their own, as `branch_groups` takes them

    Raises UnknownLabel for a concept that the label info does not have, and BadParameter for
    concepts without label info.
    """
    if concepts and info is None:
        raise BadParameter("under: expected a model with label info, found one without")
    groups = [] if info is None else branch_groups(model.labels, info, concepts)
    predictor = make_predictor(model)
    if allowed is None and info is not None:
        allowed = info.allowed(find_names(info.keys, model.labels.utf8, model.labels.offsets))
    note_never_answered(labelled, model.labels, labelled.never_answered(model, allowed))
    figures, ranked, counts, bins, bands = _measure(
        predictor, model, labelled, threads, on_progress, tuned, empty
    )
    if info is not None:
        figures |= near_misses(ranked, labelled.labels, model.labels, info)
    return Evaluation(
        {
            **figures,
            "bands": bands,
            "branches": group_figures("branch", groups, ranked, counts, labelled.labels, empty),
            "unknown_labels": len(labelled.unknown_names),
            "unknown_label_names": list(labelled.unknown_names[:NAMES_MAX]),
            "calibration_error": calibration_error(bins),
            "us_per_row": us_per_row(predictor, labelled.rows, on_progress),
            "threshold": THRESHOLD_UNTUNED if tuned is None else "tuned",
            **DataReport.result_of([labelled.report]),
            **({} if tuned is None else {"objective": tuned.aim.objective}),
            **({"note": note} if tuned is None and (note := note_on(model)) else {}),
        },
        counts,
        np.full(predictor.n_labels, THRESHOLD_UNTUNED, np.float32)
        if tuned is None
        else tuned.thresholds,
        bins,
        _sweep(predictor, labelled, threads, on_progress) if sweep else [],
    )


def likelihood_report(predictor: Searcher, labelled: Labelled) -> Report:
    """Return the figures of exact probabilities on labelled rows.

    log_loss             the mean of -log p over the true labels, in nats a label
    perplexity           exp(log_loss)
    without_probability  how often a true label has no probability, because no training row carried
                         it or the model does not know it; these are in neither mean

    log_loss and perplexity are None if no true label has a probability.
    """
    logs = predictor.score_labels(
        labelled.rows, labelled.labels.indptr, labelled.labels.indices
    ).logs
    is_finite = np.isfinite(logs)
    finite_logs = logs[is_finite].astype(np.float64)
    weights = labelled.labels.weights_at(labelled.labels.indptr)
    log_loss = (
        float(-np.average(finite_logs, weights=None if weights is None else weights[is_finite]))
        if len(finite_logs)
        else None
    )
    return {
        "log_loss": log_loss,
        "perplexity": None if log_loss is None else float(np.exp(min(log_loss, 700.0))),
        "without_probability": len(logs) - len(finite_logs) + int(labelled.unknown.sum()),
    }


def list_unknown(report: Mapping[str, Any]) -> str:
    """Return the number and the names of labels that the model does not know, as one line.

    The line is empty if there are none.
    """
    n_labels = report["unknown_labels"]
    names = report["unknown_label_names"]
    suffix = ", ..." if n_labels > len(names) else ""
    return f"{n_labels:,}: {', '.join(names)}{suffix}" if n_labels else ""


def note_on(model: Model) -> str | None:
    """Return a note on the metrics of a version that is not tuned, or None."""
    return RERANKED if has_rerank(model.arrays) and not has_calibration(model.arrays) else None


class ValidFigures(NamedTuple):
    """The figures on a validation file that a version keeps.

    metrics         of the manifest
    report_figures  the "validation" part of the report
    """

    metrics: dict[str, float]
    report_figures: dict[str, Any]


def valid_figures(
    model: Model,
    valid: Labelled,
    threads: int,
    on_progress: OnProgress,
    tuned: Tuned | None = None,
) -> ValidFigures:
    """Return the figures on a validation file that a version keeps.

    tuned  the thresholds that decisions are made at; None: THRESHOLD_UNTUNED

    Its metrics are all figures in percent, without F-measures of a version that re-ranks: see
    RERANKED.
    """
    figures, _, counts, bins, bands = _measure(
        make_predictor(model), model, valid, threads, on_progress, tuned, USUAL_EMPTY
    )
    left_out = F_MEASURES if tuned is None and note_on(model) else ()
    return ValidFigures(
        {
            key: value
            for key, value in figures.items()
            if type(value) is float and key not in left_out
        },
        {
            "rows": valid.n_rows,
            **kept_figures(counts, bins, bands, model.labels),
            "threshold": THRESHOLD_UNTUNED,
        },
    )


def _measure(
    predictor: Searcher,
    model: Model,
    labelled: Labelled,
    threads: int,
    on_progress: OnProgress,
    tuned: Tuned | None,
    empty: EmptyConvention,
) -> tuple[Report, PredictedRows, LabelCounts, list[ReliabilityBin], list[Band] | None]:
    """Return the measurements of a version on labelled rows.

    They are the figures in percent, the rankings, the decisions about each label, the bins of
    reliability, and the figures of the bands.
    """
    labels = labelled.labels
    label_counts = model.arrays.get("labels/counts")
    predictions = predictor.predict(labelled.rows, PredictOptions(top_r=TOP_R), threads)
    ranked = PredictedRows(predictions.ptr, predictions.labels)
    decision_thresholds = (
        THRESHOLD_UNTUNED if tuned is None else predictor.node_thresholds(tuned.thresholds)
    )
    decided = PredictedRows(
        *predict_all(
            predictor,
            labelled.rows,
            decision_thresholds,
            threads,
            lambda done: on_progress("decide", done, labelled.rows.n_rows),
            None if tuned is None else tuned.aim.limit,
        )
    )
    counts = count_labels(decided, labels)
    report = evaluation_report(
        ranked,
        decided,
        labelled.truth,
        label_counts,
        model.manifest.data.rows,
        empty=empty,
        constants=constants_of(model.manifest.trainer.parameters),
    )
    if model.manifest.link == "softmax":
        report.update(likelihood_report(predictor, labelled))
    return (
        report,
        ranked,
        counts,
        reliability(predictions.scores, mark_true(ranked, labels), labels.weights_at(ranked.ptr)),
        frequency_bands(ranked, counts, labels, label_counts, empty),
    )


def _sweep(
    predictor: Searcher, labelled: Labelled, threads: int, on_progress: OnProgress
) -> list[ThresholdPoint]:
    counting = ThresholdSweep()
    first = 0
    for predictions in predict_parts(
        predictor,
        labelled.rows,
        lambda: LEAST_THRESHOLD,
        threads,
        lambda done: on_progress("sweep", done, labelled.rows.n_rows),
    ):
        last = first + len(predictions.ptr) - 1
        counting.add(
            predictions.scores,
            mark_true(
                PredictedRows(predictions.ptr, predictions.labels), labelled.labels.cut(first, last)
            ),
        )
        first = last
    return counting.points(labelled.n_true)


def best_threshold(labelled: Labelled, predictions: Predictions) -> float:
    """Return the threshold for all labels that has the most micro-F on labelled rows.

    predictions  of these rows, all that reach LEAST_THRESHOLD
    """
    counting = ThresholdSweep()
    counting.add(
        predictions.scores,
        mark_true(PredictedRows(predictions.ptr, predictions.labels), labelled.labels),
    )
    return counting.best(labelled.n_true)


def us_per_row(predictor: Searcher, rows: SparseRows, on_progress: OnProgress) -> float:
    """Return the microseconds a row takes in a batch on one thread: the median of a few runs."""
    seconds: list[float] = []
    while len(seconds) < _REPEATS and sum(seconds) < _SECONDS_MAX:
        on_progress("time", len(seconds), _REPEATS)
        start = time.perf_counter()
        predictor.predict(rows, PredictOptions(top_r=TOP_R))
        seconds.append(time.perf_counter() - start)
    on_progress("time", _REPEATS, _REPEATS)
    return 1e6 * median(seconds) / rows.n_rows


def evaluation_report(
    ranked: PredictedRows,
    decided: PredictedRows,
    truth: Truth,
    label_counts: I64 | None,
    n_training_rows: int,
    *,
    empty: EmptyConvention = USUAL_EMPTY,
    constants: tuple[float, float] = (A, B),
) -> Report:
    """Return every figure of an evaluation: percentages, `rows`, `empty_label_convention`.

    ranked        the first labels of each row (at least five, if the model has five)
    decided       the labels of each row at the thresholds that are measured
    truth         the true labels
    label_counts  int64[K], training rows of each label, for the propensities; None if they are not
                  known (models of other libraries): then the propensity-scored figures are None
    constants     a and b of the propensities

    Raises ValueError if the numbers of rows differ.
    """
    is_known = label_counts is not None and n_training_rows > 0
    if label_counts is None or not is_known:
        label_counts = np.zeros(truth.labels.n_labels, np.int64)
        n_training_rows = 1
    ranking = ranking_metrics(
        ranked,
        truth,
        propensities(label_counts, n_training_rows, *constants),
        float(propensities(0, n_training_rows, *constants)),
    )
    scored: Report = {
        name: None if name.startswith("PS") and not is_known else value
        for name, value in ranking.items()
    }
    return {"rows": truth.labels.n_rows, **scored, **f_measures(decided, truth, empty)._asdict()}
