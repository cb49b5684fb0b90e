"""`xylem extend`: a version with labels that it did not have, without training it again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from model_store.checks import LABEL_COUNTS
from model_store.identifiers import check_model
from model_store.manifest import CALIBRATION, COMBINED
from model_store.names import NameTable, all_names, build_names, find_all
from model_store.origin import REPORT, origin_arrays, parent_of, read_origin, report_array
from model_store.store import Store
from model_store.version import Draft, Model, model_of
from service.base.columns import DEFAULT_COLUMNS, TableColumns
from service.base.errors import BadData, BadInstance, BadParameter
from service.base.rows import Dataset
from service.datasets import read_dataset
from service.features import Featurizer
from service.thresholds.methods.ofo import lower_bounds, no_counts, thresholds_of
from service.thresholds.store.codec import Tuned
from service.thresholds.store.state import ThresholdDatabase
from service.trainers.registry import check_regrowth, regrow
from service.trainers.regrowing import extend_trees
from service.trainers.source import TrainingSet
from service.vocabulary.featurizers import featurizer_of
from service.workflows.calibrate import draft_of
from service.workflows.combined_parts import name_of_member, renumbered
from service.workflows.evaluate import valid_figures
from service.workflows.kept_rows import join_rows, kept_rows, read_kept
from service.workflows.labelled import OnProgress, no_progress, read_labelled
from service.workflows.train import version_report

NEW_LABELS_MAX = 100_000
"""Labels that are added at once: beyond, and beyond as many as there are, a training is not much longer."""


@dataclass(frozen=True)
class ExtendRequest:
    """Labels to add, and the rows to learn them from.

    data        labelled rows, some with labels that the version does not have
    rows        files of the rows that it was trained on; none: those that it keeps
    valid       a labelled file to measure the result on
    label_names, columns, threads, origin, latest, made_for  as in TrainRequest
    """

    data: Path
    rows: Sequence[Path] = ()
    valid: Path | None = None
    label_names: Path | None = None
    columns: TableColumns = DEFAULT_COLUMNS
    threads: int = 1
    origin: Mapping[str, Any] = field(default_factory=dict)
    latest: bool = True
    made_for: str | None = None


class ExtendReport(NamedTuple):
    """What was published: so many labels added and classifiers trained, groups of labels divided."""

    model: str
    version: int
    parent: int
    labels: int
    added: int
    rows: int
    divided: int
    classifiers: int
    extend_seconds: float
    model_bytes: int
    metrics: Mapping[str, float]
    warnings: list[str]


def extend_and_publish(
    store: Store,
    name: str,
    reference: str | int,
    request: ExtendRequest,
    on_progress: OnProgress = no_progress,
) -> ExtendReport:
    """Publish a version of a store with more labels as the model's next one.

    Ids, names, features, calibration and all weights that no new label needs stay to the bit.

    Raises BadInput for a version that cannot be extended and for files that cannot be used, and StoreError.
    """
    check_model(name)
    store.prepare()
    model = store.open(name, reference)
    made = extend_model(model, request, on_progress)
    origin = {"parent": parent_of(model.manifest), **made.origin, **request.origin}
    draft = replace(made.draft, extra={**made.draft.extra, **origin_arrays(origin, request.made_for)})
    draft = replace(draft, files=store.files_of(model, draft.arrays()))
    on_progress("publish", 0, 1)
    published = store.publish(name, draft, latest=request.latest)
    on_progress("publish", 1, 1)
    return made.report._replace(model=name, version=published.version, model_bytes=published.model_bytes)


class Extended(NamedTuple):
    """What can be published, fields of its origin, and what is told of it but for its number and size."""

    draft: Draft
    origin: dict[str, Any]
    report: ExtendReport


def extend_model(model: Model, request: ExtendRequest, on_progress: OnProgress = no_progress) -> Extended:
    """Return an opened version with more labels. Raises BadInput. Deterministic."""
    manifest, shown = model.manifest, name_of_member(model)
    refuse_combined(model, "extend")
    check_regrowth(manifest, "extend")
    if not request.rows and read_kept(model) is None:
        raise BadParameter(
            f"extend: expected --rows, those that {shown} was trained on, or a version that keeps them "
            "(xylem train --keep-rows), found neither"
        )
    new = _read(request.data, request, on_progress)
    table = _with_new_names(model, new, request.data.name)
    featurizer = featurizer_of(model)
    old, warnings = _old_rows(model, table, featurizer, request, on_progress)
    on_progress("features", 0, 1)
    data = join_rows(old, rows_for(new, table, featurizer, request.data.name))
    on_progress("features", 1, 1)
    start = time.perf_counter()
    grown = regrow(model, data, extend_trees, request.threads, on_progress)
    seconds = time.perf_counter() - start
    counts = np.bincount(data.labels.indices, minlength=table.n_names).astype(np.int64)
    extra = {**draft_of(model).extra, LABEL_COUNTS: counts}
    if read_kept(model) is not None:
        extra.update(kept_rows(data))
    draft = replace(
        draft_of(model),
        ensemble=grown.ensemble,
        labels=table,
        data=manifest.data._replace(rows=data.n_rows),
        metrics={},
        extra=extra,
    )
    added = table.n_names - manifest.n_labels
    told = {"added": added, "divided": grown.divided, "classifiers": grown.classifiers, "seconds": seconds}
    draft = _measured(draft, {"extended": told}, warnings, request, on_progress)
    origin = {key: found for key, found in read_origin(model.arrays).items() if key == CALIBRATION}
    origin["extended"] = {"labels": added, "source": new.source, "rows": new.n_rows, "sha256": new.sha256}
    report = ExtendReport(
        "",
        0,
        manifest.version,
        table.n_names,
        added,
        data.n_rows,
        grown.divided,
        grown.classifiers,
        seconds,
        0,
        draft.metrics,
        warnings,
    )
    return Extended(draft, origin, report)


def refuse_combined(model: Model, what: str) -> None:
    """Raise BadParameter for a combined version; `what` is wanted of it."""
    if model.manifest.kind == COMBINED:
        raise BadParameter(
            f"{what}: expected a version of trees, found {name_of_member(model)}, a combined one: "
            f"{what} its member, and combine anew"
        )


def _read(path: Path, request: ExtendRequest, on_progress: OnProgress) -> Dataset:
    return read_dataset(
        path,
        label_names_file=request.label_names,
        columns=request.columns,
        on_progress=lambda done, total: on_progress("read", done, total),
    )


def rows_for(dataset: Dataset, labels: NameTable, featurizer: Featurizer, source: str) -> TrainingSet:
    """Return the rows of a data set with a version's features and labels. Raises BadData."""
    try:
        return TrainingSet(featurizer.transform_dataset(dataset), renumbered(dataset, labels).labels)
    except BadInstance as error:
        raise BadData(f"{source}: {error}") from None


def _with_new_names(model: Model, new: Dataset, source: str) -> NameTable:
    """Return the version's labels, and after them those that it does not have, sorted. Raises BadData."""
    names = new.label_names or [str(label) for label in range(new.labels.n_labels)]
    carried = sorted({names[label] for label in np.unique(new.labels.indices).tolist()})
    ids = find_all(model.labels, carried)
    added = [name for name, known in zip(carried, ids.tolist(), strict=True) if known < 0]
    shown, n_labels = name_of_member(model), model.manifest.n_labels
    if not added:
        raise BadData(
            f"{source}: expected labels that {shown} does not have, found {len(carried)} that it has already"
        )
    most = min(NEW_LABELS_MAX, max(1000, n_labels))
    if len(added) > most:
        raise BadData(
            f"{source}: expected at most {most} new labels at once for {n_labels} of {shown}, found "
            f"{len(added)}: train again"
        )
    return build_names([*all_names(model.labels), *added])


def _old_rows(
    model: Model, table: NameTable, featurizer: Featurizer, request: ExtendRequest, on_progress: OnProgress
) -> tuple[TrainingSet, list[str]]:
    """Return the rows that a version was trained on, and what may be wrong with them. Raises BadInput."""
    if not request.rows:
        kept = read_kept(model)
        assert kept is not None
        return kept._replace(labels=kept.labels._replace(n_labels=table.n_names)), []
    parts, sums = [], []
    for path in request.rows:
        dataset = _read(path, request, on_progress)
        parts.append(rows_for(dataset, table, featurizer, path.name))
        sums.append(dataset.sha256)
    warnings = []
    if model.manifest.data.sha256 not in sums:
        files = ", ".join(path.name for path in request.rows)
        warnings.append(f"{files}: not what {name_of_member(model)} was trained on")
    return TrainingSet.join(parts), warnings


def _measured(
    draft: Draft,
    training: dict[str, Any],
    warnings: list[str],
    request: ExtendRequest,
    on_progress: OnProgress,
) -> Draft:
    """Return a draft with its figures on the validation file, if there is one, and its report."""
    trial = model_of(draft)
    report = version_report(trial, training, None, None)
    if warnings:
        report["warnings"] = warnings
    if request.valid is not None:
        valid = read_labelled(trial, request.valid, on_progress, request.columns)
        metrics, report["validation"] = valid_figures(trial, valid, request.threads, on_progress)
        draft = replace(draft, metrics=metrics)
    return replace(draft, extra={**draft.extra, REPORT: report_array(report)})


def carry_thresholds(store: Store, name: str, version: int, kept_in: ThresholdDatabase) -> bool:
    """Give a version the thresholds of its parent, unless it has some; new labels begin as untuned ones do.

    Returns whether it did. Raises DatabaseUnavailable and StoreError.
    """
    model = store.open(name, version)
    parent = read_origin(model.arrays).get("parent") or {}
    if parent.get("model") != name or kept_in.load(name, version) is not None:
        return False
    tuned = kept_in.load(name, int(parent["version"]))
    if tuned is None:
        return False
    n_labels, n_old = model.manifest.n_labels, len(tuned.thresholds)
    counters = no_counts(n_labels)
    bounds = lower_bounds(model.arrays.get(LABEL_COUNTS), model.manifest.data.rows, n_labels)
    thresholds = thresholds_of(counters, tuned.start, bounds)
    thresholds[:n_old] = tuned.thresholds
    for mine, old in zip(counters, tuned.counters, strict=True):
        mine[:n_old] = old
    kept_in.save(name, version, Tuned(tuned.method, tuned.convention, tuned.start, thresholds, counters))
    return True
