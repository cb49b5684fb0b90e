"""`xylem learn`: from a vocabulary, indexed texts and corrections to a published combined model.

A run is a list of steps, each a function that takes the work so far and returns it with what the
step has made, as in `train`. It can be repeated: the same rows judge each version, whatever rows
come in between.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xylem.base import BadData, Crew, Dataset, OnProgress, SparseRows, no_progress, one_step
from xylem.datasets import renumbered
from xylem.engine import PredictOptions, make_predictor
from xylem.evaluation import (
    RESAMPLES,
    USUAL_EMPTY,
    Labelled,
    ModelAnswers,
    PredictedRows,
    compare_answers,
    labelled_dataset,
)
from xylem.thresholds import ThresholdDatabase, request_of
from xylem.trainers import matrix_of
from xylem.vocabulary import (
    ALIKE,
    CombineRequest,
    combine_dataset,
    featurizer_of,
    read_concepts,
    read_label_info,
)
from xylem.workflows.evaluate import TOP_R
from xylem.workflows.learning_rows import LearningRows, dataset_of, read_learning_rows
from xylem.workflows.recipe import Recipe
from xylem.workflows.request import Chosen
from xylem.workflows.train import parent_in, train_dataset
from xylem.workflows.training_work import MADE_LATER
from xylem.workflows.tuning import tune
from xylem_store import (
    FEEDBACK,
    LABEL_COUNTS,
    LATEST,
    REPORT,
    Bools,
    Conflict,
    Draft,
    FileSystem,
    Manifest,
    Model,
    Store,
    StoreError,
    StoreUnwritable,
    Subject,
    VersionInUse,
    all_names,
    check_model,
    json_array,
    locked,
    model_of,
    origin_arrays,
    read_origin,
    read_report,
)

# with fewer held-out documents nothing is measured: one would be three points of P@1
JUDGES_MIN = 30

NAMES_MAX = 20  # at most this many concepts are named in a report

# what a rule of promotion compares, in its reason
CHANGES = {
    "difference": "a change",
    "low": "a lower end of the change's interval",
    "high": "an upper end of the change's interval",
}

_COMPARED = 500  # held-out documents that are compared with all rows at a time


class LearnRequest(NamedTuple):
    """A run of a recipe.

    files     the path of each file of the recipe, by its name there
    feedback  the lines of the rows of feedback, the oldest first
    until     when they were read, in seconds since 1970
    concepts  subjects that are added to those of the vocabulary, as `read_concepts` takes them
    examples  texts of such concepts, each with its label: they are learnt as documents
    job       the id of the job that runs it: for a job one version is published
    """

    recipe: Recipe
    files: Mapping[str, Path]
    feedback: Sequence[bytes] = ()
    until: float = 0.0
    concepts: Sequence[Subject] = ()
    examples: Sequence[tuple[str, str]] = ()
    threads: int = 1
    job: str | None = None


@dataclass(frozen=True, kw_only=True)
class LearnWork:
    """A run, and what its steps have made so far.

    chosen    the parameters of members, with an opened encoder
    rows      that teach, and that judge
    dataset   the documents that teach
    resources  what all steps need, closed at the end of the run
    old       the version that `latest` names; None: there is none, or it cannot be opened
    member    the member that was trained on documents
    report    what the run reports, and a version stores
    draft     what will be published
    manifest  of the published version
    """

    store: Store
    model: str
    request: LearnRequest
    on_progress: OnProgress
    database: ThresholdDatabase
    chosen: Chosen
    rows: LearningRows = MADE_LATER
    dataset: Dataset = MADE_LATER
    old: Model | None = None
    member: Model = MADE_LATER
    report: dict[str, Any] = field(default_factory=dict)
    draft: Draft = MADE_LATER
    manifest: Manifest = MADE_LATER
    resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


def learn_and_publish(
    store: Store,
    model: str,
    request: LearnRequest,
    database: ThresholdDatabase,
    on_progress: OnProgress = no_progress,
) -> dict[str, Any]:
    """Run the recipe of a model, publish what it has learnt, and return the report of the version.

    The report has

    baseline    the version before, or null
    sources     for each file, and feedback: its rows, and how many of them teach documents
                ("learnt"), teach a member ("members"), are held out ("held_out"), or are older rows
                of a text, or blank ("left_out")
    judges      how many documents judge, and how many were left out because they have a twin
    figures     for each figure of the old and the new version: "a", "b", the difference and its
                interval; without an old version a is 0. Empty if they cannot be measured
    corrections the same of the held-out corrections
    concepts    the numbers of concepts "learnt", learnt for the first time ("new", and some of
                them in "new_names"), found "by_name" alone, and labels that are "never" answered
    promotion   whether `latest` moves, and the reasons

    What is served goes on until the new version is whole. Raises BadInput, StoreError, and Conflict
    if another run of this model is under way.
    """
    check_model(model)
    missing = [
        name
        for name in request.recipe.files
        if "*" not in name and not request.files.get(name, Path("missing file")).exists()
    ]
    if missing:
        raise BadData(
            f"{model}: expected the files of its recipe to be there and to be read, found not: "
            f"{', '.join(missing)}"
        )
    store.prepare()
    with _alone(store, model), contextlib.ExitStack() as resources:
        manifest = store.published(model, request.job) if request.job else None
        work = LearnWork(
            store=store,
            model=model,
            request=request,
            on_progress=on_progress,
            database=database,
            chosen=request.recipe.training(request.threads).chosen().opened_from(store),
            resources=resources,
            manifest=manifest or MADE_LATER,
        )
        for step in LAST_STEPS if manifest else STEPS:
            work = step(work)
    return {
        "model": model,
        "version": work.manifest.version,
        "model_bytes": work.manifest.model_bytes,
        "labels": work.manifest.n_labels,
        "metrics": dict(work.manifest.metrics),
        **work.report,
    }


@contextlib.contextmanager
def _alone(store: Store, model: str) -> Iterator[None]:
    """Let one run of a model work at a time. Raises Conflict; the lock ends with its process."""
    directory = store.root / "learning" / model
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(FileSystem(), directory, 0.0))
        except StoreUnwritable:
            raise Conflict(
                f"{model}: expected one run of its recipe at a time, found another under way"
            ) from None
        yield


def read_rows(work: LearnWork) -> LearnWork:
    """Read the rows, and hold a tenth of the documents out."""
    request = work.request
    rows = read_learning_rows(
        request.recipe, request.files, request.feedback, work.on_progress, request.examples
    )
    return replace(
        work, rows=rows, dataset=dataset_of(rows.documents), report={"sources": rows.sources}
    )


def encode_texts(work: LearnWork) -> LearnWork:
    """Encode all texts once for the steps that follow, if an encoder makes vectors."""
    rows = work.rows
    if work.chosen.encoder is not None:
        parts = filter(None, (rows.documents, rows.weak, rows.judges, rows.corrections))
        work.resources.enter_context(
            work.chosen.encoder.remembering(
                map(dataset_of, parts), work.on_progress, work.store, Crew(work.request.threads)
            )
        )
    return work


def fit_members_and_ranker(work: LearnWork) -> LearnWork:
    """Train a member on documents, one on weak rows, and fit a ranker to candidates by folds."""
    request = work.request
    recipe = request.recipe
    concepts = read_concepts(
        request.files[recipe.vocabulary],
        recipe.language,
        recipe.key_kind,
        first_name=recipe.first_name,
        added=request.concepts,
    )
    dataset = work.dataset
    weights = {row.text: row.weight for row in work.rows.documents}
    training = recipe.training(request.threads)

    def train(part: Dataset) -> Draft:
        """Train on documents with their weights, which the ranker does not take."""
        assert part.texts is not None
        of_rows = np.array([weights[text] for text in part.texts], np.float32)
        if (of_rows != 1).any():
            part = replace(part, labels=part.labels.weighed(of_rows)).with_weight()
        return train_dataset(part, training, work.on_progress, chosen=work.chosen)

    members = [_member(train(dataset), "documents")]
    if work.rows.weak:
        members.append(
            _member(
                train_dataset(
                    dataset_of(work.rows.weak), training, work.on_progress, chosen=work.chosen
                ),
                "members",
            )
        )
    combination = CombineRequest(
        members=(),
        data=Path(),
        vocabulary=request.files[recipe.vocabulary],
        language=recipe.language,
        first_name=recipe.first_name,
        key_kind=recipe.key_kind,
        candidates=recipe.candidates,
        beam_width=recipe.beam_width,
        trainer_of=lambda member, _: train if member is members[0] else None,
        seed=recipe.seed,
    )
    draft, fitted = combine_dataset(
        members,
        concepts,
        dataset,
        dataset if recipe.near else None,
        combination,
        work.on_progress,
    )
    names = ("rows", "ranker", "combined", "members", "rerank", "beam_width", "warnings")
    return replace(
        work,
        member=members[0],
        draft=draft,
        report={**work.report, "fit": {name: fitted[name] for name in names if name in fitted}},
    )


def _member(draft: Draft, name: str) -> Model:
    """Return a member that was trained here, under a name that explanations show."""
    model = model_of(draft)
    return replace(model, manifest=replace(model.manifest, model=name, version=1))


def measure(work: LearnWork) -> LearnWork:
    """Measure the old version and the new one on the same held-out documents.

    A document that is similar to one that was learnt does not judge: see ADR 25.
    """
    old: Model | None = None
    with contextlib.suppress(StoreError):
        old = work.store.open(work.model, LATEST)
    new = model_of(work.draft)
    report = {**work.report}
    # the features of names, which the combination has too, would make all rows alike
    featurizer = featurizer_of(work.member)
    training_rows = featurizer.transform_dataset(work.dataset)
    for name, held_rows in (("judges", work.rows.judges), ("corrections", work.rows.corrections)):
        facts: dict[str, Any] = {"rows": len(held_rows), "twins": 0, "figures": {}}
        report[name] = facts
        if not held_rows:
            continue
        dataset = dataset_of(held_rows)
        is_alone = ~_have_twins(featurizer.transform_dataset(dataset), training_rows)
        facts["twins"] = int((~is_alone).sum())
        facts["rows"] -= facts["twins"]
        if facts["rows"]:
            dataset = dataset.take(np.flatnonzero(is_alone))
            facts["figures"] = _compare(old, new, dataset, work)
    report["concepts"] = _concepts(old, work)
    report["baseline"] = old and old.manifest.version
    return replace(work, old=old, report=report)


def _labelled(model: Model, dataset: Dataset) -> Labelled:
    return labelled_dataset(renumbered(dataset, model.labels), featurizer_of(model))


def _have_twins(rows: SparseRows, learnt: SparseRows) -> Bools:
    """Return which rows have a cosine of at least ALIKE to a row that was learnt, bool[n]."""
    unit_rows, unit_learnt = (
        matrix.multiply(1 / np.maximum(np.sqrt(matrix.multiply(matrix).sum(1)), 1e-9)[:, None])
        for matrix in map(matrix_of, (rows, learnt))
    )
    cosines = [
        (unit_rows.tocsr()[first : first + _COMPARED] @ unit_learnt.T).max(1).toarray().ravel()
        for first in range(0, rows.n_rows, _COMPARED)
    ]
    return np.concatenate(cosines) >= ALIKE


def _compare(
    old: Model | None, new: Model, dataset: Dataset, work: LearnWork
) -> dict[str, dict[str, float]]:
    """Return each figure of both versions on rows, with the interval of its difference.

    Without an old version the difference is the figure of the new one.
    """
    answers = []
    for version in (new,) if old is None else (old, new):
        labelled = _labelled(version, dataset)
        predicted = make_predictor(version).predict(
            labelled.rows, PredictOptions(top_r=TOP_R), work.request.threads
        )
        answers.append(
            ModelAnswers(
                ranked=PredictedRows(predicted.ptr, predicted.labels),
                truth=labelled.truth,
                decided=None,
                joint_ids=np.empty(0, np.int64),
            )
        )
    if old is None:
        nothing = PredictedRows(np.zeros(dataset.n_rows + 1, np.int64), np.empty(0, np.int32))
        answers.insert(0, answers[0]._replace(ranked=nothing))
    differences = compare_answers(
        answers[0],
        answers[1],
        USUAL_EMPTY,
        RESAMPLES,
        0,
        lambda done: work.on_progress("measure", done, RESAMPLES),
    )
    return {name: difference._asdict() for name, difference in differences.items()}


def _concepts(old: Model | None, work: LearnWork) -> dict[str, Any]:
    """Return how many concepts were learnt, are new, or are found by their names alone."""
    names = all_names(work.draft.labels)
    learnt = _with_rows(names, work.draft.extra)
    new_names = sorted(
        learnt - (set() if old is None else _with_rows(all_names(old.labels), old.arrays))
    )
    unanswered = {
        label
        for rows in (work.rows.documents, work.rows.judges, work.rows.corrections)
        for row in rows
        for label in row.labels
    }.difference(names)
    return {
        "learnt": len(learnt),
        "new": len(new_names),
        "new_names": new_names[:NAMES_MAX],
        "by_name": len(names) - len(learnt),
        "never": len(unanswered),
    }


def _with_rows(names: Sequence[str], arrays: Mapping[str, Any]) -> set[str]:
    """Return the labels that training rows had; none if the arrays do not tell."""
    return {name for name, n in zip(names, arrays.get(LABEL_COUNTS, ()), strict=False) if n}


def decide(work: LearnWork) -> LearnWork:
    """Decide whether `latest` moves: what cannot be measured promotes a first version alone."""
    rule = work.request.recipe.promotion
    judges = {**work.report["judges"]}
    promoted = not work.store.versions(work.model)
    reasons = ["it is the first version of the model"] if promoted else []
    if judges["rows"] < JUDGES_MIN:
        judges["figures"] = {}
        reasons.append(
            f"expected at least {JUDGES_MIN} held-out documents to measure on, found "
            f"{judges['rows']}: nothing is measured"
        )
    elif not promoted and (rule is None or work.old is None):
        reasons.append(
            "expected a version that can be opened, found none"
            if rule
            else "expected a rule of promotion in the recipe, found none"
        )
    elif not promoted and rule is not None:
        figure = judges["figures"][rule.metric]
        promoted = figure[rule.part] >= rule.least_change - 1e-9
        reasons.append(
            f"{rule.metric}: expected {CHANGES[rule.part]} of at least {rule.least_change:+g}, "
            f"found a change of {figure['difference']:+.2f}, from {figure['a']:.2f} to "
            f"{figure['b']:.2f}, with an interval of {figure['low']:+.2f} to {figure['high']:+.2f}"
        )
    return replace(
        work,
        report={
            **work.report,
            "judges": judges,
            "promotion": {"promoted": promoted, "reasons": reasons},
        },
    )


def publish(work: LearnWork) -> LearnWork:
    """Publish the draft with its report and recipe; `latest` stays, unless it is the first one."""
    request = work.request
    origin = {
        "parent": parent_in(work.store, work.model),
        "job": request.job,
        "recipe": request.recipe.without_paths,
        FEEDBACK: {work.model: request.until} if request.until else {},
    }
    draft = replace(
        work.draft,
        metrics={name: figure["b"] for name, figure in work.report["judges"]["figures"].items()},
        extra={
            **work.draft.extra,
            REPORT: json_array(REPORT, {**read_report(work.draft.extra), "learning": work.report}),
            **origin_arrays(origin, request.job),
        },
    )
    with one_step(work.on_progress, "publish"):
        manifest = work.store.publish(work.model, draft, latest=False)
    return replace(work, manifest=manifest)


def recall(work: LearnWork) -> LearnWork:
    """Take the report of the version that an earlier try of the job has published.

    That try has ended before the job was told so. It may have moved `latest` already.
    """
    arrays = work.store.open(work.model, work.manifest.version).arrays
    # a report of an older release lacks the baseline, which is the parent of the version
    parent = read_origin(arrays).get("parent") or {}
    report = {"baseline": parent.get("version"), **read_report(arrays)["learning"]}
    present = work.store.alias(work.model, LATEST).version
    old = work.store.open(work.model, present) if present == report["baseline"] else None
    return replace(work, report=report, old=old)


def tune_thresholds(work: LearnWork) -> LearnWork:
    """Tune thresholds on the held-out documents, where a recipe has an aim for them.

    An earlier try of a job, or feedback, may have set them. A version before this one has none if
    the run that made it was killed.
    """
    new = work.store.open(work.model, work.manifest.version)
    for version in filter(None, (work.old, new)):
        number = version.manifest.version
        objective = read_origin(version.arrays).get("recipe", {}).get("thresholds")
        is_tuned = work.database.load(work.model, number) is not None
        if objective is None or is_tuned or not work.rows.judges:
            continue
        (outcome,) = tune(
            version,
            request_of(None, Path(), None, "zero", objective=objective),
            work.on_progress,
            _labelled(version, dataset_of(work.rows.judges)),
        )
        work.database.save(work.model, number, outcome.tuned, version.manifest.digest)
    return work


def promote(work: LearnWork) -> LearnWork:
    """Let `latest` name the version if it was decided so, and give the model its label info.

    If somebody else has moved `latest` since the versions were compared, it stays. A version never
    changes, so the one with the wrong verdict is then published again, with the right one.
    """
    promotion = work.report["promotion"]
    present = work.store.alias(work.model, LATEST).version
    if promotion["promoted"] and present != (work.old or work).manifest.version:
        promotion = {
            "promoted": False,
            "reasons": [f"{LATEST} moved to {present} while the versions were compared"],
        }
        work = replace(work, report={**work.report, "promotion": promotion})
        if work.draft is not MADE_LATER:  # else an earlier try of the job may have promoted it
            with contextlib.suppress(VersionInUse):  # of an alias that names it already
                work.store.delete(work.model, work.manifest.version)
            work = tune_thresholds(publish(work))
    # a first run that was killed has published a version without label info
    if promotion["promoted"] or work.store.label_info(work.model) is None:
        recipe = work.request.recipe
        work.store.put_label_info(
            work.model,
            read_label_info(
                work.request.files[recipe.vocabulary],
                recipe.key_kind,
                recipe.language,
                first_name=recipe.first_name,
                added=work.request.concepts,
            ),
        )
    if promotion["promoted"]:
        work.store.promote(work.model, work.manifest.version)
    return work


# The steps of a run of a job that has published its version already.
LAST_STEPS = (read_rows, recall, tune_thresholds, promote)

# The steps of a run, in their order.
STEPS = (
    read_rows,
    encode_texts,
    fit_members_and_ranker,
    measure,
    decide,
    publish,
    tune_thresholds,
    promote,
)
