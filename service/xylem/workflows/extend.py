"""`xylem extend`: add labels to a version, and carry its thresholds over to the next version."""

import numpy as np

from xylem.base import OnProgress, no_progress
from xylem.evaluation import learnt_labels
from xylem.thresholds import ThresholdDatabase, carried
from xylem.workflows.extend_members import extend_members
from xylem.workflows.going_on import check_base
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem.workflows.training_work import TrainReport
from xylem_store import (
    COMBINED,
    LABEL_COUNTS,
    Store,
    has_calibration,
    parse_named,
    read_origin,
    tree_digest,
)


def extend_and_publish(
    store: Store, model: str, request: TrainRequest, on_progress: OnProgress = no_progress
) -> TrainReport:
    """Publish a version with labels that its base does not have; the trainer is the base's.

    Ids, names, features, calibration, and all weights that no new label changes, stay to the bit.
    Of a combined version the members are extended.
    Raises as `train_and_publish`.
    """
    assert request.base is not None
    base = store.open(*parse_named(request.base))
    extension = request.model_copy(
        update={
            "trainer": base.manifest.trainer.name,
            "seed": base.manifest.seed,
            "extends": True,
            "parameters": (),
        }
    )
    if base.manifest.kind == COMBINED:
        return extend_members(store, model, base, extension, on_progress)
    check_base(base, extension, "extend")
    return train_and_publish(store, model, extension, on_progress)


def carry_thresholds(store: Store, name: str, version: int, database: ThresholdDatabase) -> bool:
    """Give a version the thresholds of its parent if they fit, unless it has some.

    They fit if the trees are the same, or if labels were added or got a leaf: these labels begin
    like untuned ones. They do not fit if the scores of only one of the versions are calibrated.
    Returns whether thresholds were carried over. Raises DatabaseUnavailable and StoreError.
    """
    model = store.open(name, version)
    parent = read_origin(model.arrays).get("parent") or {}
    if (
        parent.get("model") != name
        or database.load(name, version, model.manifest.digest) is not None
    ):
        return False
    number = int(parent["version"])
    tuned = database.load(
        name,
        number,
        store.manifest(name, number).digest if number in store.versions(name) else None,
    )
    if tuned is None:
        return False
    n_old = len(tuned.thresholds)
    parent_model = store.open(name, number)
    if has_calibration(parent_model.arrays) != has_calibration(model.arrays):
        return False
    gets_leaf = learnt_labels(model)[:n_old] & ~learnt_labels(parent_model)
    if (
        model.manifest.n_labels == n_old
        and not gets_leaf.any()
        and tree_digest(parent_model.ensemble) != tree_digest(model.ensemble)
    ):
        return False
    database.save(
        name,
        version,
        carried(
            tuned,
            model.arrays.get(LABEL_COUNTS),
            model.manifest.data.rows,
            model.manifest.n_labels,
            np.flatnonzero(~gets_leaf),
        ),
        model.manifest.digest,
    )
    return True
