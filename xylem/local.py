"""Models in this process: `xylem.train`, `xylem.load` and what they return; the service does the work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from xylem.command import refuse_shadows

if TYPE_CHECKING:
    from service.in_memory import InMemoryModel

refuse_shadows()  # here: also a pickle of a model imports this before the service

_FEATURES = "features_"


class ScoredLabel(NamedTuple):
    """A predicted label, and its score: a probability from 0 to 1."""

    label: str
    score: float


class Model:
    """A model that answers in this process: what `train` and `load` return. Threads may share it.

    Instances are what it was trained on: a list of texts, of mappings from feature names to numbers, or a
    sparse matrix, a row each; a series, or a frame with `text_column`, as `train` takes them. What cannot be
    used is refused with a `service.base.errors.BadInput`.
    """

    def __init__(self, inner: InMemoryModel) -> None:
        """Take the service's model: `train` and `load` do."""
        self._inner = inner

    def __repr__(self) -> str:
        """Return what it is in a line."""
        manifest = self._inner.model.manifest
        return f"<xylem.Model {manifest.trainer.name}, {manifest.n_labels} labels>"

    @property
    def trainer(self) -> str:
        """Return the name of the trainer."""
        return self._inner.model.manifest.trainer.name

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the trainer's parameters, those left out with the values that they had."""
        return dict(self._inner.model.manifest.trainer.parameters)

    @property
    def n_labels(self) -> int:
        """Return how many labels it knows."""
        return self._inner.model.manifest.n_labels

    @property
    def report(self) -> dict[str, Any]:
        """Return what was found when it was made: `warnings`; of a combination its figures, by folds."""
        from service.in_memory import read_report

        return read_report(self._inner.model.arrays)

    def predict(
        self,
        instances: Any,
        top_r: int = 5,
        threshold: float | Literal["tuned"] | None = None,
        *,
        threads: int | None = None,
        text_column: str | None = None,
        chunk_characters: int | None = None,
    ) -> list[list[ScoredLabel]]:
        """Return for each instance its labels with their scores, the best first, at most top_r.

        threshold    only labels with at least this score, from 0 to 1; "tuned": each label its own, as
                     `xylem thresholds` and feedback left them when first asked for: for a loaded version
        threads      the number of cores if left out
        text_column  of a frame
        chunk_characters  longer texts are divided into chunks of at most so many characters, between words;
                     a label's score is the mean of its scores in the chunks

        Raises `service.base.errors.NotTuned` for a version without tuned thresholds.
        """
        from service.in_memory import columns_from_memory

        instances, _ = columns_from_memory(instances, None, text_column, None)
        found = self._inner.predict(instances, top_r, threshold, threads, chunk_characters)
        return [[ScoredLabel(label, score) for label, score in row] for row in found]

    def evaluate(
        self,
        instances: Any,
        labels: Any = None,
        *,
        threads: int | None = None,
        text_column: str | None = None,
        label_column: str | None = None,
        chunk_characters: int | None = None,
        empty_labels: str = "zero",
    ) -> dict[str, Any]:
        """Return what `xylem evaluate --json` does, in percent; F-measures are at a threshold of 0.5.

        Instances, labels and columns are as for `train`, `chunk_characters` as for `predict`. `empty_labels`
        is what F is of a label never true nor predicted: "zero" as in scikit-learn, "one" as in the papers.
        """
        from service.in_memory import columns_from_memory

        instances, labels = columns_from_memory(instances, labels, text_column, label_column)
        return self._inner.evaluate(instances, labels, threads, chunk_characters, empty_labels)

    def calibrate(
        self,
        instances: Any,
        labels: Any = None,
        *,
        threads: int | None = None,
        text_column: str | None = None,
        label_column: str | None = None,
    ) -> Model:
        """Return this model with scores that are probabilities: a label of score 0.7 is true 7 times in 10.

        Instances, labels and columns are as for `train`: 100 rows or more that it was not trained on. The
        ranking of labels stays as it is. Raises `service.base.errors.BadParameter` for a model whose
        probabilities sum to 1 over the labels.
        """
        from service.in_memory import columns_from_memory

        instances, labels = columns_from_memory(instances, labels, text_column, label_column)
        return Model(self._inner.calibrate(instances, labels, threads))

    def explain(self, instance: str | Mapping[str, float] | Any, top_r: int = 5) -> list[dict[str, Any]]:
        """Return the labels of one instance, each with its paths in the trees and the features that counted.

        The keys are those of a predict request with `explain`: `label`, `id`, `score`, `explanation`.
        """
        return self._inner.explain(instance, top_r)

    def save(self, store: str | PathLike[str], name: str) -> int:
        """Publish a trained model in a store as the next version of `name`; return the version's number.

        It is the model's `latest` then. Raises `model_store.errors.StoreError`.
        """
        return self._inner.save(store, name)


def train(
    instances: Any,
    labels: Iterable[Iterable[str]] | Any = None,
    *,
    trainer: str = "label-tree",
    weights: Literal["float32", "bfloat16", "int8"] = "float32",
    seed: int = 0,
    threads: int | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    **parameters: Any,
) -> Model:
    """Train a model; nothing is written.

    instances     a list of texts, of mappings from feature names to numbers, or a sparse matrix, a row each;
                  or a frame of pandas, polars or pyarrow, or a Hugging Face data set, with text_column
    labels        a list of names for each instance, or a sparse matrix with a column for each label
    trainer       as for `xylem train`; docs/trainers/ says which there are
    weights       what weights are stored in
    threads       the number of cores if left out
    text_column   the column of a frame that has the texts
    label_column  the column of a frame that has a list of names in each row, in place of labels
    parameters    of the trainer by name, of the features as `features_NAME` (for `features.NAME`)

    Raises `service.base.errors.BadInput` for what cannot be trained on; it names the row, from 0.
    """
    from service.in_memory import columns_from_memory, train_from_memory

    instances, labels = columns_from_memory(instances, labels, text_column, label_column)
    named = {
        f"features.{name.removeprefix(_FEATURES)}" if name.startswith(_FEATURES) else name: value
        for name, value in parameters.items()
    }
    return Model(train_from_memory(instances, labels, trainer, named, weights, seed, threads))


def combine(
    members: Sequence[Model],
    vocabulary: str | PathLike[str] | None,
    instances: Any,
    labels: Iterable[Iterable[str]] | Any = None,
    *,
    language: str | None = None,
    by: str = "uri",
    rerank: tuple[Any, Any] | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    **options: Any,
) -> Model:
    """Combine models, and the names of a vocabulary, into one that ranks what they propose.

    members     1 to 8 models of any trainers: what `train` and `load` return
    vocabulary  a file of concepts with their names: SKOS (.ttl, .rdf, .nt), .tsv or .csv; None: no names
    instances, labels  30 rows or more that no member was trained on, as `train` takes them
    language    of the names that count; all if left out
    by          what labels are: "uri", "notation", or a language, in which they are the names
    rerank      instances and labels that the first member was trained on: near ones rank candidates, if that
                gains
    options     those of `xylem combine`: candidates (50), beam_width (3), ranker ("auto"), seed (0)

    `report["combined"]` of the model has the figures by folds of the rows, beside those of each member.
    Raises `service.base.errors.BadInput` for what cannot be combined. Needs the extra sklearn.
    """
    from service.in_memory import columns_from_memory, combine_from_memory

    instances, labels = columns_from_memory(instances, labels, text_column, label_column)
    named = {**options, "language": language, "by": by}
    inner = [member._inner for member in members]
    return Model(combine_from_memory(inner, vocabulary, instances, labels, rerank, named))


def load(store: str | PathLike[str], name: str) -> Model:
    """Return a version of a store: `NAME`, which is its `latest`, or `NAME@VERSION`, a number or an alias.

    Raises `model_store.errors.StoreError`.
    """
    from service.in_memory import load_version

    model, at, version = name.partition("@")
    return Model(load_version(store, model, version if at else "latest"))
