"""What a request says -> what the engine takes: instances to sparse rows, options to the engine's options."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from service.api.parse import Instance, NamedInstance, Options, RawInstance, TextInstance
from service.api.served import Served
from service.errors import BadInput, BadInstance, NotTuned
from service.features import Featurizer
from service.inference.predictor import PredictOptions
from service.rows import SparseRows


def to_rows(instances: Sequence[Instance], featurizer: Featurizer) -> SparseRows:
    """Return a row for each instance, in their order.

    Raises BadInstance for one that the model does not take, naming it as `instances[3].indices`.
    """
    try:
        return transform(instances, featurizer)
    except BadInput:
        for i, instance in enumerate(instances):
            fault = fault_of(instance, featurizer)
            if fault is not None:
                raise fault.at(f"instances[{i}].{fault.path}" if fault.path else f"instances[{i}]") from None
        raise


def fault_of(instance: Instance, featurizer: Featurizer) -> BadInput | None:
    """Return why an instance cannot be turned into a row, its path within the instance; None: it can."""
    try:
        transform([instance], featurizer)
    except BadInput as error:
        return error.at((error.path or "").removeprefix("instances[0]").removeprefix("."))
    return None


def transform(instances: Sequence[Instance], featurizer: Featurizer) -> SparseRows:
    """Return a row for each instance. Raises BadInstance, which need not name the instance."""
    if not instances:
        return _transform_raw([], featurizer)
    texts = [instance.text for instance in instances if isinstance(instance, TextInstance)]
    if len(texts) == len(instances):
        return featurizer.transform_texts(texts)
    raw = [instance for instance in instances if isinstance(instance, RawInstance)]
    if len(raw) == len(instances):
        return _transform_raw(raw, featurizer)
    named = [instance.features for instance in instances if isinstance(instance, NamedInstance)]
    if len(named) == len(instances):
        return featurizer.transform_named(named)
    kinds = (TextInstance, RawInstance, NamedInstance)
    parts = [[i for i, instance in enumerate(instances) if isinstance(instance, kind)] for kind in kinds]
    parts = [part for part in parts if part]
    rows = [transform([instances[i] for i in part], featurizer) for part in parts]
    return _interleaved(rows, np.argsort(np.concatenate(parts)))


def _transform_raw(instances: Sequence[RawInstance], featurizer: Featurizer) -> SparseRows:
    """Return the rows of instances whose elements the parser has checked to be integers and numbers."""
    indptr = np.zeros(len(instances) + 1, np.int64)
    np.cumsum([len(instance.indices) for instance in instances], out=indptr[1:])
    n = int(indptr[-1])
    try:
        indices = np.fromiter(chain.from_iterable(instance.indices for instance in instances), np.int64, n)
    except OverflowError:
        fault = f"expected feature ids from 0 to {featurizer.n_features - 1}, found a larger one"
        raise BadInstance(fault).at("indices") from None
    values = np.fromiter(chain.from_iterable(instance.values for instance in instances), np.float64, n)
    return featurizer.transform_csr(indptr, indices, values)


def _interleaved(rows: Sequence[SparseRows], order: np.ndarray[tuple[int], np.dtype[np.intp]]) -> SparseRows:
    """Return rows `order[0]`, `order[1]`, ... of all rows put one after the other."""
    sizes = np.concatenate([np.diff(part.indptr) for part in rows])
    starts = (np.cumsum(sizes) - sizes)[order]
    indptr = np.zeros(len(order) + 1, np.int64)
    np.cumsum(sizes[order], out=indptr[1:])
    take = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], sizes[order])
    indices = np.concatenate([part.indices for part in rows])[take]
    values = np.concatenate([part.values for part in rows])[take]
    return SparseRows(indptr, indices, values, rows[0].n_features)


def to_options(options: Options, served: Served, stop: NDArray[np.uint8] | None = None) -> PredictOptions:
    """Return the engine's options; `stop` is the flag that ends a search early.

    Raises UnknownLabel, and NotTuned for thresholds that nobody tuned.
    """
    if isinstance(options.threshold, str):
        raise NotTuned(
            f"model {served.name} version {served.version}: expected tuned thresholds, found none: this "
            "release does not tune any; ask for a number"
        ).at("threshold")
    return PredictOptions(
        top_r=options.top_r,
        beam_width=options.beam_width,
        exact=options.exact,
        threshold=options.threshold,
        mask=served.predictor.label_mask(options.allow_labels, options.deny_labels),
        stop=stop,
    )
