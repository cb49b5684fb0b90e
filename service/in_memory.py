"""Models of this process: trained on what a caller has at hand, asked, measured and published."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import Weights
from model_store.names import name_of
from model_store.origin import parent_of
from model_store.origin import read_report as read_report
from model_store.store import Store
from model_store.version import Draft, Model, Packed, draft_of, model_of, pack, unpack
from service.base.errors import BadData, BadParameter, NotTuned
from service.base.rows import SparseRows
from service.db.of_store import opened_database
from service.inference.answering import Predictions
from service.inference.chunks import check_chunk_characters, divide, search_chunks
from service.inference.options import NodeThresholds
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.thresholds.store.state import ThresholdDatabase
from service.vocabulary.concepts import read_concepts
from service.vocabulary.featurizers import featurizer_of
from service.workflows.calibrate import calibrated_draft, fit_to_rows, refuse_link
from service.workflows.combine import CombineRequest, combine_dataset
from service.workflows.combined_parts import check_members
from service.workflows.evaluate import empty_convention, evaluate_rows
from service.workflows.from_memory import InMemoryInstances, dataset_from_memory, instances_from_memory
from service.workflows.from_memory import columns_from_memory as columns_from_memory
from service.workflows.labelled import Labelled, labelled_dataset, no_progress
from service.workflows.train import TrainRequest, train_dataset

if TYPE_CHECKING:
    from service.serving.served import ServedVersion

TUNED = "tuned"
"""The threshold that stands for each label's own."""

COMBINE_OPTIONS = ("language", "by", "candidates", "beam_width", "ranker", "seed")

Answers = list[list[tuple[str, float]]]
"""For each instance its labels with their scores, the best first."""


def train_from_memory(
    instances: object,
    labels: object,
    trainer: str,
    parameters: Mapping[str, Any],
    weights: Weights,
    seed: int,
    threads: int | None,
) -> InMemoryModel:
    """Train on instances and labels as `dataset_from_memory` takes them. Raises BadInput."""
    request = TrainRequest(
        trainer=trainer,
        data=Path(),
        parameters=parameters,
        weights=weights,
        seed=seed,
        threads=threads or os.cpu_count() or 1,
    )
    return _of_draft(train_dataset(dataset_from_memory(instances, labels), request))


def combine_from_memory(
    members: Sequence[InMemoryModel],
    vocabulary: str | os.PathLike[str] | None,
    instances: object,
    labels: object,
    trained_on: tuple[object, object] | None,
    options: Mapping[str, Any],
) -> InMemoryModel:
    """Combine models, and the names of a vocabulary's file, by labelled instances. Raises BadInput.

    trained_on  instances and labels that the first member was trained on
    options     fields of `CombineRequest`, of COMBINE_OPTIONS
    """
    if unknown := [name for name in options if name not in COMBINE_OPTIONS]:
        raise BadParameter(f"{unknown[0]}: expected one of {', '.join(COMBINE_OPTIONS)}, found another name")
    request = CombineRequest([], Path(), **options)
    concepts = None
    if vocabulary is not None:
        concepts = read_concepts(Path(vocabulary), request.language, request.by)
    rows = dataset_from_memory(instances, labels)
    near = None if trained_on is None else dataset_from_memory(*trained_on)
    parts = [member.as_member(number) for number, member in enumerate(members, 1)]
    check_members(parts, request.language, concepts is not None)
    return _of_draft(combine_dataset(parts, concepts, rows, near, request).draft)


def restore_model(packed: Packed, home: Path | None, thresholds: NDArray[np.float32] | None) -> InMemoryModel:
    """Return a model that was pickled. Raises StoreError for one that is damaged."""
    model = InMemoryModel(unpack(packed), home)
    if thresholds is not None:
        model.use_tuned(thresholds)
    return model


def load_version(store: str | os.PathLike[str], name: str, version: str) -> InMemoryModel:
    """Return a version of a store, mapped. Raises StoreError."""
    return InMemoryModel(Store(Path(store)).open(name, version), Path(store).absolute())


class InMemoryModel:
    """A model that answers in this process; any number of threads may ask it. It never changes.

    It is pickled as its arrays, held against their digests when it is restored; a copy is the model itself.
    """

    def __init__(self, model: Model, home: Path | None) -> None:
        """Take an opened version with its store, or a model that was trained here: it has none."""
        self.model = model
        self._home = home
        self._tuned: NodeThresholds | None = None
        self._thresholds = np.empty(0, np.float32)
        self._featurizer = featurizer_of(model)
        self._predictor = make_predictor(model)
        self._served: ServedVersion | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what restores it in any process: nothing that leads to this one's memory."""
        thresholds = self._thresholds if self._tuned is not None else None
        return restore_model, (pack(self.model), self._home, thresholds)

    def __deepcopy__(self, memo: object) -> Self:
        """Return the model itself."""
        return self

    def predict(
        self,
        instances: object,
        top_r: int,
        threshold: float | str | None,
        threads: int | None,
        chunk_characters: int | None = None,
    ) -> Answers:
        """Return at most top_r labels for each instance, with a threshold those that reach it.

        threshold  a number, or "tuned": each label's own, as they are when they are first asked for
        chunk_characters  of a chunk, into which longer texts are divided (`service.inference.chunks`)

        Raises BadInput for instances of a kind that the model does not take, and for options out of range,
        NotTuned for a version without tuned thresholds, DatabaseUnavailable.
        """
        found = self.search(instances, top_r, threshold, threads, chunk_characters)
        names = {label: name_of(self.model.labels, label) for label in set(found.labels.tolist())}
        pairs = [
            (names[label], score)
            for label, score in zip(found.labels.tolist(), found.scores.tolist(), strict=True)
        ]
        return [pairs[first:last] for first, last in pairwise(found.ptr.tolist())]

    def search(
        self,
        instances: object,
        top_r: int,
        threshold: float | str | None,
        threads: int | None,
        chunk_characters: int | None = None,
    ) -> Predictions:
        """Return what `predict` does as arrays. Raises what it does."""
        if type(top_r) is not int or top_r < 1:
            raise BadParameter(f"top_r: expected an integer of at least 1, found {top_r!r:.40}")
        at = self._threshold(threshold)
        n_labels = self.model.manifest.n_labels
        checked = self._instances(instances)
        options, ptr = PredictOptions(top_r=min(top_r, n_labels), threshold=at), None
        if chunk_characters is not None:
            checked, ptr = _in_chunks(checked, chunk_characters)
        rows = self._rows(checked)

        def search(rows: SparseRows, wanted: PredictOptions) -> Predictions:
            return self._predictor.predict_batch(rows, wanted, _threads(threads, rows.n_rows))

        if ptr is None:
            return search(rows, options)
        least = self._thresholds if isinstance(at, NodeThresholds) else at
        return search_chunks(search, rows, ptr, options, n_labels, least)

    def evaluate(
        self,
        instances: object,
        labels: object,
        threads: int | None,
        chunk_characters: int | None = None,
        empty_labels: str = "zero",
    ) -> dict[str, Any]:
        """Return the keys of `xylem evaluate --json`. Raises BadInput."""
        empty = empty_convention(empty_labels, "empty_labels")
        labelled = self._labelled(instances, labels, chunk_characters)
        n_threads = _threads(threads, labelled.rows.n_rows)
        return evaluate_rows(self.model, labelled, n_threads, empty=empty).report

    def calibrate(self, instances: object, labels: object, threads: int | None) -> InMemoryModel:
        """Return the model with its scores calibrated on rows that it was not trained on. Raises BadInput."""
        refuse_link(self.model)
        labelled = self._labelled(instances, labels, None)
        fit = fit_to_rows(self.model, labelled, _threads(threads, labelled.n_rows), no_progress)
        origin = {} if self._home is None else {"parent": parent_of(self.model.manifest)}
        return _of_draft(calibrated_draft(draft_of(self.model), fit, origin))

    def explain(self, instance: object, top_r: int) -> list[dict[str, Any]]:
        """Return the labels of one instance with their explanations, as predict requests answer them.

        Raises BadInput.
        """
        from service.base.settings import Limits
        from service.serving.dialect import Body
        from service.serving.opening import open_version
        from service.serving.predict import PREDICT

        is_matrix = hasattr(instance, "tocsr")
        checked = self._instances(instance if is_matrix else [instance])
        if checked.n_rows != 1:
            raise BadData(f"instance: expected one row, found {checked.n_rows}")
        one: Any = {checked.kind: checked.rows[0]} if checked.matrix is None else _sparse(checked.matrix)
        limits = Limits()
        body = json.dumps({"instances": [one], "top_r": top_r, "explain": True}).encode()
        if self._served is None:
            self._served = open_version(self.model)
        reply = PREDICT.answer_fully(PREDICT.read(Body(body), limits), self._served)
        answer = json.loads(b"".join(reply.parts))
        labels: list[dict[str, Any]] = answer["predictions"][0]["labels"]
        return labels

    def as_member(self, number: int) -> Model:
        """Return the version as a member of a combined one; one without a name is called by its number."""
        if self._home is not None:
            return self.model
        return replace(self.model, manifest=replace(self.model.manifest, model=f"member{number}"))

    def save(self, store: str | os.PathLike[str], name: str) -> int:
        """Publish the model as the next version of that name, its `latest`; return the version's number.

        Raises StoreError, and BadParameter for a model that a store was opened for.
        """
        if self._home is not None:
            raise BadParameter(
                "save: expected a model that was trained here, found one of a store: copy it "
                "by `xylem models export` and `import`"
            )
        home = Store(Path(store))
        home.prepare()
        return home.publish(name, draft_of(self.model)).version

    def _threshold(self, threshold: object) -> float | NodeThresholds | None:
        """Return a threshold as the predictor takes it. Raises BadInput and DatabaseUnavailable."""
        if threshold == TUNED:
            return self._tuned_thresholds()
        if threshold is None:
            return None
        if isinstance(threshold, int | float) and 0 <= threshold <= 1:
            return float(threshold)
        expected = f'None, "{TUNED}" or a number from 0 to 1'
        raise BadParameter(f"threshold: expected {expected}, found {threshold!r:.40}")

    def _tuned_thresholds(self) -> NodeThresholds:
        """Return the version's thresholds, read once. Raises NotTuned and DatabaseUnavailable."""
        if self._tuned is not None:
            return self._tuned
        if self._home is None:
            raise NotTuned(
                "threshold: expected tuned thresholds, found a model that was trained here: save it, "
                "call xylem thresholds, and load it, or ask for a number"
            )
        name, version = self.model.manifest.model, self.model.manifest.version
        with opened_database(self._home, create=False) as database:
            found = None if database is None else ThresholdDatabase(database).load(name, version)
        if found is None:
            raise NotTuned(
                f"threshold: model {name} version {version}: expected tuned thresholds, "
                "found none: call xylem thresholds and load it again, or ask for a number"
            )
        return self.use_tuned(found.thresholds)

    def use_tuned(self, thresholds: NDArray[np.float32]) -> NodeThresholds:
        """Have "tuned" stand for these thresholds, float32[K], and return them as searches take them."""
        self._thresholds, self._tuned = thresholds, self._predictor.node_thresholds(thresholds)
        return self._tuned

    def _instances(self, instances: object) -> InMemoryInstances:
        self._refuse_matrix(instances)
        return instances_from_memory(instances, self.model.manifest.n_features)

    def _labelled(self, instances: object, labels: object, chunk_characters: int | None) -> Labelled:
        self._refuse_matrix(instances)
        dataset = dataset_from_memory(instances, labels, self.model.labels, self.model.manifest.n_features)
        if chunk_characters is not None:
            check_chunk_characters(chunk_characters, "chunk_characters")
        return labelled_dataset(dataset, self._featurizer, chunk_characters)

    def _refuse_matrix(self, instances: Any) -> None:
        """Raise BadData for a matrix whose columns are not the model's features."""
        if not hasattr(instances, "tocsr"):
            return
        kind, n_features = self._featurizer.kind, self.model.manifest.n_features
        if kind != "raw":
            expected = "mappings" if kind == "named" else "texts"
            raise BadData(
                f"instances: expected {expected}, which this model makes its own features of, found a matrix"
            )
        if instances.shape[1] != n_features:
            raise BadData(
                f"matrix: expected {n_features} columns, as this model was trained on, "
                f"found {instances.shape[1]}"
            )

    def _rows(self, checked: InMemoryInstances) -> SparseRows:
        if checked.kind == "text":
            return self._featurizer.transform_texts(checked.rows)
        if checked.kind == "features":
            return self._featurizer.transform_named(checked.rows)
        assert checked.matrix is not None
        return self._featurizer.transform_csr(
            checked.matrix.indptr, checked.matrix.indices, checked.matrix.values
        )


def _of_draft(draft: Draft) -> InMemoryModel:
    return InMemoryModel(model_of(draft), None)


def _sparse(rows: SparseRows) -> dict[str, Any]:
    return {"indices": rows.indices.tolist(), "values": rows.values.tolist()}


def _threads(threads: int | None, n_rows: int) -> int:
    return max(1, min(threads or os.cpu_count() or 1, n_rows))


def _in_chunks(checked: InMemoryInstances, most: object) -> tuple[InMemoryInstances, NDArray[np.int64]]:
    """Return texts in chunks, and where those of each begin and end. Raises BadParameter."""
    most = check_chunk_characters(most, "chunk_characters")
    if checked.kind != "text":
        raise BadParameter(f"chunk_characters: expected texts to divide, found {checked.kind}")
    chunks, ptr = divide(checked.rows, most)
    return checked._replace(rows=chunks), ptr
