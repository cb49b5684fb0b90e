"""The model that users of Python have: it predicts, is evaluated, tuned, and saved in a store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np

from xylem.base import (
    BadData,
    BadParameter,
    NotTuned,
    SparseRows,
    UnknownLabel,
    n_threads,
    offsets,
    opened_database,
    ready_database,
    shown_progress,
)
from xylem.engine import (
    ContextFeaturizer,
    Predictions,
    PredictOptions,
    check_chunk_characters,
    divide,
    make_predictor,
    search_chunks,
)
from xylem.evaluation import LEAST_THRESHOLD, empty_convention
from xylem.python.from_memory import (
    InMemoryInstances,
    TextColumn,
    columns_from_memory,
    dataset_from_memory,
    instances_from_memory,
    is_matrix,
    label_lists,
)
from xylem.python.options import TUNED, Resampling, ScoredLabel, ThresholdOptions, top_of
from xylem.serving import store_of
from xylem.thresholds import ThresholdDatabase, Tuned
from xylem.vocabulary import featurizer_of
from xylem.workflows import (
    CompareRequest,
    Contender,
    Labelled,
    best_threshold,
    calibrated_draft,
    compare,
    evaluate_rows,
    facts_of,
    fit_to_rows,
    keep,
    labelled_dataset,
    refuse_link,
    request_of,
    tune,
)
from xylem_store import (
    F32,
    I32,
    I64,
    Packed,
    draft_of,
    find_all,
    model_of,
    name_of,
    pack,
    parent_of,
    read_report,
    unpack,
)
from xylem_store import Model as Opened

if TYPE_CHECKING:
    from xylem.serving import ServedVersion


_ROWS = Path("rows")  # in errors, the name of rows that are in memory and not in a file


class Model:
    """A model that predicts in this process; `train` and `load` return it.

    It never changes, and threads may share it. Instances are of the kind that it was trained on: a
    list of texts, a list of mappings from feature names to numbers, or a matrix with a row for each
    instance; or a series, or a frame with `text_column`, as in `train`. Instances or labels that
    cannot be used raise `xylem.errors.BadInput`.

    A model is pickled as its arrays; when they are unpickled, they are compared with their digests.
    `copy.deepcopy` returns the model itself.
    """

    def __init__(
        self,
        opened: Opened,
        home: Path | None = None,
        tuned: Tuned | None = None,
        extra_report: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a model from an opened version.

        home          the store of the version; None for a model that was made in this process
        tuned         its tuned thresholds; None: those in the store, if there are any
        extra_report  fields of its report that are not stored in the version
        """
        self._opened = opened
        self._home = home
        self._tuned = tuned
        self._extra_report = dict(extra_report or {})
        self._featurizer = featurizer_of(opened)
        self._predictor = make_predictor(opened)
        self._served: ServedVersion | None = None

    def __repr__(self) -> str:
        """Return a description in one line: the trainer and the number of labels."""
        return f"<xylem.Model {self.trainer}, {self.n_labels} labels>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a function and arguments that restore the model in any process."""
        return self._restored, (pack(self._opened), self._home, self._tuned, self._extra_report)

    @classmethod
    def _restored(cls, packed: Packed, *arguments: Any) -> Self:
        """Restore a model that was pickled. Raises StoreError for a damaged one."""
        return cls(unpack(packed), *arguments)

    def __deepcopy__(self, memo: object) -> Self:
        """Return the model itself."""
        return self

    @property
    def trainer(self) -> str:
        """Return the name of the trainer."""
        return self._opened.manifest.trainer.name

    @property
    def parameters(self) -> dict[str, Any]:
        """Return all parameters of the trainer, also those that had their defaults."""
        return dict(self._opened.manifest.trainer.parameters)

    @property
    def n_labels(self) -> int:
        """Return the number of labels of the model."""
        return self._opened.manifest.n_labels

    @property
    def report(self) -> dict[str, Any]:
        """Return the report of training, combining or tuning.

        Its keys are `warnings`, `combined`, `trials` and `thresholds`, those that apply.
        """
        return {**read_report(self._opened.arrays), **self._extra_report}

    def predict(
        self,
        instances: Any,
        top_r: int | None = None,
        threshold: float | Literal["tuned"] | None = None,
        *,
        top_k: int | None = None,
        threads: int | None = None,
        text_column: TextColumn = None,
        chunk_characters: int | None = None,
    ) -> list[list[ScoredLabel]]:
        """Return for each instance its labels with their scores, the best first, at most top_r.

        instances         as in the class: a list, a matrix, a series or a frame
        top_r             5 if left out; top_k is another name for it
        threshold         only labels with at least this score, from 0 to 1, are returned; "tuned":
                          each label has its own, found by `tune_thresholds`. For a loaded version
                          they are those that `xylem thresholds` and feedback have stored when
                          they are first used
        threads           the number of cores if left out
        text_column       the column of a frame with the texts, or several columns
        chunk_characters  texts longer than this are divided between words into chunks of at most
                          this many characters; the score of a label is the mean of its scores in
                          the chunks

        Raises `xylem.errors.NotTuned` if "tuned" is asked of a model without tuned thresholds.
        """
        instances, _ = columns_from_memory(instances, None, text_column, None)
        predictions = self._search(
            instances, top_of(top_r, top_k), threshold, threads, chunk_characters
        )
        names = {
            label: name_of(self._opened.labels, label) for label in set(predictions.labels.tolist())
        }
        pairs = [
            ScoredLabel(names[label], score)
            for label, score in zip(
                predictions.labels.tolist(), predictions.scores.tolist(), strict=True
            )
        ]
        return [pairs[first:last] for first, last in pairwise(predictions.ptr.tolist())]

    def score(
        self, instances: Any, labels: Any = None, *, text_column: TextColumn = None
    ) -> list[list[ScoredLabel]]:
        """Return for each instance the exact probabilities of the labels that are listed for it.

        The probability of a label does not depend on whether `predict` would return the label.

        labels  a list of names for each instance. It may be left out for a model of next words:
                then they are the words of each text, and its end

        Raises `xylem.errors.UnknownLabel` for a label that the model does not know.
        """
        instances, labels = columns_from_memory(instances, labels, text_column, None)
        checked = self._instances(instances)
        if labels is None:
            if not isinstance(self._featurizer, ContextFeaturizer):
                raise BadData(
                    "labels: expected those to score, for this model predicts no words, found none"
                )
            windows = [self._featurizer.windows_of([text]) for text in checked.rows]
            return [self._score_rows(rows, truth.indptr, truth.indices) for rows, truth in windows]
        rows = label_lists(labels, checked.n_rows)
        ptr = offsets(map(len, rows))
        ids = find_all(self._opened.labels, [name for row in rows for name in row])
        if len(ids) and ids.min() < 0:
            place = int(np.argmin(ids))
            row = int(np.searchsorted(ptr, place, "right")) - 1
            unknown_label = rows[row][place - ptr[row]]
            raise UnknownLabel(
                f"labels: row {row}: expected a label of the model, found {unknown_label!r:.80}"
            )
        pairs = self._score_rows(self._rows(checked), ptr, ids.astype(np.int32))
        return [pairs[first:last] for first, last in pairwise(ptr.tolist())]

    def explain(
        self,
        instance: str | Mapping[str, float] | Any,
        top_r: int | None = None,
        *,
        top_k: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the labels of one instance, each with its paths and the features that counted.

        The keys are those of the answer to a predict request with `explain`: `label`, `id`,
        `score`, `explanation`. `top_r` and `top_k` are as in `predict`.
        """
        from xylem.base import Limits
        from xylem.serving import PREDICT, Body, open_version

        has_row = is_matrix(instance)
        checked = self._instances(instance if has_row else [instance])
        if checked.n_rows != 1:
            raise BadData(f"instance: expected one row, found {checked.n_rows}")
        encoded_instance: dict[str, Any]
        if checked.matrix is None:
            encoded_instance = {checked.kind: checked.rows[0]}
        else:
            encoded_instance = {
                name: getattr(checked.matrix, name).tolist() for name in ("indices", "values")
            }
        limits = Limits()
        body = json.dumps(
            {"instances": [encoded_instance], "top_r": top_of(top_r, top_k), "explain": True}
        ).encode()
        if self._served is None:
            self._served = open_version(self._opened)
        reply = PREDICT.answer_fully(PREDICT.read(Body(body), limits), self._served)
        answer = json.loads(b"".join(reply.parts))
        labels: list[dict[str, Any]] = answer["predictions"][0]["labels"]
        return labels

    def evaluate(
        self,
        instances: Any,
        labels: Any = None,
        *,
        threads: int | None = None,
        text_column: TextColumn = None,
        label_column: str | None = None,
        empty_labels: str = "zero",
        progress: bool = True,
    ) -> dict[str, Any]:
        """Evaluate the model on labelled rows; return the figures of `xylem evaluate --json`.

        They are in percent. F-measures are computed at the tuned thresholds, or at 0.5 if there are
        none. `unknown_labels` is the number of labels that the model does not know, and
        `unknown_label_names` has the first of them.

        Instances, labels and columns are as in `train`. `empty_labels` is the F of a label that is
        never true and never predicted: "zero" as in scikit-learn, "one" as in the papers.
        """
        empty = empty_convention(empty_labels, "empty_labels")
        rows = columns_from_memory(instances, labels, text_column, label_column)
        labelled = self._labelled(*rows)
        thresholds = self._thresholds()
        threads = n_threads(threads, labelled.rows.n_rows)
        with shown_progress(progress) as show:
            return evaluate_rows(
                self._opened, labelled, threads, show, thresholds=thresholds, empty=empty
            ).report

    def compare(
        self,
        other: Model,
        instances: Any,
        labels: Any = None,
        *,
        empty_labels: str = "zero",
        threads: int | None = None,
        text_column: TextColumn = None,
        label_column: str | None = None,
        progress: bool = True,
        **resampling: Unpack[Resampling],
    ) -> dict[str, Any]:
        """Compare with another model on the same rows.

        Returns the figures of `xylem compare --json`, in percent. `metrics` has for each metric
        `a`, the figure of this model, `b`, that of the other, and `real`, whether they really
        differ: `p` of a paired randomisation test is at most 0.05. Macro-F is included if both
        models are tuned. Instances, labels, columns and `empty_labels` are as in `evaluate`, the
        options of `resampling` as in `Resampling`.
        """
        empty = empty_convention(empty_labels, "empty_labels")
        request = CompareRequest(_ROWS, empty, threads=n_threads(threads), **resampling)
        rows = columns_from_memory(instances, labels, text_column, label_column)
        models = (("a", self), ("b", other))
        sides = [Contender(model._as_member(name), model._thresholds()) for name, model in models]
        with shown_progress(progress) as show:
            return compare(
                sides[0], sides[1], request, show, (self._labelled(*rows), other._labelled(*rows))
            )

    def calibrate(
        self,
        instances: Any,
        labels: Any = None,
        *,
        threads: int | None = None,
        text_column: TextColumn = None,
        label_column: str | None = None,
        progress: bool = True,
    ) -> Model:
        """Return this model with calibrated scores: a label of score 0.7 is true 7 times in 10.

        Instances, labels and columns are as in `train`: 100 rows or more that the model was not
        trained on. The ranking of labels does not change. Tuned thresholds are dropped, because
        they belong to the old scores. Raises `xylem.errors.BadParameter` for a model whose
        probabilities sum to 1 over the labels.
        """
        refuse_link(self._opened)
        labelled = self._labelled(
            *columns_from_memory(instances, labels, text_column, label_column)
        )
        with shown_progress(progress) as show:
            fit = fit_to_rows(self._opened, labelled, n_threads(threads, labelled.n_rows), show)
        origin = {} if self._home is None else {"parent": parent_of(self._opened.manifest)}
        return Model(model_of(calibrated_draft(draft_of(self._opened), fit, origin)))

    def tune_thresholds(
        self,
        instances: Any,
        labels: Any = None,
        *,
        method: Literal["ofo", "fta", "fta-one", "sto"] = "ofo",
        empty_labels: str = "zero",
        threads: int | None = None,
        text_column: TextColumn = None,
        label_column: str | None = None,
        progress: bool = True,
        **options: Unpack[ThresholdOptions],
    ) -> Model:
        """Return this model with a threshold for each label that is tuned for macro-F.

        They are used with `threshold="tuned"`. Instances, labels and columns are as in `train`:
        rows that the model was not trained on. `method` and the options are those of `xylem
        thresholds`. `report["thresholds"]` has the figures on the rows. For a loaded version the
        thresholds are stored at once, in the version's store; for other models `save` stores them.
        """
        request = request_of(
            [method], _ROWS, None, empty_labels, threads=n_threads(threads), **options
        )
        labelled = self._labelled(
            *columns_from_memory(instances, labels, text_column, label_column)
        )
        with shown_progress(progress) as show:
            outcomes = tune(self._opened, request, show, labelled)
        if self._home is not None:
            with ready_database(self._home) as database:
                keep(self._opened, database, outcomes)
        extra_report = {**self._extra_report, "thresholds": facts_of(outcomes[0])}
        return Model(self._opened, self._home, outcomes[0].tuned, extra_report)

    def _best_threshold(
        self, instances: Any, labels: Any, top_r: int, threads: int | None
    ) -> float:
        """Return the threshold, one for all labels, with the best micro-F on labelled rows.

        instances, labels  matrices
        top_r              the most labels that are predicted for a row
        """
        predictions = self._search(instances, top_r, LEAST_THRESHOLD, threads)
        return best_threshold(self._labelled(instances, labels), predictions)

    def _as_member(self, name: str) -> Opened:
        """Return the version to be combined or compared; one without a store gets this name."""
        if self._home is not None:
            return self._opened
        return replace(self._opened, manifest=replace(self._opened.manifest, model=name))

    def save(self, store: str | PathLike[str], name: str) -> int:
        """Publish a trained model in a store as the next version of `name`; return its number.

        The version becomes `latest`, and gets the tuned thresholds of this model. Raises
        `xylem.errors.StoreError`.
        """
        if self._home is not None:
            raise BadParameter(
                "save: expected a model that was trained here, found one of a store: copy it "
                "by `xylem models export` and `import`"
            )
        home = store_of(Path(store))
        home.prepare()
        if self._tuned is None:
            return home.publish(name, draft_of(self._opened)).version
        # the database is opened first: if that fails, no version without thresholds is published
        with ready_database(home.root) as database:
            published = home.publish(name, draft_of(self._opened))
            ThresholdDatabase(database).save(name, published.version, self._tuned, published.digest)
        return published.version

    def _labelled(self, instances: Any, labels: Any) -> Labelled:
        """Return the rows of instances with their labels, as this model's features and ids."""
        self._refuse_matrix(instances)
        n_features = self._opened.manifest.n_features
        dataset = dataset_from_memory(instances, labels, self._opened.labels, n_features)
        return labelled_dataset(dataset, self._featurizer)

    def _search(
        self,
        instances: object,
        top_r: int,
        threshold: float | str | None,
        threads: int | None,
        chunk_characters: int | None = None,
    ) -> Predictions:
        """Return the predictions of `predict` as arrays; instances may not be a frame.

        Raises the errors of `predict`.
        """
        if type(top_r) is not int or top_r < 1:
            raise BadParameter(f"top_r: expected an integer of at least 1, found {top_r!r:.40}")
        label_thresholds = self._threshold(threshold)
        node_thresholds = (
            label_thresholds
            if label_thresholds is None or isinstance(label_thresholds, float)
            else self._predictor.node_thresholds(label_thresholds)
        )
        n_labels = self._opened.manifest.n_labels
        checked = self._instances(instances)
        options = PredictOptions(top_r=min(top_r, n_labels), threshold=node_thresholds)
        ptr = None
        if chunk_characters is not None:
            n_characters_max = check_chunk_characters(chunk_characters, "chunk_characters")
            if checked.kind != "text":
                raise BadParameter(
                    f"chunk_characters: expected texts to divide, found {checked.kind}"
                )
            chunks, ptr = divide(checked.rows, n_characters_max)
            checked = checked._replace(rows=chunks)
        rows = self._rows(checked)

        def search(rows: SparseRows, search_options: PredictOptions) -> Predictions:
            return self._predictor.predict(rows, search_options, n_threads(threads, rows.n_rows))

        if ptr is None:
            return search(rows, options)
        return search_chunks(search, rows, ptr, options, n_labels, label_thresholds)

    def _score_rows(self, rows: SparseRows, ptr: I64, labels: I32) -> list[ScoredLabel]:
        """Return the scores of labels: of row i those in labels[ptr[i]:ptr[i + 1]]."""
        predictions = self._predictor.score_labels(rows, ptr, labels)
        names = (name_of(self._opened.labels, label) for label in labels.tolist())
        return list(map(ScoredLabel, names, predictions.scores.tolist()))

    def _threshold(self, threshold: object) -> float | F32 | None:
        """Return the threshold: None, a number, or one for each label, float32[K].

        Raises BadInput and DatabaseUnavailable.
        """
        if threshold == TUNED:
            if (thresholds := self._thresholds()) is None:
                model_name = (
                    "a model that was trained here"
                    if self._home is None
                    else self._opened.manifest.shown
                )
                raise NotTuned(
                    f"threshold: expected tuned thresholds, found none of {model_name}: call "
                    "tune_thresholds, "
                    "or ask for a number"
                )
            return thresholds
        if threshold is None:
            return None
        if isinstance(threshold, int | float) and 0 <= threshold <= 1:
            return float(threshold)
        expected = f'None, "{TUNED}" or a number from 0 to 1'
        raise BadParameter(f"threshold: expected {expected}, found {threshold!r:.40}")

    def _thresholds(self) -> F32 | None:
        """Return the tuned threshold of each label, float32[K], or None if they are not tuned.

        They are read from the store once.
        """
        if self._tuned is None and self._home is not None:
            with opened_database(self._home) as database:
                manifest = self._opened.manifest
                self._tuned = ThresholdDatabase(database).load(
                    manifest.model, manifest.version, manifest.digest
                )
        return None if self._tuned is None else self._tuned.thresholds

    def _instances(self, instances: object) -> InMemoryInstances:
        self._refuse_matrix(instances)
        return instances_from_memory(instances, self._opened.manifest.n_features)

    def _refuse_matrix(self, instances: Any) -> None:
        """Raise BadData for a matrix whose columns are not the model's features.

        Other instances are not checked here.
        """
        if not is_matrix(instances):
            return
        kind = self._featurizer.kind
        n_features = self._opened.manifest.n_features
        if kind != "raw":
            expected = "mappings" if kind == "named" else "texts"
            raise BadData(
                f"instances: expected {expected}, which this model makes its own features "
                "of, found a matrix"
            )
        if (n_columns := np.shape(instances)[-1]) != n_features:
            expected = f"{n_features} columns, as this model was trained on"
            raise BadData(f"matrix: expected {expected}, found {n_columns}")

    def _rows(self, checked: InMemoryInstances) -> SparseRows:
        """Return the rows of features of instances."""
        if checked.kind == "text":
            return self._featurizer.transform_texts(checked.rows)
        if checked.kind == "features":
            return self._featurizer.transform_named(checked.rows)
        assert checked.matrix is not None
        return self._featurizer.transform_csr(*checked.matrix[:3])
