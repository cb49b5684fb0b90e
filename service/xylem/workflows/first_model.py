"""Make a first model from one labelled file: what `xylem try` does."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xylem.base import (
    BadData,
    BadParameter,
    Crew,
    Dataset,
    OnProgress,
    TableColumns,
    ready_database,
)
from xylem.datasets import read_dataset
from xylem.engine import PREFIX, AutoParameters, make_predictor
from xylem.evaluation import labelled_dataset
from xylem.thresholds import keep, request_of
from xylem.vocabulary import check_installed, featurizer_of, rerank
from xylem.workflows.choose_features import ROWS_MIN, divide
from xylem.workflows.evaluate import F_MEASURES, TOP_R, evaluate_rows, us_per_row, valid_figures
from xylem.workflows.request import Chosen
from xylem.workflows.train import TrainRequest, parent_in, train_dataset
from xylem.workflows.tuning import tune
from xylem_store import Draft, Store, check_model, model_of, read_report

TRAINER = "label-tree"

_IN_ALL = "in all"  # the phase of the first progress bar

# What the progress bars call the stages: the words of a user, who knows no phase of a training.
STAGES = ("reading the file", "learning labels", "choosing thresholds", "measuring", "publishing")

LEAST_ROWS = 10  # the minimum: of 10 rows one is held out for thresholds, and one for figures

# At most this many training rows are ranked anew on trial. With more that would take longer than
# all else.
RANKED_ROWS = 4000

FEW_ROWS = 100  # figures of fewer held-out rows may be chance: a warning says so


def make_first_model(
    store: Store,
    name: str,
    data: Path,
    columns: TableColumns,
    seed: int,
    threads: int,
    on_progress: OnProgress,
    check: Callable[[Dataset], None] = lambda dataset: None,
    encoder: str | None = None,
) -> dict[str, Any]:
    """Train a label tree on most rows of a file, tune it, measure it, and publish it.

    A tenth of the rows is held out to tune it on, and another tenth to measure it on.

    check    is called with the rows that were read, before anything is made of them
    encoder  a sentence encoder of the store, which is tried beside the words

    Returns the keys of `xylem try --json`. Raises BadData for a file that nothing can be learnt
    from, other BadInput, StoreError and DatabaseUnavailable; then nothing is published.
    """
    check_model(name)
    dataset = read_dataset(
        data, columns=columns, on_progress=partial(_stage(on_progress, 0), "read")
    )
    dataset.fields.refuse_unweighted()
    check(dataset)
    train, valid, test = _split_rows(data, dataset, seed)
    are_tried = dataset.texts is not None and train.n_rows >= ROWS_MIN
    parameters = {f"{PREFIX}kind": AutoParameters.kind} if are_tried else {}
    if encoder is not None:
        parameters |= {
            f"{PREFIX}encoder": encoder,
            **({"vectors.weight": "auto"} if are_tried else {}),
        }
    request = TrainRequest(
        trainer=TRAINER,
        data=data,
        parameters=parameters,
        seed=seed,
        threads=threads,
        origin={"parent": parent_in(store, name)},
    )
    store.prepare()
    chosen = request.chosen().opened_from(store)
    learning = _stage(on_progress, 1)
    if chosen.encoder is not None:
        train, valid, test = (
            chosen.encoder.with_vectors(part, Crew(threads), learning, store)
            for part in (train, valid, test)
        )
    draft = train_dataset(train, request, learning, chosen=chosen)
    model = model_of(draft)
    featurizer = featurizer_of(model).encoded_by(None)
    valid, test = map(featurizer.drop_unused_vectors, (valid, test))
    tuning_rows, test_rows = (labelled_dataset(part, featurizer) for part in (valid, test))
    ranking = (
        _try_ranking(train, test, request, chosen.with_features_of(featurizer), learning)
        if are_tried and train.n_rows >= RANKED_ROWS and encoder is None
        else None
    )
    outcomes = []
    report = read_report(model.arrays)
    if len(tuning_rows.labels.indices):
        outcomes = tune(
            model,
            request_of(None, data, None, "zero", threads=threads, objective="instance"),
            _stage(on_progress, 2),
            tuning_rows,
        )
    tuned = outcomes[0].tuned if outcomes else None
    measuring = _stage(on_progress, 3)
    draft = replace(draft, metrics=valid_figures(model, test_rows, threads, measuring).metrics)
    evaluation = evaluate_rows(model, test_rows, threads, measuring, tuned=tuned)
    _stage(on_progress, 4)
    with ready_database(store.root) as database:  # a missing database is found before publishing
        version = store.publish(name, draft).version
        if outcomes:
            keep(store.open(name, version), database, outcomes)
    on_progress(_IN_ALL, len(STAGES), len(STAGES))
    sizes = np.diff(test.labels.indptr)
    n_hits = int(evaluation.counts.hits.sum())
    n_predicted = int(evaluation.counts.predicted.sum())
    warnings = list(report.get("warnings", ()))
    if test.n_rows < FEW_ROWS:
        warnings.append(
            f"only {test.n_rows} rows were held out to measure on: the figures may be chance"
        )
    return {
        "model": name,
        "version": version,
        "rows": {"training": train.n_rows, "thresholds": valid.n_rows, "test": test.n_rows},
        "labels": len(np.unique(train.labels.indices)),
        "labels_a_row": float(sizes.mean()),
        "possible": 100.0 * float(np.minimum(sizes, TOP_R).mean()) / TOP_R,
        "features": report["features"]["chosen"] if are_tried else featurizer.kind,
        "features_gained": report["features"]["gained"] if are_tried else None,
        "rerank": ranking,
        "predicted_a_row": n_predicted / test.n_rows,
        "precision": 100.0 * n_hits / max(n_predicted, 1),
        "recall": 100.0 * n_hits / max(int(sizes.sum()), 1),
        **{
            key: evaluation.report[key]
            for key in ("P@1", "P@5", "R@5", *F_MEASURES, "threshold", "us_per_row")
        },
        "limit": None if tuned is None else tuned.aim.limit,
        "warnings": warnings,
    }


def _try_ranking(
    train: Dataset, test: Dataset, request: TrainRequest, chosen: Chosen, on_progress: OnProgress
) -> dict[str, Any] | None:
    """Return what `--rerank` gains on RANKED_ROWS of the training rows, and what it costs.

    The first is in points of P@1, P@3 and P@5, their mean; the second is how many times as long a
    row takes. None without scikit-learn.
    """
    try:
        check_installed()
    except BadParameter:
        return None
    some = train.take(
        np.sort(np.random.default_rng(request.seed).permutation(train.n_rows)[:RANKED_ROWS])
    )
    for_part = request.model_copy(update={"weights": "float32"})

    def train_part(part: Dataset) -> Draft:
        return train_dataset(part, for_part, on_progress, chosen=chosen)

    alone = train_part(some)
    ranked, report = rerank(alone, some, train_part, request.seed, on_progress)
    seconds = [
        us_per_row(
            make_predictor(model),
            featurizer_of(model).transform_dataset(replace(test, vectors=None)),
            on_progress,
        )
        for model in map(model_of, (alone, ranked))
    ]
    gains = [report["ranked"][name] - report["alone"][name] for name in report["ranked"]]
    return {
        "rows": RANKED_ROWS,
        "gained": round(sum(gains) / len(gains), 2) if report["kept"] else 0.0,
        "times_as_long": round(seconds[1] / seconds[0], 1),
    }


def _stage(on_progress: OnProgress, number: int) -> OnProgress:
    """Begin a stage, and return what its phases report to: they share the bar of the stage.

    A phase is named by its number, so that the bar begins anew with each.
    """
    on_progress(_IN_ALL, number, len(STAGES))
    phases: list[str] = []

    def show(phase: str, done: int, total: int) -> None:
        if phase not in phases:
            phases.append(phase)
        on_progress(f"{STAGES[number]}, {phases.index(phase) + 1}", done, total)

    return show


def _split_rows(data: Path, dataset: Dataset, seed: int) -> tuple[Dataset, Dataset, Dataset]:
    """Return the rows to train on, to tune thresholds on, and to measure on. Raises BadData."""
    used = np.unique(dataset.labels.indices)
    if dataset.n_rows < LEAST_ROWS:
        raise BadData(
            f"{data}: expected {LEAST_ROWS} rows or more to learn from, found {dataset.n_rows}"
        )
    if len(used) < 2:
        names = [dataset.names[label] for label in used]
        raise BadData(
            f"{data}: expected two labels or more to tell apart, found "
            f"{f'only {names[0]!r:.80}' if names else 'rows without labels'}"
        )
    held_out, training_rows = divide(dataset.n_rows, dataset.n_rows, seed)
    train, valid, test = (
        dataset.take(rows) for rows in (training_rows, held_out[::2], held_out[1::2])
    )
    if not np.isin(test.labels.indices, train.labels.indices).any():
        raise BadData(
            f"{data}: expected labels that several rows share, found none of {test.n_rows} rows "
            f"held out to measure on among those of the other {train.n_rows} rows"
        )
    return train, valid, test
