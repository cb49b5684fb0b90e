"""A data file as the rows that a trainer reads again and again, made into features as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.manifest import DataInfo
from model_store.names import NameTable, build_names
from service.datasets.parts import DataStream
from service.features import Featurizer, streaming_featurizer
from service.trainers.source import Census
from service.trainers.spec import TrainingSet

OnProgress = Callable[[str, int, int], None]


class FileSource:
    """A RowSource over a file; its first pass is made when the census is first asked for.

    After it `n_empty` says how many rows have no feature.

    Raises BadData and BadParameter as it reads. Memory: a block of the file and its rows.
    """

    def __init__(self, stream: DataStream, features: Mapping[str, Any], on_progress: OnProgress) -> None:
        self.stream = stream
        self._features = dict(features)
        self._on_progress = on_progress
        self._census: Census | None = None
        self._featurizer: Featurizer | None = None
        self.n_empty = 0

    @property
    def featurizer(self) -> Featurizer:
        """Return what makes the rows; the first pass has chosen it."""
        if self._featurizer is None:
            raise RuntimeError("expected a first pass over the rows before, found none")
        return self._featurizer

    @property
    def names(self) -> NameTable:
        """Return the names of the labels; numbers where they have none."""
        return build_names(self.stream.label_names or [str(i) for i in range(len(self.census.label_rows))])

    @property
    def data_info(self) -> DataInfo:
        """Return what a manifest says of the data."""
        return DataInfo(self.stream.source, self.census.n_rows, self.stream.sha256)

    @property
    def warning(self) -> str | None:
        """Return what the reader of the file says that may be wrong with it."""
        return self.stream.warning

    @property
    def census(self) -> Census:
        """Return the counts of all rows."""
        if self._census is None:
            self._census = self._count()
        return self._census

    def parts(self) -> Iterator[TrainingSet]:
        """Yield the rows of the file, from the first to the last."""
        n_labels = len(self.census.label_rows)
        for part in self.stream.parts():
            labels = part.labels._replace(n_labels=n_labels)
            yield TrainingSet(self.featurizer.transform_dataset(part), labels)

    def _count(self) -> Census:
        """Read the file once: count, find the labels, choose the featurizer, and check every line."""
        n_rows = n_nonzeros = n_labelled = 0
        label_rows = label_nonzeros = np.zeros(0, np.int64)
        featurizer = None
        for part in self.stream.parts(lambda done, total: self._on_progress("read", done, total)):
            if featurizer is None or self.stream.n_features > featurizer.n_features:
                featurizer = streaming_featurizer(part, self._features, self.stream.n_features)
            counts = np.diff(featurizer.transform_dataset(part).indptr)
            label_rows = _added(label_rows, np.bincount(part.labels.indices))
            of_label = np.bincount(part.labels.indices, np.repeat(counts, np.diff(part.labels.indptr)))
            label_nonzeros = _added(label_nonzeros, of_label.astype(np.int64))
            n_rows += part.n_rows
            self.n_empty += int((counts == 0).sum())
            n_nonzeros += int(counts.sum())
            n_labelled += int(np.count_nonzero(np.diff(part.labels.indptr)))
        assert featurizer is not None  # a file has a row at least
        self._featurizer = featurizer
        final = self.stream.settle()
        ids = np.arange(self.stream.n_labels) if final is None else final
        return Census(
            n_rows,
            featurizer.n_features,
            n_nonzeros,
            n_labelled,
            _placed(label_rows, ids),
            _placed(label_nonzeros, ids),
        )


def _added(sums: NDArray[np.int64], more: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of two arrays, the shorter one continued with zeros."""
    total = np.zeros(max(len(sums), len(more)), np.int64)
    total[: len(sums)] += sums
    total[: len(more)] += more
    return total


def _placed(sums: NDArray[np.int64], ids: NDArray[np.int64] | NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the sums by final id: ids[i] is that of the provisional id i."""
    placed = np.zeros(len(ids), np.int64)
    placed[ids[: len(sums)]] = sums
    return placed
