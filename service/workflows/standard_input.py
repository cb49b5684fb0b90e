"""Standard input to a trained model: rows are learnt as they come, and none is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.manifest import DataInfo
from service.datasets import Dataset
from service.datasets.json_lines import JsonLines, parts_of_jsonl
from service.datasets.standard_input import StandardInput
from service.errors import BadData, BadParameter
from service.features import Featurizer, streaming_featurizer
from service.rows import SparseRows, offsets
from service.trainers import TRAINERS, Trained, TrainingSet
from service.trainers.registry import trainer
from service.workflows.parameters import Chosen

OnProgress = Callable[[str, int, int], None]

OnStart = Callable[[int], None]
"""Called once, before anything is read, with the bytes that learning may take."""


def no_start(n_bytes: int) -> None:
    """Say nothing."""


RAW_IDS_MAX = 1 << 24
"""Feature ids of a stream with features.kind=raw are below this."""

LABELS_MAX = 1 << 24
"""The most labels of a stream."""


class Learnt(NamedTuple):
    """What a stream gave: the model's parts; `names` by label id, `counts` the rows of each label."""

    trained: Trained
    data: DataInfo
    names: list[str]
    featurizer: Featurizer
    counts: NDArray[np.int64]


def learn_standard_input(
    name: str,
    chosen: Chosen,
    seed: int,
    on_progress: OnProgress,
    on_start: OnStart,
) -> Learnt:
    """Train on the JSON lines of standard input until it ends or Ctrl-C is pressed.

    Lines are `{"text": ..., "labels": [...]}` or `{"features": {name: number}, "labels": [...]}`, as in a
    .jsonl file. Texts and names are hashed; with features.kind=raw the names are feature ids in decimals.
    A row without labels is passed over. Label ids follow the names sorted by bytes.

    Raises BadParameter for a trainer that does not learn from streams; BadData, naming the line, for a line
    that cannot be used, and for a stream without a label. Memory: what `on_start` is told, the label names
    and a block of lines with its rows.
    """
    make = trainer(name).online
    if make is None:
        able = ", ".join(spec.name for spec in TRAINERS.values() if spec.online)
        raise BadParameter(f"trainer: expected one that learns from standard input, {able}; found {name}")
    learner = make(chosen.trainer, seed)
    source = StandardInput()
    on_start(learner.bytes_max)
    ids: dict[str, int] = {}
    counts = np.zeros(0, np.int64)
    featurizer: Featurizer | None = None
    n_rows = 0
    for part in parts_of_jsonl(source, ids):
        if len(ids) > LABELS_MAX:
            raise source.fault(None, f"expected at most {LABELS_MAX} labels, found {len(ids)}")
        dataset = _dataset(part, chosen.features, n_rows)
        n_features = 0 if dataset.rows is None else dataset.rows.n_features
        if featurizer is None or n_features > featurizer.n_features:
            featurizer = streaming_featurizer(dataset, chosen.features, n_features)
        for done in learner.learn(TrainingSet(featurizer.transform_dataset(dataset), part.labels)):
            on_progress("rows", n_rows + done, 0)
        n_rows += dataset.n_rows
        more = np.bincount(part.labels.indices, minlength=len(ids))
        more[: len(counts)] += counts
        counts = more
    if featurizer is None or not ids:
        raise BadData(f"{source.path}: expected rows with labels, found none in {n_rows} rows")
    names = sorted(ids)
    final = np.empty(len(ids), np.int32)
    final[[ids[label] for label in names]] = np.arange(len(ids), dtype=np.int32)
    placed = np.zeros(len(ids), np.int64)
    placed[final] = counts
    trained = learner.finish(len(ids), featurizer.n_features, final)
    return Learnt(trained, DataInfo(str(source.path), n_rows, source.sha256), names, featurizer, placed)


def _dataset(part: JsonLines, features: Mapping[str, Any], first: int) -> Dataset:
    """Return a part of the stream, whose first row has the number `first`, as a data set."""
    is_raw = part.named is not None and features.get("kind") == "raw"
    return Dataset(
        source="",
        sha256="",
        n_rows=part.labels.n_rows,
        rows=_raw_rows(part.named or [], first) if is_raw else None,
        texts=part.texts,
        named=None if is_raw else part.named,
        labels=part.labels,
        unknown_labels=part.unknown_labels,
        label_names=None,
    )


def _raw_rows(named: list[dict[str, float]], first: int) -> SparseRows:
    """Return the rows whose feature names are ids in decimals."""
    indices: list[int] = []
    for row, instance in enumerate(named, first + 1):
        for name in instance:
            # isdecimal alone takes digits of other scripts too
            if not (name.isascii() and name.isdecimal() and len(name) < 9 and int(name) < RAW_IDS_MAX):
                wanted = f"feature ids from 0 to {RAW_IDS_MAX - 1} with features.kind=raw"
                raise BadData(f"standard input: row {row}: expected {wanted}, found {name[:40]!r}")
            indices.append(int(name))
    values = [value for instance in named for value in instance.values()]
    return SparseRows(
        offsets(map(len, named)),
        np.array(indices, np.int32),
        np.array(values, np.float32),
        max(indices, default=0) + 1,
    )
