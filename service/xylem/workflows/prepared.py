"""The data of a training as a source of rows, with their names, featurizer and warnings."""

from typing import TypeAlias

import numpy as np

from xylem.base import (
    BadData,
    BadInstance,
    BadParameter,
    Crew,
    DataReport,
    Dataset,
    OnProgress,
    no_progress,
    one_step,
)
from xylem.datasets import STDIN, DataStream, renumbered
from xylem.engine import (
    AutoParameters,
    ContextParameters,
    Featurizer,
    VectorParameters,
    default_kind,
    fit_featurizer,
    parameters_of,
)
from xylem.evaluation import digests_of
from xylem.trainers import MemorySource, SoftmaxParameters, TrainingSet
from xylem.vocabulary import featurizer_of
from xylem.workflows.choose_features import (
    FeatureChoice,
    choose_features,
    choose_field_weight,
    choose_weight,
)
from xylem.workflows.file_source import FileSource, TextSource
from xylem.workflows.labelled import DIGESTS_MAX
from xylem.workflows.request import Chosen, TrainRequest
from xylem_store import U64, DataInfo, Model, NameTable, Store, build_names

EMPTY_SHARE_MAX = 0.1  # a larger share of training rows without a feature causes a warning


class PreparedRows(MemorySource):
    """Rows in memory.

    names       of the labels
    featurizer  makes rows of instances
    data_info   the description of the data for a manifest
    warning     of the reader of the data, if there is one
    choice      the features that were tried, if any were
    weighting   the weights of a column that were tried, if any were
    report      what the reader has understood of the data, if it was counted
    n_empty     number of rows without a feature
    """

    def __init__(
        self,
        data: TrainingSet,
        names: NameTable,
        featurizer: Featurizer,
        data_info: DataInfo,
        warning: str | None = None,
        choice: FeatureChoice | None = None,
        report: DataReport | None = None,
        weighting: FeatureChoice | None = None,
    ) -> None:
        super().__init__(data)
        self.names = names
        self.featurizer = featurizer
        self.data_info = data_info
        self.warning = warning
        self.choice = choice
        self.weighting = weighting
        self.report = report
        self.n_empty = int((np.diff(data.rows.indptr) == 0).sum())

    @property
    def digests(self) -> U64:
        """Return the digests of the first rows; none of windows of words, which all texts share."""
        is_words = self.featurizer.kind == ContextParameters.kind
        return digests_of(self.data.rows.cut(0, 0 if is_words else DIGESTS_MAX))


# Rows to train on, and what a version stores about them.
#
# The latter is known once the rows were read; rows in memory have been read.
PreparedSource: TypeAlias = PreparedRows | FileSource | TextSource


def warnings_of(source: PreparedSource) -> list[str]:
    """Return warnings about training rows that have been read."""
    warnings = [] if source.warning is None else [source.warning]
    if source.n_empty > EMPTY_SHARE_MAX * source.census.n_rows:
        warnings.append(
            f"{source.n_empty} of {source.census.n_rows} training rows have no feature (kind "
            f"{source.featurizer.kind}): nothing is learnt from them"
        )
    return warnings


def prepare(
    request: TrainRequest,
    chosen: Chosen,
    crew: Crew,
    on_progress: OnProgress,
    base: Model | None = None,
    store: Store | None = None,
) -> PreparedSource:
    """Return the rows of the data: in memory, as a stream, or as they arrive. Raises BadInput.

    crew  makes the rows of texts
    base  a version whose features and labels the rows get, instead of those that are chosen
    store  keeps the vectors of texts that are encoded; None: they are not kept
    """
    if request.stream or request.data == STDIN:
        if chosen.encoder is not None and request.data == STDIN:
            raise BadParameter(
                "features.encoder: expected a file, whose texts are encoded first, found standard "
                "input"
            )
        context = _context_parameters(chosen)
        if context is not None and request.stream:
            return TextSource(request.data, context, on_progress)
        stream = DataStream(request.data, request.label_names, request.columns)
        featurizer = None if base is None else featurizer_of(base)
        vectors = _vector_parameters(
            chosen,
            has_vectors=chosen.encoder is not None or request.columns.has_vectors(request.data),
        )
        if vectors is not None and vectors.weight == "auto":
            raise BadParameter("vectors.weight: expected a number for a stream, found auto")
        return FileSource(
            stream,
            chosen.features,
            on_progress,
            featurizer,
            crew=crew,
            vectors=vectors,
            encode=None
            if chosen.encoder is None
            else lambda part: chosen.encoder.with_vectors(part, crew, no_progress, store),
        )
    return (
        prepare_in_memory(request, chosen, crew, on_progress, store)
        if base is None
        else rows_of_base(base, request.read(on_progress))
    )


def rows_of_base(base: Model, dataset: Dataset) -> PreparedRows:
    """Return the rows of a data set with a version's features and labels. Raises BadData."""
    featurizer = featurizer_of(base)
    return PreparedRows(
        data=rows_for(dataset, base.labels, featurizer),
        names=base.labels,
        featurizer=featurizer,
        data_info=DataInfo(dataset.source, dataset.n_rows, dataset.sha256),
        warning=dataset.warning,
        report=dataset.report,
    )


def rows_for(dataset: Dataset, labels: NameTable, featurizer: Featurizer) -> TrainingSet:
    """Return the rows of a data set with given features and labels. Raises BadData."""
    try:
        return TrainingSet(
            featurizer.transform_dataset(dataset), renumbered(dataset, labels).labels
        )
    except BadInstance as error:
        raise BadData(f"{dataset.source}: {error}") from None


def prepare_in_memory(
    request: TrainRequest,
    chosen: Chosen,
    crew: Crew,
    on_progress: OnProgress,
    store: Store | None = None,
) -> PreparedRows:
    """Read the training file and make rows of it.

    They are windows of words if the data are texts alone. Raises BadInput.
    """
    context = _context_parameters(chosen)
    if context is not None:
        source = TextSource(request.data, context, on_progress)
        featurizer = source.featurizer  # this takes a first pass
        with one_step(on_progress, "features"):
            windows = TrainingSet.join(list(source.parts()))
        return PreparedRows(windows, source.names, featurizer, source.data_info)
    dataset = request.read(on_progress)
    if chosen.encoder is not None and dataset.fields.unweighted is None:
        dataset = chosen.encoder.with_vectors(dataset, crew, on_progress, store)
    return prepare_dataset(dataset, request.seed, crew, chosen, on_progress)


def prepare_dataset(
    dataset: Dataset,
    seed: int,
    crew: Crew,
    chosen: Chosen,
    on_progress: OnProgress,
) -> PreparedRows:
    """Make rows of a data set; choose their features if the parameters leave that open.

    Raises BadInput.
    """
    parameters = parameters_of({"kind": default_kind(dataset), **chosen.features})
    choice = weighting = None
    if dataset.fields.unweighted is not None:  # before texts are encoded, which have the weight
        dataset, weighting = choose_field_weight(dataset, parameters, seed, crew, on_progress)
    if chosen.encoder is not None and dataset.vectors is None:
        dataset = chosen.encoder.with_vectors(dataset, crew, on_progress, None)
    with one_step(on_progress, "features"):
        vectors = _vector_parameters(chosen, has_vectors=dataset.vectors is not None)
        if isinstance(parameters, AutoParameters):
            parameters, choice = choose_features(dataset, parameters, seed, crew, on_progress)
        if vectors is not None and vectors.weight == "auto":
            vectors, choice = choose_weight(
                dataset, parameters, vectors, choice, seed, crew, on_progress
            )
        featurizer, rows = fit_featurizer(dataset, parameters, crew, vectors)
    return PreparedRows(
        data=TrainingSet(rows, dataset.labels),
        names=build_names(dataset.names),
        featurizer=featurizer,
        data_info=DataInfo(dataset.source, dataset.n_rows, dataset.sha256),
        warning=dataset.warning,
        choice=choice,
        report=dataset.report,
        weighting=weighting,
    )


def _vector_parameters(chosen: Chosen, *, has_vectors: bool) -> VectorParameters | None:
    """Return the parameters of the vectors beside texts, None if there are none.

    Raises BadParameter for parameters without vectors.
    """
    if has_vectors:
        return chosen.vectors or VectorParameters()
    if chosen.vectors is not None:
        raise BadParameter(
            f"vectors.{min(chosen.vectors.model_fields_set)}: expected vectors beside the texts, "
            "found none: give --vectors FILE or --vector-column NAME"
        )
    return None


def _context_parameters(chosen: Chosen) -> ContextParameters | None:
    """Return how windows are made if the data are texts alone, else None. Raises BadParameter."""
    if not isinstance(chosen.trainer, SoftmaxParameters) or chosen.trainer.task != "text":
        return None
    if chosen.features:
        raise BadParameter(
            f"features.{min(chosen.features)}: expected no features with task=text, found some"
        )
    return ContextParameters(window=chosen.trainer.window, min_count=chosen.trainer.min_count)
