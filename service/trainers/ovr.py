"""Trainer `ovr`: flat one-vs-rest, the baseline; a label tree whose root has every label as a child."""

from __future__ import annotations

import numpy as np

from service.trainers.classifiers import Members, members_of
from service.trainers.label_tree import ClassifierParameters, assemble, grow
from service.trainers.shape import Shape, join
from service.trainers.size import SizeEstimate, estimate_size
from service.trainers.source import RowSource, TrainingSet, all_rows
from service.trainers.spec import Trained, TrainerSpec, rows_by_label
from service.trainers.weighing import weigh
from service.trainers.work import Tools


class OvrParameters(ClassifierParameters):
    """Parameters of `ovr`."""


def _flat(data: TrainingSet) -> tuple[Shape, Members]:
    ptr, rows = rows_by_label(data.labels)
    shape = join(np.flatnonzero(np.diff(ptr)).astype(np.int32), [])
    return shape, members_of(ptr, rows, shape.labels)


def fit_ovr(source: RowSource, parameters: OvrParameters, tools: Tools) -> Trained:
    """Train one linear classifier a label, on all rows that carry any label."""
    data = all_rows(source)
    shape, members = _flat(data)
    weighed = weigh(data.rows, parameters.idf)
    tree = grow(weighed, shape, members, parameters.solving(data.rows), tools)
    return assemble(data, parameters, [tree])


def estimate_ovr(data: TrainingSet, parameters: OvrParameters, tools: Tools) -> SizeEstimate:
    """Return the size bound of what `fit_ovr` would train."""
    return estimate_size(data.rows, [_flat(data)], tools)


OVR = TrainerSpec(
    name="ovr",
    about="one linear classifier a label: the flat baseline, slow with many labels",
    parameters=OvrParameters,
    fit=fit_ovr,
    estimate=estimate_ovr,
)
