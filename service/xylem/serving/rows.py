"""Convert requests for the engine: instances to sparse rows, options to the engine's options.

A long text may be divided into chunks, with a row for each (`xylem.serving.chunks`).
"""

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from xylem.base import BadInput, BadInstance, DatabaseUnavailable, NotTuned, SparseRows, TextFields
from xylem.engine import Featurizer, NodeThresholds, Predictions, PredictOptions
from xylem.serving.chunks import chunks_of, rows_of_chunks, search_chunks
from xylem.serving.dialects.predict.schema import Options
from xylem.serving.live.served import ServedVersion
from xylem.serving.schemas.fields import (
    AnyInstance,
    FieldsInstance,
    NamedInstance,
    SparseInstance,
    TextInstance,
)
from xylem_store import F32, I64, U8

Rows = TypeVar("Rows")


def to_rows(instances: Sequence[AnyInstance], featurizer: Featurizer) -> SparseRows:
    """Return a row for each instance, in their order.

    Raises BadInstance if the model does not take one, with its path, such as
    `instances[3].indices`.
    """
    try:
        return transform(instances, featurizer)
    except BadInput:
        for i, instance in enumerate(instances):
            try:
                transform([instance], featurizer)
            except BadInput as error:
                raise error.without("instances[0]").within(f"instances[{i}]") from None
        raise


def rows_and_faults(
    instances: Sequence[AnyInstance],
    featurizer: Featurizer,
    make: Callable[[Sequence[AnyInstance], Featurizer], Rows],
) -> tuple[Rows, Sequence[BadInput | None]]:
    """Return the rows that `make` returns for the valid instances, and each instance's error.

    The error of a valid instance is None.
    """
    try:
        return make(instances, featurizer), [None] * len(instances)
    except BadInput:
        faults: list[BadInput | None] = [None] * len(instances)
        for i, instance in enumerate(instances):
            try:
                transform([instance], featurizer)
            except BadInput as error:
                faults[i] = error.without_frames().without("instances[0]")
        return make(
            [instance for instance, fault in zip(instances, faults, strict=True) if fault is None],
            featurizer,
        ), faults


def transform(instances: Sequence[AnyInstance], featurizer: Featurizer) -> SparseRows:
    """Return a row for each instance. Raises BadInstance, which need not name the instance."""
    if not instances:
        return _transform_raw([], featurizer)
    texts = [instance.text for instance in instances if isinstance(instance, TextInstance)]
    if len(texts) == len(instances):
        return featurizer.transform_with_vectors(texts, _vectors_of(instances))
    raw = [instance for instance in instances if isinstance(instance, SparseInstance)]
    if len(raw) == len(instances):
        return _transform_raw(raw, featurizer)
    named_features = [
        instance.features for instance in instances if isinstance(instance, NamedInstance)
    ]
    if len(named_features) == len(instances):
        return featurizer.transform_named(named_features)
    if any(isinstance(instance, FieldsInstance) for instance in instances):
        return transform(with_texts(instances, featurizer), featurizer)
    places = (
        [i for i, instance in enumerate(instances) if isinstance(instance, kind)]
        for kind in (TextInstance, SparseInstance, NamedInstance)
    )
    parts = list(filter(None, places))
    return SparseRows.join(
        [transform([instances[i] for i in part], featurizer) for part in parts]
    ).take(np.argsort(np.concatenate(parts)))


def with_texts(
    instances: Sequence[AnyInstance], featurizer: Featurizer
) -> list[TextInstance | SparseInstance | NamedInstance]:
    """Return the instances; those of fields become texts.

    Raises BadInstance, which need not name the instance, for fields that the version does not have.
    """
    try:
        return [
            TextInstance.model_construct(
                text=featurizer.fields.text(instance.fields), vector=instance.vector
            )
            if isinstance(instance, FieldsInstance)
            else instance
            for instance in instances
        ]
    except BadInstance as error:
        raise error.with_path(TextFields.key) from None


def unknown_rows(instances: Sequence[AnyInstance], rows: SparseRows) -> list[int]:
    """Return the rows of texts and named features in which the model knows no feature."""
    if len(instances) == 1 and len(rows.indices):  # the usual request: save the time
        return []
    return [
        row
        for row in np.flatnonzero(rows.indptr[1:] == rows.indptr[:-1]).tolist()
        if not isinstance(instances[row], SparseInstance)
    ]


def n_items_of(instance: AnyInstance, featurizer: Featurizer) -> int:
    """Return the size of an instance in items: its features, or its characters.

    Each character counts as the featurizer's `items_a_character`, as often as its field weighs.
    """
    if isinstance(instance, TextInstance):
        return len(instance.text) * featurizer.items_a_character + len(instance.vector or ())
    if isinstance(instance, FieldsInstance):
        n = sum(weight * len(instance.fields.get(name) or "") for name, weight in featurizer.fields)
        return n * featurizer.items_a_character + len(instance.vector or ())
    return len(instance.indices) if isinstance(instance, SparseInstance) else len(instance.features)


def _vectors_of(instances: Sequence[AnyInstance]) -> F32 | None:
    """Return the vectors of texts, None if none has one.

    Raises BadInstance if only some have one, or if they are of several lengths: at most one of them
    is right then, so that each instance is tried by itself.
    """
    vectors = [instance.vector for instance in instances if isinstance(instance, TextInstance)]
    lengths = {None if vector is None else len(vector) for vector in vectors}
    if lengths == {None}:
        return None
    if len(lengths) > 1:
        raise BadInstance("expected vectors of one length, found several")
    with np.errstate(over="ignore"):  # a number too large for 32 bits becomes infinite: refused
        return np.array(vectors, np.float64).astype(np.float32)


def _transform_raw(instances: Sequence[SparseInstance], featurizer: Featurizer) -> SparseRows:
    """Return the rows of sparse instances. Their parser has checked the types of all elements."""
    ends = array("q", [0])
    indices = array("q")
    values = array("f")
    try:
        for instance in instances:
            indices.fromlist(instance.indices)
            values.fromlist(instance.values)
            ends.append(len(indices))
    except OverflowError:
        raise BadInstance(
            f"expected feature ids from 0 to {featurizer.n_features - 1}, found a larger one"
        ).with_path("indices") from None
    return featurizer.transform_csr(
        np.frombuffer(ends, np.int64),
        np.frombuffer(indices, np.int64),
        np.frombuffer(values, np.float32),
    )


def to_options(options: Options, served: ServedVersion, stop: U8 | None = None) -> PredictOptions:
    """Return the engine's options.

    stop   the flag that ends a search early

    Raises UnknownLabel, UnsupportedOption, and NotTuned if tuned thresholds are requested and the
    version has none.
    """
    threshold = options.threshold
    # a mask of lists excludes the labels in `served.denied` too
    mask = (
        served.denied and served.denied.mask
        if options.allow_labels is None and options.deny_labels is None
        else served.masks.mask_of(options.allow_labels, options.deny_labels)
    )
    return PredictOptions(
        top_r=options.top_r,
        beam_width=options.beam_width,
        exact=options.exact,
        threshold=present_thresholds(served) if isinstance(threshold, str) else threshold,
        mask=mask,
        weights=None
        if options.label_weights is None
        else served.weights.prepare(options.label_weights),
        costs=options.statistics,
        stop=stop,
        limit=served.thresholds.limit if isinstance(threshold, str) else None,
    )


def present_thresholds(served: ServedVersion) -> NodeThresholds:
    """Return the thresholds in force, as the engine takes them.

    Raises NotTuned, and DatabaseUnavailable until they could be read.
    """
    live = served.thresholds
    prepared: NodeThresholds | None = live.prepared
    if prepared is not None:
        return prepared
    version = f"model {live.model} version {live.version}"
    if not live.is_known:
        raise DatabaseUnavailable(
            f"{version}: expected its thresholds in the database, found no answer"
        )
    raise NotTuned(
        f"{version}: expected tuned thresholds, found none: call xylem thresholds, send "
        "feedback, or ask for "
        "a number"
    ).with_path("threshold")


def with_present_thresholds(options: PredictOptions, served: ServedVersion) -> PredictOptions:
    """Return the options, with tuned thresholds replaced by those in force now."""
    return (
        options._replace(threshold=present_thresholds(served), limit=served.thresholds.limit)
        if isinstance(options.threshold, np.ndarray)
        else options
    )


class ChunkedRows(NamedTuple):
    """The rows of instances, some of which may be divided into chunks.

    rows      a row for each chunk
    ptr       int64[n + 1]: instance i has the rows ptr[i] to ptr[i + 1]; None: one row each
    unknown   the instances in which the model knows no feature
    instances  those that the rows were made of, for explanations; empty if they are not available
    """

    rows: SparseRows
    ptr: I64 | None
    unknown: list[int]
    instances: Sequence[AnyInstance] = ()

    def text(self, row: int) -> str | None:
        """Return the text that a row was made of; None if it is no text, or not available."""
        return getattr(self.instances[row], "text", None) if self.instances else None


def to_chunked_rows(
    instances: Sequence[AnyInstance], featurizer: Featurizer, characters_max: int | None
) -> ChunkedRows:
    """Return the rows of instances; longer texts are divided into chunks.

    characters_max  the most characters of a chunk; None: texts are not divided

    Raises BadInstance as `to_rows`.
    """
    try:
        return divide_texts(instances, featurizer, characters_max)
    except BadInput:
        to_rows(instances, featurizer)  # raises an error that names the instance
        raise


def divide_texts(
    instances: Sequence[AnyInstance], featurizer: Featurizer, characters_max: int | None
) -> ChunkedRows:
    """Do the same as `to_chunked_rows`, but an error need not name the instance."""
    instances = with_texts(instances, featurizer)
    if characters_max is None:
        rows = transform(instances, featurizer)
        return ChunkedRows(rows, None, unknown_rows(instances, rows), instances)
    chunks: list[AnyInstance] = []
    ptr = np.zeros(len(instances) + 1, np.int64)
    for i, instance in enumerate(instances):
        if isinstance(instance, TextInstance) and len(instance.text) > characters_max:
            chunks += [
                TextInstance(text=chunk, vector=instance.vector)
                for chunk in chunks_of(instance.text, characters_max)
            ]
        else:
            chunks.append(instance)
        ptr[i + 1] = len(chunks)
    rows = rows_of_chunks(chunks, ptr, transform, featurizer)
    is_unknown = np.zeros(len(chunks) + 1, np.int64)
    is_unknown[[chunk + 1 for chunk in unknown_rows(chunks, rows)]] = 1
    return ChunkedRows(
        rows, ptr, np.flatnonzero(np.diff(np.cumsum(is_unknown)[ptr]) == np.diff(ptr)).tolist()
    )


def search_chunked(
    search: Callable[[SparseRows, PredictOptions], Predictions],
    chunked: ChunkedRows,
    options: PredictOptions,
    served: ServedVersion,
) -> Predictions:
    """Search rows, and return one prediction for each instance."""
    if chunked.ptr is None:
        return search(chunked.rows, options)
    return search_chunks(
        search,
        chunked.rows,
        chunked.ptr,
        options,
        served.labels.n_names,
        served.thresholds.thresholds
        if isinstance(options.threshold, np.ndarray)
        else options.threshold,
    )
