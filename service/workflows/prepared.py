"""A training file as the trainer takes it: rows of features, and what is to be said of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from model_store.names import NameTable, build_names
from service.datasets import Dataset, read_dataset
from service.datasets.parts import DataStream
from service.datasets.texts import read_texts
from service.errors import BadParameter
from service.features import Featurizer, default_kind, fit_featurizer, parameters_of
from service.features.context import fit_context
from service.features.parameters import AutoParameters, ContextParameters
from service.rows import SparseRows
from service.trainers.softmax_parameters import SoftmaxParameters
from service.workflows.choose_features import FeatureChoice, choose_features
from service.workflows.file_source import FileSource
from service.workflows.labelled import OnProgress
from service.workflows.parameters import Chosen
from service.workflows.text_source import TextSource

if TYPE_CHECKING:
    from service.workflows.train import TrainRequest

EMPTY_SHARE_MAX = 0.1
"""A warning says when a larger share of the training rows has no feature."""


class Prepared(NamedTuple):
    """A training file as the trainer takes it; `choice` is what features were tried, if any were."""

    dataset: Dataset
    names: NameTable
    featurizer: Featurizer
    rows: SparseRows
    choice: FeatureChoice | None = None


def warnings_of(n_empty: int, n_rows: int, kind: str) -> list[str]:
    """Return what may be wrong with training rows, n_empty of which have no feature of a kind."""
    if n_empty <= EMPTY_SHARE_MAX * n_rows:
        return []
    return [f"{n_empty} of {n_rows} training rows have no feature (kind {kind}): nothing is learnt from them"]


def prepare(request: TrainRequest, chosen: Chosen, on_progress: OnProgress) -> Prepared:
    """Read the training file and make rows of it. Raises BadInput."""
    context = _context_parameters(chosen)
    if context is not None:
        return _prepare_texts(request.data, context, on_progress)
    dataset = read_dataset(
        request.data,
        label_names_file=request.label_names,
        columns=request.columns,
        on_progress=lambda done, total: on_progress("read", done, total),
    )
    return prepare_dataset(dataset, request.seed, request.threads, chosen, on_progress)


def prepare_dataset(
    dataset: Dataset, seed: int, threads: int, chosen: Chosen, on_progress: OnProgress
) -> Prepared:
    """Make rows of a data set; choose their features if the parameters leave that open. Raises BadInput."""
    names = dataset.label_names or [str(label) for label in range(dataset.labels.n_labels)]
    on_progress("features", 0, 1)
    parameters = parameters_of({"kind": default_kind(dataset), **chosen.features})
    choice = None
    if isinstance(parameters, AutoParameters):
        parameters, choice = choose_features(dataset, parameters, seed, threads, on_progress)
    featurizer, rows = fit_featurizer(dataset, parameters)
    on_progress("features", 1, 1)
    return Prepared(dataset, build_names(names), featurizer, rows, choice)


def prepare_stream(request: TrainRequest, chosen: Chosen, on_progress: OnProgress) -> FileSource | TextSource:
    """Return the rows of a training file as they are read for each pass. Raises BadInput."""
    context = _context_parameters(chosen)
    if context is not None:
        return TextSource(request.data, context, on_progress)
    stream = DataStream(request.data, request.label_names, request.columns)
    return FileSource(stream, chosen.features, on_progress)


def _context_parameters(chosen: Chosen) -> ContextParameters | None:
    """Return how windows are made, where texts alone are the data; else None. Raises BadParameter."""
    if not isinstance(chosen.trainer, SoftmaxParameters) or chosen.trainer.task != "text":
        return None
    if chosen.features:
        name = f"features.{min(chosen.features)}"
        raise BadParameter(f"{name}: expected no features with task=text, found some")
    return ContextParameters(window=chosen.trainer.window, min_count=chosen.trainer.min_count)


def _prepare_texts(data: Path, parameters: ContextParameters, on_progress: OnProgress) -> Prepared:
    """Read the texts of a file; a row is a window of words, its label the next word."""
    texts, source, sha256 = read_texts(data, lambda done, total: on_progress("read", done, total))
    on_progress("features", 0, 1)
    featurizer = fit_context(texts, parameters)
    rows, labels = featurizer.windows_of(texts)
    on_progress("features", 1, 1)
    unknown = np.zeros(rows.n_rows, np.int32)
    dataset = Dataset(source, sha256, rows.n_rows, rows, None, None, labels, unknown, None)
    return Prepared(dataset, featurizer.words, featurizer, rows)
