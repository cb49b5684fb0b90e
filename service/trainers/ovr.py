"""Trainer `ovr`: flat one-vs-rest, the baseline; a label tree whose root has every label as a child."""

from __future__ import annotations

import numpy as np

from service.trainers.bounds import Bound, Counts
from service.trainers.classifiers import Members, members_of
from service.trainers.label_tree import ClassifierParameters, assemble, grow
from service.trainers.label_tree_bounds import bound_label_trees
from service.trainers.shape import Shape, join
from service.trainers.size import SizeEstimate, estimate_size
from service.trainers.spec import Trained, TrainerSpec, TrainingSet, rows_by_label
from service.trainers.weighing import weigh
from service.trainers.work import Crew, Progress


class OvrParameters(ClassifierParameters):
    """Parameters of `ovr`."""


def _flat(data: TrainingSet) -> tuple[Shape, Members]:
    ptr, rows = rows_by_label(data.labels)
    shape = join(np.flatnonzero(np.diff(ptr)).astype(np.int32), [])
    return shape, members_of(ptr, rows, shape.labels)


def train_ovr(
    data: TrainingSet, parameters: OvrParameters, seed: int, crew: Crew, progress: Progress
) -> Trained:
    """Train one linear classifier a label, on all rows that carry any label."""
    shape, members = _flat(data)
    weighed = weigh(data.rows, parameters.idf)
    tree = grow(weighed, shape, members, parameters.solving(data.rows), seed, crew, progress)
    return assemble(data, parameters, [tree])


def estimate_ovr(
    data: TrainingSet, parameters: OvrParameters, seed: int, crew: Crew, progress: Progress
) -> SizeEstimate:
    """Return the size bound of what `train_ovr` would train."""
    return estimate_size(data.rows, [_flat(data)], crew, progress)


def bound_ovr(p: OvrParameters, c: Counts) -> Bound:
    """Return what a training takes at most: that of a tree with one node."""
    return bound_label_trees(c, [c.labels], p.max_epochs, 1)


OVR = TrainerSpec(
    name="ovr",
    about="one linear classifier a label: the flat baseline, slow with many labels",
    parameters=OvrParameters,
    train=train_ovr,
    estimate=estimate_ovr,
    bound=bound_ovr,
)
