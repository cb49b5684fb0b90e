"""Predict with a model in this process: labels of instances, their scores and explanations."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import (
    Any,
    Literal,
    NamedTuple,
    Self,
    SupportsIndex,
    TypeAlias,
    TypedDict,
    Unpack,
    overload,
)

import numpy as np

from xylem import base, serving, thresholds
from xylem.base import (
    BadData,
    BadInput,
    BadParameter,
    NotTuned,
    SparseRows,
    UnknownLabel,
    n_threads,
    offsets,
    opened_database,
    public_message_of,
)
from xylem.engine import ContextFeaturizer, Predictions, PredictOptions, make_predictor
from xylem.python.frames import TextColumn, columns_from_memory
from xylem.python.from_memory import (
    InMemoryInstances,
    instances_from_memory,
    is_matrix,
    label_lists,
    naming_row,
    vectors_from_memory,
)
from xylem.vocabulary import featurizer_of
from xylem_store import (
    COMBINED,
    F32,
    I32,
    I64,
    U8,
    Model as Opened,
    Packed,
    find_all,
    name_of,
    pack,
    proposing_of,
    read_report,
    unpack,
)

# The value of `threshold` that means: for each label its tuned threshold.
TUNED = "tuned"

# A list of labels: labels, their names, and {"under": CONCEPT} for all concepts below one.
LabelItems: TypeAlias = Sequence[str | Mapping[str, str]] | None

TOP_R = 5  # the default of `top_r`, the most labels that are returned for an instance


class LabelLists(TypedDict, total=False):
    """Options of `Model.predict`: lists of labels, as in a predict request.

    An item is a label, a name in the label info of the model, or {"under": CONCEPT}: the concept
    and all concepts below it.

    allow_labels  only these labels are returned
    deny_labels   these labels are not returned
    """

    allow_labels: LabelItems
    deny_labels: LabelItems


class ScoredLabel(NamedTuple):
    """A predicted label, and its score: a probability from 0 to 1."""

    label: str
    score: float


class LabelNames(Sequence[str]):
    """The names of a model's labels, by id. Each is read when it is asked for, not listed before.

    A million names take no memory of their own; `list(names)` makes strings of all.
    """

    def __init__(self, live: serving.LiveLabelInfo) -> None:
        self._labels = live.labels
        self._facts = facts = live.current
        self._languages = () if facts is None else facts.languages_in(None)

    def __len__(self) -> int:
        return self._labels.n_names

    @overload
    def __getitem__(self, index: SupportsIndex) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[label] for label in range(len(self))[index]]
        label = range(len(self))[index]
        facts = self._facts
        return (
            name_of(self._labels, label)
            if facts is None
            else facts.name(label, self._languages) or name_of(self._labels, label)
        )


class PredictingModel:
    """A model that predicts in this process. It never changes, and threads may share it.

    It is pickled as its arrays; when they are unpickled, they are compared with their digests.
    `copy.deepcopy` returns the model itself.
    """

    def __init__(
        self,
        opened: Opened,
        home: Path | None = None,
        tuned: thresholds.Tuned | None = None,
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
        self._served: serving.ServedVersion | None = None

    def __repr__(self) -> str:
        return f"<xylem.Model {self.trainer}, {self.n_labels} labels>"

    def __reduce__(self) -> tuple[Any, ...]:
        return self._restored, (pack(self._opened), self._home, self._tuned, self._extra_report)

    @classmethod
    def _restored(cls, packed: Packed, *arguments: Any) -> Self:
        """Restore a model that was pickled. Raises StoreError for a damaged one."""
        return cls(unpack(packed), *arguments)

    def __deepcopy__(self, memo: object) -> Self:
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
    def label_names(self) -> "LabelNames":
        """Return the names of the labels, by the label's id, from 0: a sequence of strings.

        A name is the label as `predict` returns it. If the model was loaded from a store that has
        label info for it, it is the name there: in the language of the label info, else in the next
        one that has a name.
        """
        live = serving.LiveLabelInfo(self._opened.manifest.model, self._opened.labels)
        if self._home is not None:
            live.follow(serving.store_of(self._home).label_info(live.model))
        return LabelNames(live)

    @property
    def report(self) -> dict[str, Any]:
        """Return what training, combining and tuning reported.

        `trainer`, `parameters`, `rows`, `metrics` and `beam_width` are in every report: the trainer
        with its parameters, the number of training rows, the measures on validation rows in percent
        ({} without such rows), and the nodes that a search keeps on each level. Where they apply,
        `warnings`, `features` (the kinds that were tried, and the chosen one), `size`, `training`,
        `validation`, `combined`, `rerank`, `trials` and `thresholds` stand beside them.
        """
        manifest = self._opened.manifest
        is_combined = manifest.kind == COMBINED
        searching = proposing_of(self._opened.arrays) if is_combined else PredictOptions()
        return {
            "trainer": self.trainer,
            "parameters": self.parameters,
            "rows": manifest.data.rows,
            "metrics": dict(manifest.metrics),
            "beam_width": searching.beam_width,
            **read_report(self._opened.arrays),
            **self._extra_report,
        }

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
        vectors: Any = None,
        **lists: Unpack[LabelLists],
    ) -> list[list[ScoredLabel]]:
        """Return for each instance its labels with their scores, the best first, at most top_r.

        instances         as in the class: a list, a matrix, a series or a frame
        top_r             5 if left out; top_k is another name for it
        threshold         only labels with at least this score, from 0 to 1, are returned; "tuned":
                          each label has its own, found by `tune_thresholds`, or all have one, and
                          a row no more labels than the limit that was tuned with it. For a loaded
                          version they are those that `xylem thresholds` and feedback have stored
                          when they are first used
        threads           the number of cores if left out
        text_column       the column of a frame with the texts, or several columns; left out: the
                          fields of the model
        chunk_characters  texts longer than this are divided between words into chunks of at most
                          this many characters; the score of a label is the mean of its scores in
                          the chunks
        vectors           a vector beside each text, float[n, numbers], if the model was trained
                          with vectors; each chunk of a text has the vector of the text
        lists             of labels that may be returned, or may not, as in `LabelLists`

        Raises `xylem.errors.NotTuned` if "tuned" is asked of a model without tuned thresholds, and
        `xylem.errors.UnknownLabel` for an item of a list that is no label.
        """
        instances, _ = columns_from_memory(
            instances, None, text_column, None, self._featurizer.fields
        )
        predictions = self._search(
            instances,
            _top(top_r, top_k),
            threshold,
            threads,
            chunk_characters,
            vectors,
            self._mask(**lists),
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
        self,
        instances: Any,
        labels: Any = None,
        *,
        text_column: TextColumn = None,
        vectors: Any = None,
    ) -> list[list[ScoredLabel]]:
        """Return for each instance the exact probabilities of the labels that are listed for it.

        The probability of a label does not depend on whether `predict` would return the label.

        labels  a list of names for each instance. It may be left out for a model of next words:
                then they are the words of each text, and its end
        vectors  as in `predict`

        Raises `xylem.errors.UnknownLabel` for a label that the model does not know.
        """
        instances, labels = columns_from_memory(
            instances, labels, text_column, None, self._featurizer.fields
        )
        checked = self._instances(instances)
        if labels is None:
            if not isinstance(self._featurizer, ContextFeaturizer):
                raise BadData(
                    "labels: expected lists of labels, as this model predicts no words, found none"
                )
            windows = [self._featurizer.windows_of([text]) for text in checked.rows]
            return [self._score_rows(rows, truth.indptr, truth.indices) for rows, truth in windows]
        rows = label_lists(labels, checked.n_rows)
        ptr = offsets(map(len, rows))
        ids = find_all(self._opened.labels, [name for row in rows for name in row])
        if len(ids) and ids.min() < 0:
            place = int(np.argmin(ids))
            row = int(np.searchsorted(ptr, place, "right")) - 1
            raise UnknownLabel(
                f"labels: row {row}: expected a label of the model, "
                f"found {rows[row][place - ptr[row]]!r:.80}"
            )
        pairs = self._score_rows(self._rows(checked, vectors), ptr, ids.astype(np.int32))
        return [pairs[first:last] for first, last in pairwise(ptr.tolist())]

    def explain(
        self,
        instance: str | Mapping[str, float] | Any,
        top_r: int | None = None,
        *,
        top_k: int | None = None,
        vector: Any = None,
    ) -> list[dict[str, Any]]:
        """Return the labels of one instance, each with its paths and the features that counted.

        The keys are those of the answer to a predict request with `explain`: `label`, `id`,
        `score`, `explanation`. `top_r` and `top_k` are as in `predict`; `vector` is that of the
        text.
        """

        instances = instance if is_matrix(instance) else [instance]
        instances, _ = columns_from_memory(instances, None, None, None, self._featurizer.fields)
        checked = self._instances(instances)
        if checked.n_rows != 1:
            raise BadData(f"instance: expected one row, found {checked.n_rows}")
        if checked.matrix is None:
            vectors = None if vector is None else np.asarray(vector)[None]
            self._rows(checked, vectors)  # refuses numbers that JSON cannot say
            encoded_instance: dict[str, Any] = {checked.kind: checked.rows[0]}
            if vectors is not None:
                encoded_instance["vector"] = vectors[0].tolist()
        else:
            encoded_instance = {
                name: getattr(checked.matrix, name).tolist() for name in ("indices", "values")
            }
        body = json.dumps(
            {"instances": [encoded_instance], "top_r": _top(top_r, top_k), "explain": True}
        ).encode()
        request = serving.PREDICT.read(serving.Body(body), base.Limits())
        reply = serving.PREDICT.answer_fully(request, self._as_served())
        return list(json.loads(b"".join(reply.parts))["predictions"][0]["labels"])

    def _as_served(self) -> "serving.ServedVersion":
        """Return the version as a server answers with it, with its label info. It is made once."""

        if self._served is None:
            served = serving.open_version(self._opened)
            if self._home is not None:
                served.info.follow(serving.store_of(self._home).label_info(served.name))
            self._served = served
        return self._served

    def _mask(self, allow_labels: LabelItems = None, deny_labels: LabelItems = None) -> U8 | None:
        """Return the mask of the labels that lists allow; None if there are no lists.

        Raises BadInput, with the place of a wrong item in its message.
        """

        if allow_labels is None and deny_labels is None:
            return None
        lists = {
            name: [*items]
            if isinstance(items, Iterable) and not isinstance(items, str | Mapping)
            else items
            for name, items in (("allow_labels", allow_labels), ("deny_labels", deny_labels))
        }
        try:
            options = serving.validated(lists, serving.Options, base.Limits())
            return self._as_served().masks.mask_of(options.allow_labels, options.deny_labels)
        except BadInput as error:
            raise type(error)(public_message_of(error)) from None

    def _search(
        self,
        instances: object,
        top_r: int,
        threshold: float | str | None,
        threads: int | None,
        chunk_characters: int | None = None,
        vectors: Any = None,
        mask: U8 | None = None,
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
        options = PredictOptions(
            top_r=min(top_r, n_labels),
            threshold=node_thresholds,
            mask=mask,
            limit=self._tuned.aim.limit if self._tuned and threshold == TUNED else None,
        )

        def search(rows: SparseRows, search_options: PredictOptions) -> Predictions:
            return self._predictor.predict(rows, search_options, n_threads(threads, rows.n_rows))

        if chunk_characters is None:
            return search(self._rows(checked, vectors), options)
        n_characters_max = serving.check_chunk_characters(chunk_characters, "chunk_characters")
        if checked.kind != "text":
            raise BadParameter(f"chunk_characters: expected texts to divide, found {checked.kind}")
        rows, ptr = serving.rows_of_divided_texts(
            checked.rows, n_characters_max, self._featurizer, vectors_from_memory(vectors, checked)
        )
        return serving.search_chunks(search, rows, ptr, options, n_labels, label_thresholds)

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
            if (tuned := self._tuned_state()) is None:
                model_name = (
                    "a model that was trained here"
                    if self._home is None
                    else self._opened.manifest.full_name
                )
                raise NotTuned(
                    f"threshold: expected tuned thresholds, found none of {model_name}: call "
                    "tune_thresholds, "
                    "or ask for a number"
                )
            return tuned.thresholds
        if threshold is None:
            return None
        if isinstance(threshold, int | float) and 0 <= threshold <= 1:
            return float(threshold)
        raise BadParameter(
            f'threshold: expected None, "{TUNED}" or a number from 0 to 1, found {threshold!r:.40}'
        )

    def _tuned_state(self) -> thresholds.Tuned | None:
        """Return the tuned thresholds, or None if there are none.

        They are read from the store once.
        """
        if self._tuned is None and self._home is not None:
            with opened_database(self._home) as database:
                manifest = self._opened.manifest
                self._tuned = thresholds.ThresholdDatabase(database).load(
                    manifest.model, manifest.version, manifest.digest
                )
        return self._tuned

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
            raise BadData(
                f"matrix: expected {n_features} columns, as this model was trained on, "
                f"found {n_columns}"
            )

    def _rows(self, checked: InMemoryInstances, vectors: Any = None) -> SparseRows:
        """Return the rows of features of instances. Raises BadInstance, which names the row."""
        vector_rows = vectors_from_memory(vectors, checked)
        with naming_row():
            if checked.kind == "text":
                return self._featurizer.transform_with_vectors(checked.rows, vector_rows)
            if checked.kind == "features":
                return self._featurizer.transform_named(checked.rows)
            assert checked.matrix is not None
            return self._featurizer.transform_csr(*checked.matrix[:3])


def _top(top_r: int | None, top_k: int | None) -> int:
    """Return the one of top_r and top_k that is not None, or the default."""
    if top_r is not None and top_k is not None:
        raise TypeError("expected top_r or top_k, which are the same, found both")
    return next((limit for limit in (top_r, top_k) if limit is not None), TOP_R)
