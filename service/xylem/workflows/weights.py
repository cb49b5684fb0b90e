"""Store the weights of a draft in fewer bits, and measure the effect on its metrics."""

from dataclasses import replace
from typing import Any

import numpy as np

from xylem.base import BadParameter, OnProgress
from xylem.evaluation import Labelled
from xylem.trainers import TrainingSet
from xylem.workflows.evaluate import valid_figures
from xylem_store import (
    EMBEDDING,
    Draft,
    TreeEnsemble,
    Weights,
    model_of,
    store_weights,
    to_bfloat16,
)

# The figures that show what storing weights in fewer bits costs.
WEIGHED = ("P@1", "P@3", "P@5", "nDCG@5")

WEIGHED_ROWS = 10_000  # at most this many training rows are used without a validation file


def store_as(ensemble: TreeEnsemble, weights: Weights) -> TreeEnsemble:
    """Return a float32 ensemble with its weights in a type.

    Raises BadParameter if a node is too wide.
    """
    try:
        return store_weights(ensemble, weights)
    except ValueError as error:
        raise BadParameter(f"--weights {weights}: {error}") from error


def round_weights(
    draft: Draft,
    weights: Weights,
    threads: int,
    valid: Labelled | None,
    sample: TrainingSet | None,
    on_progress: OnProgress,
) -> tuple[Draft, dict[str, Any] | None]:
    """Return the draft with its weights stored in the requested type, and figures of their effect.

    The figures are `kept_figures` of the rounded weights on the validation file; None if nothing
    was rounded or there is no such file.

    Embeddings are stored as bfloat16 with both of the shorter types.

    The metrics have the figures of the rounded weights beside those of float32: on the validation
    file, or without one on some of the training rows, if those are in memory. Raises BadParameter
    if the type has no room for a node.
    """
    if weights == "float32":
        return draft, None
    rounded = replace(
        draft,
        ensemble=store_as(draft.ensemble, weights),
        weights=weights,
        extra={
            name: to_bfloat16(array) if name == f"{EMBEDDING}/u" else array
            for name, array in draft.extra.items()
        },
    )
    metric_suffix = ""
    labelled = valid
    if valid is None and sample is not None:
        n_rows = min(sample.rows.n_rows, WEIGHED_ROWS)
        sampled = (
            sample.rows.cut(0, n_rows),
            sample.labels.cut(0, n_rows),
            np.zeros(n_rows, np.int32),
        )
        metric_suffix = " on training rows"
        labelled = Labelled(*sampled)
    if labelled is None:
        return rounded, None
    exact_figures, rounded_figures = (
        valid_figures(model_of(candidate), labelled, threads, on_progress)
        for candidate in (draft, rounded)
    )
    pairs = {
        f"{key}{metric_suffix}": (rounded_figures.metrics[key], exact_figures.metrics[key])
        for key in WEIGHED
    }
    metrics = (
        {key: rounded_value for key, (rounded_value, _) in pairs.items()}
        if valid is None
        else rounded_figures.metrics
    )
    return (
        replace(
            rounded,
            metrics={
                **metrics,
                **{f"{key} in float32": exact_value for key, (_, exact_value) in pairs.items()},
            },
        ),
        None if valid is None else rounded_figures.report_figures,
    )
