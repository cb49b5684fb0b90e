"""Continue a training from a version: add labels, learn other rows, or make the remaining passes.

A version may keep its training rows for that, so that old rows and new ones are learnt together.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import (
    BadData,
    BadParameter,
    Crew,
    Dataset,
    LabelRows,
    OnProgress,
    SparseRows,
    TextFields,
    offsets,
    split_items,
)
from xylem.datasets import STDIN, DataStream
from xylem.engine import Featurizer
from xylem.evaluation import learnt_labels
from xylem.trainers import (
    LearnerState,
    PassPlan,
    SoftmaxParameters,
    Trained,
    TrainingSet,
    check_growth,
    check_that,
    grow_on,
    matrix_of,
    read_state,
    trainer,
)
from xylem.vocabulary import featurizer_of
from xylem.workflows.file_source import FileSource
from xylem.workflows.prepared import PreparedRows, PreparedSource, prepare, rows_for, rows_of_base
from xylem.workflows.request import Chosen, TrainRequest
from xylem_store import (
    CALIBRATION,
    COMBINED,
    EMBEDDING,
    FEEDBACK,
    LABEL_COUNTS,
    ROWS,
    Corrupt,
    Model,
    NameTable,
    all_names,
    build_names,
    check_all,
    check_bounds,
    find_all,
    learnt_feedback,
    parent_of,
    read_origin,
    take,
)

_PARTS = {
    "indptr": "int64",
    "indices": "int32",
    "values": "float32",
    "label_ptr": "int64",
    "label_idx": "int32",
}


def kept_rows(data: TrainingSet) -> dict[str, NDArray[Any]]:
    """Return the arrays that store training rows with a version."""
    rows, labels = data
    arrays: tuple[NDArray[Any], ...] = (*rows[:3], *labels[:2])
    return {f"{ROWS}/{name}": array for name, array in zip(_PARTS, arrays, strict=True)}


def keeps_rows(model: Model) -> bool:
    """Return whether a version stores its training rows."""
    return f"{ROWS}/indptr" in model.arrays


def read_kept(model: Model) -> TrainingSet | None:
    """Return the training rows that a version stores, None if it stores none. Raises Corrupt."""
    if not keeps_rows(model):
        return None
    arrays = model.at_rest(ROWS)
    check_bounds({**model.arrays, **arrays}, {"n_features": model.manifest.n_features}, ROWS)
    indptr, indices, values, label_ptr, label_idx = (
        take(arrays, f"{ROWS}/{name}", dtype, (None,)) for name, dtype in _PARTS.items()
    )
    check_all(f"{ROWS}/values", np.isfinite(values), "a finite number", values)
    if len(values) != len(indices) or len(label_ptr) != len(indptr):
        raise Corrupt(ROWS, "a value for each index, and labels for each row", "others")
    return TrainingSet(
        SparseRows(indptr, indices, values, model.manifest.n_features),
        LabelRows(label_ptr, label_idx, model.manifest.n_labels),
    )


def join_rows(old: TrainingSet, new: TrainingSet) -> TrainingSet:
    """Return old and new rows; a new row that repeats an old one is joined to it.

    If a new row is equal to an old one, to the bit, the old row gets its labels too. Otherwise the
    old row, which lacks the new label, would be a negative example of the label that the same
    document shows.
    """
    data = TrainingSet.join([old, new])
    data.labels.refuse_weights("extend")
    rows, labels = data
    sums = matrix_of(rows) @ np.random.default_rng(0).random(rows.n_features)
    into = np.arange(rows.n_rows)
    first = dict[bytes, int]()
    for row in np.flatnonzero(
        np.isin(sums, sums[old.n_rows :]) & (np.diff(rows.indptr) > 0)
    ).tolist():
        part = slice(rows.indptr[row], rows.indptr[row + 1])
        key = rows.indices[part].tobytes() + rows.values[part].tobytes()
        if row < old.n_rows:
            first.setdefault(key, row)
        else:
            into[row] = first.get(key, row)
    carrier = np.repeat(into, np.diff(labels.indptr)).astype(np.int64)
    pairs = np.sort(carrier * labels.n_labels + labels.indices)
    # distinct pairs; numpy's unique takes ten times as long
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    carrier, label = np.divmod(pairs, labels.n_labels)
    joined_labels = LabelRows(
        offsets(np.bincount(carrier, minlength=rows.n_rows)),
        label.astype(np.int32),
        labels.n_labels,
    )
    return TrainingSet(rows, joined_labels).take(np.flatnonzero(into == np.arange(rows.n_rows)))


# At most this many labels are added at once, and not more than there are already.
#
# Beyond that, training again does not take much longer.
NEW_LABELS_MAX = 100_000


class GoingOn(NamedTuple):
    """A version that a training continues from, and what the version decides of the request.

    state  of a learner that makes further passes; None: labels are added to trees, or other rows
           are learnt
    """

    base: Model
    request: TrainRequest
    chosen: Chosen
    state: LearnerState | None = None


def going_on(base: Model, request: TrainRequest, chosen: Chosen) -> GoingOn:
    """Return how a training continues from a version.

    Raises BadParameter, and Corrupt for a damaged state.
    """
    keep_rows = request.keep_rows or (keeps_rows(base) and not request.stream)
    manifest = base.manifest
    request = request.model_copy(
        update={
            "keep_rows": keep_rows,
            "columns": request.columns.for_version(TextFields.of_options(manifest.fields)),
        }
    )
    if request.extends or manifest.trainer.name != request.trainer:
        return GoingOn(base, request, chosen)
    spec = trainer(request.trainer)
    parameter_values: dict[str, Any] = dict(manifest.trainer.parameters)
    plan = spec.plan(spec.parameters.from_json(parameter_values))
    if plan is None:
        return GoingOn(base, request, chosen)
    state = read_state(base)
    base_name = manifest.full_name
    changed = set(
        request.parameters
        if isinstance(request.parameters, Mapping)
        else split_items(request.parameters)
    )
    if changed - {plan.parameter} or request.weights != "float32":
        raise BadParameter(
            f"from: expected parameters and weights of {base_name} to stay, but for "
            f"{plan.parameter}, found others"
        )
    if changed:
        parameter_values[plan.parameter] = getattr(chosen.trainer, plan.parameter)
    parameters = spec.parameters.from_json(parameter_values)
    new_plan = spec.plan(parameters)
    assert new_plan is not None
    if new_plan.passes != plan.passes and not plan.is_open:
        raise BadParameter(
            f"{plan.parameter}: expected {plan.passes} as {base_name}, on which its steps depend, "
            f"found {new_plan.passes}"
        )
    _check_passes_left(request, state, new_plan, base_name)
    features = (
        {}
        if isinstance(parameters, SoftmaxParameters) and parameters.task == "text"
        else dict(manifest.features)
    )
    until = 0 if request.until == new_plan.passes else request.until
    request = request.model_copy(
        update={
            "seed": manifest.seed,
            "weights": manifest.weights,
            "keep_state": plan.is_open or until > 0,
            "until": until,
        }
    )
    return GoingOn(base, request, Chosen(parameters, features), state)


def _check_passes_left(
    request: TrainRequest, state: LearnerState, plan: PassPlan, base_name: str
) -> None:
    """Raise BadParameter if no pass over the data is left."""
    if request.data == STDIN:
        return
    if state.facts.get("once") is True:
        description = f"{base_name}, which learns from standard input"
        raise BadParameter(f"data: expected -, to go on from {description}, found a file")
    if state.passes >= plan.passes:
        hint = f": plan more by -p {plan.parameter}" if plan.is_open else ""
        description = f"{base_name}, which has made all {plan.passes}"
        raise BadParameter(
            f"from: expected a version with passes that are left, found {description}{hint}"
        )
    if request.until and request.until <= state.passes:
        raise BadParameter(
            f"until: expected a pass after {state.passes}, the last one of {base_name}, found "
            f"{request.until}"
        )


def other_rows(base: Model, request: TrainRequest, on_progress: OnProgress) -> PreparedRows:
    """Return rows to learn from the version's weights; it has learnt all their labels.

    Raises BadInput.
    """
    check_base(base, request, "from")
    dataset = request.read(on_progress)
    dataset.labels.refuse_weights("from")
    if to_learn := labels_to_learn(base, dataset):
        raise BadData(
            f"{dataset.source}: expected labels that {base.manifest.full_name} has learnt, found "
            f"{len(to_learn)} others, as {to_learn[0]!r:.80}: add them by xylem extend"
        )
    return rows_of_base(base, dataset)


def rows_with_new_labels(
    base: Model, request: TrainRequest, on_progress: OnProgress
) -> PreparedRows:
    """Return the rows that the version was trained on together with those that have new labels.

    The new labels come after the others. Raises BadInput.
    """
    check_base(base, request, "extend")
    dataset = request.read(on_progress)
    table = _with_new_names(base, dataset)
    featurizer = featurizer_of(base)
    old, warning = _old_rows(base, table, featurizer, request, on_progress)
    data = join_rows(old, rows_for(dataset, table, featurizer))
    return PreparedRows(
        data, table, featurizer, base.manifest.data._replace(rows=data.n_rows), warning
    )


def rows_of_passes(continuation: GoingOn, crew: Crew, on_progress: OnProgress) -> PreparedSource:
    """Return the rows of further passes, with the version's features and labels.

    They are the rows of the passes before, or new rows of standard input, whose labels may be new.
    Raises BadInput.
    """
    base = continuation.base
    request = continuation.request
    assert continuation.state is not None
    if request.data == STDIN and continuation.chosen.features:
        ids = continuation.state.take("ids", "int32", base.manifest.n_labels)
        names = all_names(base.labels)
        check_that(np.array_equal(np.sort(ids), np.arange(len(ids))), "each label once")
        return FileSource(
            DataStream(
                request.data,
                columns=request.columns,
                earlier_labels=[names[label] for label in ids.tolist()],
            ),
            continuation.chosen.features,
            on_progress,
            featurizer_of(base),
            base.arrays[LABEL_COUNTS][ids],
        )
    source = prepare(
        request,
        continuation.chosen,
        crew,
        on_progress,
        base if continuation.chosen.features else None,
    )
    _ = source.census  # a stream is read for it, after which its digest is known
    info = source.data_info
    if info.sha256 != base.manifest.data.sha256:
        raise BadData(
            f"{info.source}: expected the rows of {base.manifest.full_name}, over which its "
            "passes go, found others"
        )
    return source


def go_on(
    base: Model, source: PreparedRows, request: TrainRequest, crew: Crew, on_progress: OnProgress
) -> Trained:
    """Return the result of a training on such rows, with weights of the version's type.

    If labels are added, the calibration and the embeddings stay.
    """
    grown = grow_on(base, source.data, "extend" if request.extends else "from", crew, on_progress)
    extra = (
        {
            name: array
            for name, array in base.arrays.items()
            if name.startswith((f"{CALIBRATION}/", f"{EMBEDDING}/"))
        }
        if request.extends
        else {}
    )
    n_leaves = [int((trees.label_leaf[0] >= 0).sum()) for trees in (base.ensemble, grown.ensemble)]
    parameters: Any = dict(base.manifest.trainer.parameters)
    return Trained(
        ensemble=grown.ensemble,
        kind=base.manifest.kind,
        link=base.manifest.link,
        parameters=parameters,
        n_nonzeros=0,
        extra=extra,
        report={
            "labels_added": n_leaves[1] - n_leaves[0],
            "groups_divided": grown.divided,
            "classifiers": grown.classifiers,
        },
    )


def origin_of(base: Model, request: TrainRequest) -> dict[str, Any]:
    """Return the origin of a version that continues from another.

    It has learnt the feedback that the other version had learnt.
    """
    origin = read_origin(base.arrays)
    return {
        **request.origin,
        "parent": parent_of(base.manifest),
        FEEDBACK: {**learnt_feedback(base.arrays), **request.origin.get(FEEDBACK, {})},
        **({CALIBRATION: origin[CALIBRATION]} if request.extends and CALIBRATION in origin else {}),
    }


def check_base(base: Model, request: TrainRequest, operation: str) -> None:
    """Raise BadParameter for a version that a training cannot continue from.

    operation  "extend" or "from", for the errors
    """
    base_name = base.manifest.full_name
    manifest = base.manifest
    if manifest.kind == COMBINED:
        raise BadParameter(
            f"{operation}: expected a version of trees, found {base_name}, a combined one: "
            "take its member, and combine anew"
        )
    if manifest.trainer.name != request.trainer:
        raise BadParameter(
            f"{operation}: expected a version of {request.trainer}, found {base_name}, one of "
            f"{manifest.trainer.name}"
        )
    check_growth(manifest, operation)
    if request.parameters or request.weights != "float32":
        raise BadParameter(
            f"{operation}: expected parameters and weights of {base_name} to stay, found others"
        )
    if request.extends and not request.rows and not keeps_rows(base):
        raise BadParameter(
            f"extend: expected --rows, those that {base_name} was trained on, or a version that "
            "keeps them (xylem train --keep-rows), found neither"
        )


def labels_to_learn(model: Model, data: Dataset) -> list[str]:
    """Return the labels of the rows that a version has not learnt, sorted.

    The version does not have these labels, or lists them without a leaf. Raises BadData for numbers
    of labels if those of the version have names.
    """
    if data.label_names is None and all_names(model.labels) != list(
        map(str, range(model.labels.n_names))
    ):
        raise BadData(
            f"{data.source}: expected the names of its labels (--label-names), as "
            f"{model.manifest.full_name} has names, found numbers alone"
        )
    labels = np.unique(data.labels.indices).tolist()
    carried = sorted(
        map(str, labels)
        if data.label_names is None
        else {data.label_names[label] for label in labels}
    )
    ids = find_all(model.labels, carried)
    return [carried[i] for i in np.flatnonzero((ids < 0) | ~learnt_labels(model)[ids]).tolist()]


def _with_new_names(model: Model, new: Dataset) -> NameTable:
    """Return the version's labels, and after them those that it lacks, sorted. Raises BadData.

    If labels of the rows are numbers, all numbers up to the largest are listed. So each number
    stays its own id, which files without names refer to later.
    """
    n_labels = model.manifest.n_labels
    to_learn = labels_to_learn(model, new)
    if not to_learn:
        raise BadData(
            f"{new.source}: expected labels that {model.manifest.full_name} does not have, found "
            f"{len(np.unique(new.labels.indices))}, which it has"
        )
    if new.label_names is None:
        added: Sequence[int | str] = range(n_labels, max(map(int, to_learn)) + 1)
    else:
        added = [to_learn[i] for i in np.flatnonzero(find_all(model.labels, to_learn) < 0).tolist()]
    n_max = min(NEW_LABELS_MAX, max(1000, n_labels))
    n_new = max(len(added), len(to_learn))
    if n_new > n_max:
        raise BadData(
            f"{new.source}: expected at most {n_max} new labels at once for {n_labels} of "
            f"{model.manifest.full_name}, found {n_new}: train again"
        )
    return build_names([*all_names(model.labels), *map(str, added)])


def _old_rows(
    model: Model,
    table: NameTable,
    featurizer: Featurizer,
    request: TrainRequest,
    on_progress: OnProgress,
) -> tuple[TrainingSet, str | None]:
    """Return the rows that a version was trained on, and a warning about them or None.

    Raises BadInput.
    """
    stored_rows = read_kept(model)
    if not request.rows and stored_rows is not None:
        return stored_rows._replace(
            labels=stored_rows.labels._replace(n_labels=table.n_names)
        ), None
    datasets = [request.read(on_progress, file) for file in request.rows]
    warning = (
        f"{', '.join(dataset.source for dataset in datasets)}: not what "
        f"{model.manifest.full_name} was trained on"
        if all(dataset.sha256 != model.manifest.data.sha256 for dataset in datasets)
        else None
    )
    return TrainingSet.join([rows_for(dataset, table, featurizer) for dataset in datasets]), warning
