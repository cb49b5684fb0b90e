"""A training that goes on from a version: labels are added, or its classifiers learn other rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from model_store.manifest import CALIBRATION, COMBINED, DataInfo
from model_store.names import NameTable, all_names, build_names, find_all
from model_store.origin import parent_of, read_origin
from model_store.version import Model
from service.base.errors import BadData, BadInstance, BadParameter
from service.base.rows import Dataset
from service.datasets import read_dataset
from service.executors.local import Crew
from service.features import Featurizer
from service.trainers.registry import check_regrowth, regrow
from service.trainers.regrowing import extend_trees, refit_trees
from service.trainers.source import TrainingSet
from service.trainers.spec import Trained
from service.vocabulary.featurizers import featurizer_of
from service.workflows.combined_parts import renumbered
from service.workflows.kept_rows import join_rows, read_kept
from service.workflows.labelled import OnProgress
from service.workflows.prepared import PreparedRows
from service.workflows.request import TrainRequest

NEW_LABELS_MAX = 100_000
"""Labels that are added at once: beyond, and beyond as many as there are, a training is not much longer."""


def prepare_on(base: Model, request: TrainRequest, on_progress: OnProgress) -> PreparedRows:
    """Return the rows of a training that goes on from a version, with its features and labels.

    Where `request.extends`, these are old rows and new ones, and labels that are new come after the others.
    Raises BadInput for a version that cannot go on, and for files that cannot be used.
    """
    shown, manifest = base.manifest.shown, base.manifest
    what = "extend" if request.extends else "from"
    _check_base(base, request, what)
    dataset = _read(request, 0, on_progress)
    featurizer = featurizer_of(base)
    if not request.extends:
        data = _rows_for(dataset, base.labels, featurizer)
        unknown = renumbered(dataset, base.labels).unknown_names
        if unknown:
            raise BadData(
                f"{dataset.source}: expected labels of {shown}, found {len(unknown)} others, as "
                f"{unknown[0]!r:.80}: add them by xylem extend"
            )
        info = DataInfo(dataset.source, dataset.n_rows, dataset.sha256)
        return PreparedRows(data, base.labels, featurizer, info, dataset.warning)
    table = _with_new_names(base, dataset)
    old, warning = _old_rows(base, table, featurizer, request, on_progress)
    data = join_rows(old, _rows_for(dataset, table, featurizer))
    return PreparedRows(data, table, featurizer, manifest.data._replace(rows=data.n_rows), warning)


def go_on(
    base: Model, source: PreparedRows, request: TrainRequest, crew: Crew, on_progress: OnProgress
) -> Trained:
    """Return what a training on such rows gives, with weights of the version's type.

    Where labels are added, the calibration stays.
    """
    grow = extend_trees if request.extends else refit_trees
    grown = regrow(base, source.data, grow, crew, on_progress)
    manifest, extra = base.manifest, {}
    if request.extends:
        extra = {name: array for name, array in base.arrays.items() if name.startswith(f"{CALIBRATION}/")}
    added = source.names.n_names - manifest.n_labels
    report = {"labels_added": added, "groups_divided": grown.divided, "classifiers": grown.classifiers}
    parameters: Any = dict(manifest.trainer.parameters)
    return Trained(grown.ensemble, manifest.kind, manifest.link, parameters, 0, extra, report)


def origin_of(base: Model, request: TrainRequest) -> dict[str, Any]:
    """Return the fields of the origin of what goes on from a version."""
    kept = {name: found for name, found in read_origin(base.arrays).items() if name == CALIBRATION}
    return {"parent": parent_of(base.manifest), **(kept if request.extends else {})}


def _check_base(base: Model, request: TrainRequest, what: str) -> None:
    """Raise BadParameter for a version that cannot go on so."""
    shown, manifest = base.manifest.shown, base.manifest
    if manifest.kind == COMBINED:
        raise BadParameter(
            f"{what}: expected a version of trees, found {shown}, a combined one: take its member, and "
            "combine anew"
        )
    if manifest.trainer.name != request.trainer:
        found = f"found {shown}, one of {manifest.trainer.name}"
        raise BadParameter(f"{what}: expected a version of {request.trainer}, {found}")
    check_regrowth(manifest, what)
    if request.parameters or request.weights != "float32":
        raise BadParameter(f"{what}: expected parameters and weights of {shown} to stay, found others")
    if request.extends and not request.rows and read_kept(base) is None:
        raise BadParameter(
            f"extend: expected --rows, those that {shown} was trained on, or a version that keeps them "
            "(xylem train --keep-rows), found neither"
        )


def _read(request: TrainRequest, number: int, on_progress: OnProgress) -> Dataset:
    """Read the data of a request, or after it the files of old rows."""
    return read_dataset(
        [request.data, *request.rows][number],
        label_names_file=request.label_names,
        columns=request.columns,
        on_progress=lambda done, total: on_progress("read", done, total),
    )


def _rows_for(dataset: Dataset, labels: NameTable, featurizer: Featurizer) -> TrainingSet:
    """Return the rows of a data set with a version's features and labels. Raises BadData."""
    try:
        return TrainingSet(featurizer.transform_dataset(dataset), renumbered(dataset, labels).labels)
    except BadInstance as error:
        raise BadData(f"{dataset.source}: {error}") from None


def _with_new_names(model: Model, new: Dataset) -> NameTable:
    """Return the version's labels, and after them those that it does not have, sorted. Raises BadData."""
    names = new.label_names or [str(label) for label in range(new.labels.n_labels)]
    carried = sorted({names[label] for label in np.unique(new.labels.indices).tolist()})
    ids = find_all(model.labels, carried)
    added = [name for name, known in zip(carried, ids.tolist(), strict=True) if known < 0]
    shown, n_labels = model.manifest.shown, model.manifest.n_labels
    if not added:
        raise BadData(
            f"{new.source}: expected labels that {shown} does not have, found {len(carried)}, which it has"
        )
    most = min(NEW_LABELS_MAX, max(1000, n_labels))
    if len(added) > most:
        raise BadData(
            f"{new.source}: expected at most {most} new labels at once for {n_labels} of {shown}, found "
            f"{len(added)}: train again"
        )
    return build_names([*all_names(model.labels), *added])


def _old_rows(
    model: Model, table: NameTable, featurizer: Featurizer, request: TrainRequest, on_progress: OnProgress
) -> tuple[TrainingSet, str | None]:
    """Return the rows that a version was trained on, and what may be wrong with them. Raises BadInput."""
    kept = read_kept(model)
    if not request.rows and kept is not None:
        return kept._replace(labels=kept.labels._replace(n_labels=table.n_names)), None
    datasets = [_read(request, 1 + number, on_progress) for number in range(len(request.rows))]
    warning = None
    if all(dataset.sha256 != model.manifest.data.sha256 for dataset in datasets):
        files = ", ".join(dataset.source for dataset in datasets)
        warning = f"{files}: not what {model.manifest.shown} was trained on"
    return TrainingSet.join([_rows_for(dataset, table, featurizer) for dataset in datasets]), warning
