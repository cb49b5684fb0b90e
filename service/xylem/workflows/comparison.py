"""Compare two versions on the same labelled file: what `xylem compare` does."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xylem.base import DEFAULT_COLUMNS, BadData, OnProgress, TableColumns, no_progress
from xylem.engine import ContextParameters, PredictOptions, make_predictor, predict_all
from xylem.evaluation import (
    RESAMPLES,
    USUAL_EMPTY,
    EmptyConvention,
    Labelled,
    ModelAnswers,
    PredictedRows,
    check_resamples,
    compare_answers,
)
from xylem.thresholds import Tuned
from xylem.workflows.evaluate import TOP_R
from xylem.workflows.labelled import read_labelled
from xylem_store import I64, Model, find_names


class Contender(NamedTuple):
    """An opened version, and its tuned thresholds if it has any."""

    model: Model
    tuned: Tuned | None


class CompareRequest(NamedTuple):
    """A request to compare versions; `evaluation.bootstrap` explains resamples and seed."""

    data: Path
    empty: EmptyConvention = USUAL_EMPTY
    resamples: int = RESAMPLES
    seed: int = 0
    threads: int = 1
    columns: TableColumns = DEFAULT_COLUMNS


class _Side(NamedTuple):
    """The answers of a version on the file: rankings, and decisions if both versions are tuned."""

    labelled: Labelled
    ranked: PredictedRows
    decided: PredictedRows | None


def compare(
    a: Contender,
    b: Contender,
    request: CompareRequest,
    on_progress: OnProgress = no_progress,
    rows: tuple[Labelled, Labelled] | None = None,
) -> dict[str, Any]:
    """Return how two versions differ on a file, with the keys of `xylem compare --json`.

    rows  the rows of the request's file, read for each version; None: they are read here

    The keys are:

    a, b       NAME@VERSION
    rows, resamples, seed  how it was measured
    metrics    for each figure a, b, difference (b - a), low and high of its 95% interval, in
               percent; p of the paired randomisation test, and real: whether p is at most 0.05.
               macro_f is included if both versions are tuned
    labels     how many labels both versions know, and how many only one of them; `neither`: how
               many labels of the file none knows
    note       why macro_f is missing, else null

    Labels are matched by name: a label that a version does not know is one that it never predicts.
    Macro-F is the mean over all labels that either version knows. Raises BadInput.
    """
    check_resamples(request.resamples)
    ids = find_names(a.model.labels, b.model.labels.utf8, b.model.labels.offsets).astype(np.int64)
    n_new = int((ids < 0).sum())
    # labels that a does not know get ids after those of a
    ids[ids < 0] = a.model.labels.n_names + np.arange(n_new)
    # rows of windows are words: the same text has other true labels if the vocabularies differ
    kinds = [side.model.manifest.features["kind"] for side in (a, b)]
    if ContextParameters.kind in kinds and (
        n_new or a.model.labels.n_names != b.model.labels.n_names or kinds[0] != kinds[1]
    ):
        raise BadData(
            f"expected two models of next words that know the same words, found "
            f"{a.model.manifest.full_name} and {b.model.manifest.full_name}"
        )
    untuned = [side.model.manifest.full_name for side in (a, b) if side.tuned is None]
    sides = [
        _predict_side(side, not untuned, request, on_progress, labelled)
        for side, labelled in zip((a, b), rows or (None, None), strict=True)
    ]
    sizes = [np.diff(side.labelled.labels.indptr) + side.labelled.unknown for side in sides]
    if not np.array_equal(sizes[0], sizes[1]):
        raise BadData(
            f"{request.data}: expected rows that both models read alike, found {len(sizes[0])} "
            f"rows with {int(sizes[0].sum())} labels, and {len(sizes[1])} with "
            f"{int(sizes[1].sum())}"
        )
    differences = compare_answers(
        _answers(sides[0], np.arange(a.model.labels.n_names)),
        _answers(sides[1], ids),
        request.empty,
        request.resamples,
        request.seed,
        lambda done: on_progress("resample", done, request.resamples),
    )
    n_both = len(ids) - n_new
    return {
        "a": a.model.manifest.full_name,
        "b": b.model.manifest.full_name,
        "rows": sides[0].labelled.rows.n_rows,
        "resamples": request.resamples,
        "seed": request.seed,
        "empty_label_convention": request.empty,
        "labels": {
            "both": n_both,
            "only_a": a.model.labels.n_names - n_both,
            "only_b": n_new,
            "neither": len(set.intersection(*(set(side.labelled.unknown_names) for side in sides))),
        },
        "metrics": {
            name: {**difference._asdict(), "real": difference.real}
            for name, difference in differences.items()
        },
        "note": f"no macro-F: {' and '.join(untuned)} not tuned (xylem thresholds)"
        if untuned
        else None,
    }


def _predict_side(
    side: Contender,
    decides: bool,
    request: CompareRequest,
    on_progress: OnProgress,
    labelled: Labelled | None,
) -> _Side:
    def show(phase: str, done: int, total: int) -> None:
        on_progress(f"{phase} {side.model.manifest.full_name}", done, total)

    if labelled is None:
        labelled = read_labelled(side.model, request.data, show, request.columns)
    labelled.labels.refuse_weights("compare")  # tests of significance count each row once
    predictor = make_predictor(side.model)
    rows = labelled.rows
    ranked = predictor.predict(rows, PredictOptions(top_r=TOP_R), request.threads)
    decided = (
        PredictedRows(
            *predict_all(
                predictor,
                rows,
                predictor.node_thresholds(side.tuned.thresholds),
                request.threads,
                lambda done: show("decide", done, rows.n_rows),
                side.tuned.aim.limit,
            )
        )
        if decides and side.tuned is not None
        else None
    )
    return _Side(labelled, PredictedRows(ranked.ptr, ranked.labels), decided)


def _answers(side: _Side, joint_ids: I64) -> ModelAnswers:
    """Return the answers of a version, whose labels have these ids among those of both."""
    return ModelAnswers(
        ranked=side.ranked,
        truth=side.labelled.truth,
        decided=side.decided,
        joint_ids=joint_ids,
    )
