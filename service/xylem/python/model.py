"""A model of this process, measured, tuned and published."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from xylem.base import BadParameter, n_processors, ready_database, shown_progress
from xylem.evaluation import LEAST_THRESHOLD, empty_convention
from xylem.python.asked import PredictingModel, threads_for
from xylem.python.from_memory import TextColumn, columns_from_memory, dataset_from_memory
from xylem.serving import store_of
from xylem.thresholds import ThresholdDatabase
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
from xylem_store import Model as Opened
from xylem_store import draft_of, model_of, parent_of

_ROWS = Path("rows")  # what faults call rows that are no file's


class Resampling(TypedDict, total=False):
    """How often rows are drawn anew, and exchanged, 100 to 100,000, and from which seed."""

    resamples: int
    seed: int


class ThresholdOptions(TypedDict, total=False):
    """How thresholds are found: the least probability of an estimate, and the start
    values of OFO.
    """

    kappa: float | Literal["auto"] | None
    start: tuple[float, float] | None


class Model(PredictingModel):
    """A model that answers in this process: what `train` and `load` return. Threads may share it.

    It never changes. Instances are what it was trained on: a list of texts, of mappings from
    feature names to numbers, or a matrix, a row each; a series, or a frame with `text_column`, as
    `train` takes them. What cannot be used is refused with a `xylem.errors.BadInput`.
    """

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
        """Return what `xylem evaluate --json` prints, in percent.

        F-measures are at tuned thresholds, if there are any, else at 0.5. `unknown_labels` is how
        many labels the model does not know, and `unknown_label_names` are the first of them.

        Instances, labels and columns are as for `train`. `empty_labels` is the F of a label never
        true nor predicted: "zero" as in scikit-learn, "one" as in the papers.
        """
        empty = empty_convention(empty_labels, "empty_labels")
        rows = columns_from_memory(instances, labels, text_column, label_column)
        labelled = self._labelled(*rows)
        thresholds = self._thresholds()
        n_threads = threads_for(threads, labelled.rows.n_rows)
        with shown_progress(progress) as show:
            return evaluate_rows(
                self._opened, labelled, n_threads, show, thresholds=thresholds, empty=empty
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
        """Compare with another model on the same rows; return what `xylem
        compare --json` prints, in percent.

        `metrics` has for each figure this model's as `a`, the other's as `b`, and whether the
        difference is `real`: `p` of a paired randomisation test is at most 0.05. Macro-F is there
        if both are tuned.
        """
        empty = empty_convention(empty_labels, "empty_labels")
        request = CompareRequest(_ROWS, empty, threads=threads or n_processors(), **resampling)
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
        """Return this model with scores that are probabilities: a label
        of score 0.7 is true 7 times in 10.

        Instances, labels and columns are as for `train`: 100 rows or more that it was not trained
        on. The ranking of labels stays as it is; tuned thresholds are dropped: they belong to the
        old scores. Raises `xylem.errors.BadParameter` for a model whose probabilities sum to 1 over
        the labels.
        """
        refuse_link(self._opened)
        labelled = self._labelled(
            *columns_from_memory(instances, labels, text_column, label_column)
        )
        with shown_progress(progress) as show:
            fit = fit_to_rows(self._opened, labelled, threads_for(threads, labelled.n_rows), show)
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
        """Return this model with a threshold for each label, tuned
        for macro-F, for `threshold="tuned"`.

        Instances, labels and columns are as for `train`: rows that it was not trained on. `method`
        and the options are those of `xylem thresholds`. `report["thresholds"]` has the figures on
        the rows. `save` keeps the thresholds with the version; those of a loaded version are kept
        in its store at once.
        """
        n_threads = threads or n_processors()
        request = request_of([method], _ROWS, None, empty_labels, threads=n_threads, **options)
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
        """Return the threshold for all labels that has the most micro-F on labelled rows, matrices.

        top_r  at most so many labels a row are predicted
        """
        predictions = self._search(instances, top_r, LEAST_THRESHOLD, threads)
        return best_threshold(self._labelled(instances, labels), predictions)

    def _as_member(self, name: str) -> Opened:
        """Return the version to be combined or compared; one without a name gets this."""
        if self._home is not None:
            return self._opened
        return replace(self._opened, manifest=replace(self._opened.manifest, model=name))

    def save(self, store: str | PathLike[str], name: str) -> int:
        """Publish a trained model in a store as the next version of
        `name`; return the version's number.

        It becomes the model's `latest`, with its tuned thresholds. Raises
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
        with ready_database(home.root) as database:  # before anything is published
            published = home.publish(name, draft_of(self._opened))
            ThresholdDatabase(database).save(name, published.version, self._tuned, published.digest)
        return published.version

    def _labelled(self, instances: Any, labels: Any) -> Labelled:
        self._refuse_matrix(instances)
        n_features = self._opened.manifest.n_features
        dataset = dataset_from_memory(instances, labels, self._opened.labels, n_features)
        return labelled_dataset(dataset, self._featurizer)
