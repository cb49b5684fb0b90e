"""The model that users of Python have: it predicts, is evaluated, tuned, and saved in a store."""

from dataclasses import replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal, TypedDict, Unpack

from xylem import evaluation, serving, thresholds, workflows
from xylem.base import BadParameter, n_threads, progress_bar, ready_database
from xylem.python.frames import TextColumn, columns_from_memory
from xylem.python.from_memory import dataset_from_memory
from xylem.python.predicting import PredictingModel
from xylem_store import Conflict, Manifest, Model as Opened, Store, draft_of, model_of, parent_of

_ROWS = Path("rows")  # in errors, the name of rows that are in memory and not in a file


class Resampling(TypedDict, total=False):
    """Options of the resampling tests in `Model.compare`.

    resamples  how often rows are resampled, and exchanged between the models: 100 to 100,000
    seed       the seed of the random numbers
    """

    resamples: int
    seed: int


class ThresholdOptions(TypedDict, total=False):
    """Options of `Model.tune_thresholds`.

    kappa  the least probability of an estimate
    start  the start values of OFO
    sample_weight  the weights of the rows
    objective  the F-measure to tune for: "macro" gives each label a threshold; "micro" and
               "instance" give all one, and a row a limit of labels
    """

    kappa: float | Literal["auto"] | None
    start: tuple[float, float] | None
    objective: Literal["macro", "micro", "instance"]
    sample_weight: Any


class Model(PredictingModel):
    """A model that predicts in this process; `train` and `load` return it.

    It never changes, and threads may share it. Instances are of the kind that it was trained on: a
    list of texts, a list of mappings from feature names to numbers, or a matrix with a row for each
    instance; or a series, or a frame with `text_column`, as in `train`. Instances or labels that
    cannot be used raise `xylem.errors.BadInput`.
    """

    def evaluate(
        self,
        instances: Any,
        labels: Any = None,
        *,
        threads: int | None = None,
        text_column: TextColumn = None,
        label_column: str | None = None,
        vectors: Any = None,
        sample_weight: Any = None,
        empty_labels: str = "zero",
        progress: bool = True,
    ) -> dict[str, Any]:
        """Evaluate the model on labelled rows; return the figures of `xylem evaluate --json`.

        They are in percent. F-measures are computed at the tuned thresholds, or at 0.5 if there are
        none. `unknown_labels` is the number of labels that the model does not know, and
        `unknown_label_names` has the first of them.

        Instances, labels, columns, vectors and weights are as in `train`. `empty_labels` is the F
        of a label that is never true and never predicted: "zero" as in scikit-learn, "one" as in
        the papers. If the store has label info for the model, near misses are counted, and
        `branches` has the figures of each concept without a broader one.
        """
        empty = evaluation.empty_convention(empty_labels, "empty_labels")
        labelled = self._labelled(
            instances, labels, text_column, label_column, vectors, sample_weight
        )
        tuned = self._tuned_state()
        info = (
            None
            if self._home is None
            else serving.store_of(self._home).label_info(self._opened.manifest.model)
        )
        with progress_bar(progress) as show:
            return workflows.evaluate_rows(
                self._opened,
                labelled,
                n_threads(threads, labelled.rows.n_rows),
                show,
                tuned=tuned,
                empty=empty,
                info=info,
                concepts=() if info is None else ("*",),
            ).report

    def compare(
        self,
        other: "Model",
        instances: Any,
        labels: Any = None,
        *,
        empty_labels: str = "zero",
        threads: int | None = None,
        text_column: TextColumn = None,
        label_column: str | None = None,
        vectors: Any = None,
        progress: bool = True,
        **resampling: Unpack[Resampling],
    ) -> dict[str, Any]:
        """Compare with another model on the same rows.

        Returns the figures of `xylem compare --json`, in percent. `metrics` has for each metric
        `a`, the figure of this model, `b`, that of the other, and `real`, whether they really
        differ: `p` of a paired randomisation test is at most 0.05. Macro-F is included if both
        models are tuned. Instances, labels, columns, `vectors` and `empty_labels` are as in
        `evaluate`, the options of `resampling` as in `Resampling`. A model that takes no vectors is
        compared without them.
        """
        request = workflows.CompareRequest(
            _ROWS,
            evaluation.empty_convention(empty_labels, "empty_labels"),
            threads=n_threads(threads),
            **resampling,
        )
        models = (("a", self), ("b", other))
        sides = [
            workflows.Contender(model._as_member(name), model._tuned_state())
            for name, model in models
        ]
        rows = instances, labels, text_column, label_column
        first, second = (
            model._labelled(*rows, vectors if model._featurizer.vector_numbers else None)
            for _, model in models
        )
        with progress_bar(progress) as show:
            return workflows.compare(sides[0], sides[1], request, show, (first, second))

    def calibrate(
        self,
        instances: Any,
        labels: Any = None,
        *,
        threads: int | None = None,
        text_column: TextColumn = None,
        label_column: str | None = None,
        vectors: Any = None,
        progress: bool = True,
    ) -> "Model":
        """Return this model with calibrated scores: a label of score 0.7 is true 7 times in 10.

        Instances, labels, columns and vectors are as in `train`: 100 rows or more that the model
        was not trained on. The ranking of labels does not change. Tuned thresholds are dropped,
        because they belong to the old scores. Raises `xylem.errors.BadParameter` for a model whose
        probabilities sum to 1 over the labels.
        """
        workflows.refuse_link(self._opened)
        labelled = self._labelled(instances, labels, text_column, label_column, vectors)
        with progress_bar(progress) as show:
            fit = workflows.fit_to_rows(
                self._opened, labelled, n_threads(threads, labelled.n_rows), show
            )
        origin = {} if self._home is None else {"parent": parent_of(self._opened.manifest)}
        return Model(model_of(workflows.calibrated_draft(draft_of(self._opened), fit, origin)))

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
        vectors: Any = None,
        progress: bool = True,
        **options: Unpack[ThresholdOptions],
    ) -> "Model":
        """Return this model with thresholds that are tuned for macro-F, or for another objective.

        They are used with `threshold="tuned"`. Instances, labels, columns, vectors and weights are
        as in `train`: rows that the model was not trained on. `method` and the options are those of
        `xylem thresholds`. `report["thresholds"]` has the figures on the rows. For a loaded version
        the thresholds are stored at once, in the version's store; for other models `save` stores
        them.
        """
        fields: dict[str, Any] = {**options}
        sample_weight = fields.pop("sample_weight", None)
        request = thresholds.request_of(
            [method], _ROWS, None, empty_labels, threads=n_threads(threads), **fields
        )
        labelled = self._labelled(
            instances, labels, text_column, label_column, vectors, sample_weight
        )
        with progress_bar(progress) as show:
            outcomes = workflows.tune(self._opened, request, show, labelled)
        if self._home is not None:
            with ready_database(self._home) as database:
                thresholds.keep(self._opened, database, outcomes)
        return Model(
            self._opened,
            self._home,
            outcomes[0].tuned,
            {**self._extra_report, "thresholds": thresholds.facts_of(outcomes[0])},
        )

    def _best_threshold(
        self, instances: Any, labels: Any, top_r: int, threads: int | None
    ) -> float:
        """Return the threshold, one for all labels, with the best micro-F on labelled rows.

        instances, labels  matrices
        top_r              the most labels that are predicted for a row
        """
        return workflows.best_threshold(
            self._labelled(instances, labels),
            self._search(instances, top_r, evaluation.LEAST_THRESHOLD, threads),
        )

    def _as_member(self, name: str) -> Opened:
        """Return the version to be combined or compared; one without a store gets this name."""
        return (
            replace(self._opened, manifest=replace(self._opened.manifest, model=name))
            if self._home is None
            else self._opened
        )

    def save(self, store: str | PathLike[str], name: str | None = None) -> int:
        """Publish the model in a store as the next version of `name`; return its number.

        A loaded version is copied from its store, as by `xylem models export` and `import`: every
        digest is checked, and label info goes with it. Its name stays if `name` is left out. The
        version becomes `latest`, and gets the tuned thresholds of this model. Raises
        `xylem.errors.BadParameter` for a trained model without a name, and
        `xylem.errors.StoreError`.
        """
        if name is None and self._home is None:
            raise BadParameter("name: expected the name of the model to publish, found none")
        home = serving.store_of(Path(store))
        home.prepare()
        self._tuned_state()
        name = name or self._opened.manifest.model
        if self._tuned is None:
            return self._publish(home, name).version
        # the database is opened first: if that fails, no version without thresholds is published
        with ready_database(home.root) as database:
            published = self._publish(home, name)
            thresholds.ThresholdDatabase(database).save(
                name, published.version, self._tuned, published.digest
            )
        return published.version

    def _publish(self, home: Store, name: str) -> Manifest:
        if self._home is None:
            return home.publish(name, draft_of(self._opened))
        manifest = self._opened.manifest
        source = serving.store_of(self._home)
        if source.manifest(manifest.model, manifest.version) != manifest:
            raise Conflict(
                f"{manifest.full_name}: expected the version that was loaded, found another"
            )
        with TemporaryFile() as file:
            source.export(manifest.model, manifest.version, file, label_info=True)
            file.seek(0)
            return home.import_(file, name)

    def _labelled(
        self,
        instances: Any,
        labels: Any,
        text_column: TextColumn = None,
        label_column: str | None = None,
        vectors: Any = None,
        sample_weight: Any = None,
    ) -> evaluation.Labelled:
        rows = columns_from_memory(
            instances, labels, text_column, label_column, self._featurizer.fields
        )
        self._refuse_matrix(rows[0])
        return evaluation.labelled_dataset(
            dataset_from_memory(
                *rows,
                self._opened.labels,
                self._opened.manifest.n_features,
                vectors=vectors,
                sample_weight=sample_weight,
            ),
            self._featurizer,
        )
