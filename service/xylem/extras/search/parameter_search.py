"""Search for the trainer and parameters that are best on held-out rows: what `xylem tune` does.

Optuna proposes the parameters. It is imported when a search begins: nodes of a cluster, which run
trials, need this module without it. A study that is stored in a file can be continued.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xylem.base import (
    DEFAULT_COLUMNS,
    BadData,
    BadParameter,
    Calls,
    Crew,
    Dataset,
    OnProgress,
    Scalar,
    TableColumns,
    crew_of,
    no_progress,
    scalar_of,
    split_items,
)
from xylem.datasets import read_dataset
from xylem.evaluation import labelled_dataset
from xylem.extras.search.search_space import (
    DEFAULT_TRAINERS,
    TRAINER,
    ask,
    check_space,
    digest_of_spaces,
    dimensions_of,
    fixed_of,
    start_of,
)
from xylem.vocabulary import featurizer_of
from xylem.workflows import (
    TrainRequest,
    from_json,
    train_dataset,
    valid_figures,
)
from xylem_store import Store, build_names, model_of

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

HELD_OUT_PARTS = 5  # one part of the rows is held out, unless there are folds

METRICS = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5", "R@5")
FOLDS_MAX = 20
_STUDY = "xylem"
_DESCRIPTION = "asked"
_FACTS = "facts"


class TrialFacts(NamedTuple):
    """A trial that ended: what was tried, its metric in percent, and its cost."""

    trainer: str
    parameters: dict[str, Scalar]
    value: float
    seconds: float
    model_bytes: int


@dataclass(frozen=True)
class SearchRequest:
    """A request to search for parameters: what to search, and how long.

    valid    a file to measure on; None: rows of `data` are held out
    folds    1: a fifth is held out once; more: the number of parts, each held out once, whose mean
             counts
    minutes  no trial begins later, and one that is still running then is given up
    trials   at most this many, including those that the study had before
    study    a file that stores the trials; it is made, or continued
    fixed    "key=value" each: these parameters are not searched
    ray      the address of a Ray cluster whose nodes run trials side by side, a trial a processor
    """

    data: Path
    valid: Path | None = None
    folds: int = 1
    trainers: tuple[str, ...] = DEFAULT_TRAINERS
    metric: str = "P@5"
    minutes: float = 10.0
    trials: int = 1000
    study: Path | None = None
    fixed: Sequence[str] = ()
    label_names: Path | None = None
    columns: TableColumns = field(default=DEFAULT_COLUMNS)
    seed: int = 0
    threads: int = 1
    ray: str | None = None

    def training(self, tried: TrialFacts) -> TrainRequest:
        """Return the training of a trial's parameters on all rows."""
        return TrainRequest(
            trainer=tried.trainer,
            data=self.data,
            parameters=tried.parameters,
            label_names=self.label_names,
            columns=self.columns,
            seed=self.seed,
            threads=self.threads,
        )


class Fold(NamedTuple):
    """Rows to train on, and rows that are held out; labels have the same ids in both."""

    train: Dataset
    held_out: Dataset


class _TimeIsUp(Exception):
    """The time of the search is over."""


def search(
    request: SearchRequest,
    on_progress: OnProgress = no_progress,
    rows: tuple[Dataset, Dataset | None] | None = None,
    store: Store | None = None,
) -> list[TrialFacts]:
    """Return the trials of a search, the best first; among equals the earliest.

    rows   the rows of the request's files if they are read already; labels of the second file have
           the ids of the first
    store  has the sentence encoder, if the request names one, and keeps what it makes of the texts

    Each trainer is tried with its usual values first. Nothing is published. With the same seed, the
    same data and a new study the trials are the same, as many as the time allows; on a cluster the
    proposals depend on which trials ended before. Raises BadInput, also if a study is of another
    search or the time was too short for one trial.
    """
    fixed, chosen = _check(request)
    if rows is None:
        dataset = TrainRequest(
            trainer="", data=request.data, label_names=request.label_names, columns=request.columns
        ).read(on_progress)
        valid = (
            None
            if request.valid is None
            else read_dataset(
                request.valid,
                labels=build_names(dataset.names),
                n_features=None if dataset.rows is None else dataset.rows.n_features,
                columns=request.columns,
            )
        )
    else:
        dataset, valid = rows
    dataset.fields.refuse_unweighted()
    encoder = chosen.opened_from(store).encoder
    if encoder is not None:
        dataset = encoder.with_vectors(dataset, Crew(request.threads), on_progress, store)
        valid = valid and encoder.with_vectors(valid, Crew(request.threads), on_progress, store)
    folds = (
        list(folds_of(dataset, request.folds, request.seed))
        if valid is None
        else [Fold(dataset, valid)]
    )
    study = _study(request, dataset, valid)
    spaces = {
        name: dimensions_of(name, fixed, are_texts=dataset.texts is not None)
        for name in request.trainers
    }
    if not study.get_trials(deepcopy=False):
        for name in request.trainers:
            study.enqueue_trial(start_of(name, spaces[name]))
    running = _Running(study, request, on_progress)
    proposals = running.ask(
        lambda trial, name: {**fixed_of(name, fixed), **ask(trial, name, spaces[name])}
    )
    try:
        if request.ray is None:
            for proposal in proposals:
                running.tell(proposal, try_trial(proposal, folds, request, on_progress))
        else:
            with crew_of(1, request.ray, ahead=1) as crew:
                crew.steps(Calls(try_trial, (folds, request)), proposals, running.tell)
    finally:
        running.give_up()
    trials = [TrialFacts(**trial.user_attrs[_FACTS]) for trial in _completed_trials(study)]
    if not trials:
        raise BadParameter(
            f"--minutes: expected time for one trial, found {request.minutes:g} too short"
        )
    return sorted(trials, key=lambda facts: -facts.value)


def _check(request: SearchRequest) -> tuple[dict[str, Scalar], Any]:
    """Return the values that are fixed, and the parameters (`Chosen`) of the first trainer.

    Raises BadParameter for a request that is not valid.
    """
    if request.metric not in METRICS:
        raise BadParameter(
            f"--metric: expected one of {', '.join(METRICS)}, found {request.metric!r}"
        )
    if not 1 <= request.folds <= FOLDS_MAX:
        raise BadParameter(f"--folds: expected 1 to {FOLDS_MAX}, found {request.folds}")
    if request.valid is not None and request.folds > 1:
        raise BadParameter("--folds cannot be used with --valid")
    fixed = {key: scalar_of(text) for key, text in split_items(request.fixed).items()}
    check_space(request.trainers, fixed)
    # features, vectors and encoder are the same for all trainers
    chosen = [from_json(name, fixed_of(name, fixed)) for name in request.trainers]
    return fixed, chosen[0]


def folds_of(dataset: Dataset, folds: int, seed: int) -> Iterator[Fold]:
    """Yield `folds` folds, each with another part of the rows held out; 1: a fifth is held out.

    Rows are dealt by chance, in the same way for the same seed. Raises BadData for fewer rows than
    parts.
    """
    n_parts = HELD_OUT_PARTS if folds == 1 else folds
    if dataset.n_rows < n_parts:
        raise BadData(f"{dataset.source}: expected {n_parts} rows or more, found {dataset.n_rows}")
    part_of = np.random.default_rng(seed).permutation(dataset.n_rows) % n_parts
    for part in range(folds):
        is_out = part_of == part
        yield Fold(dataset.take(np.flatnonzero(~is_out)), dataset.take(np.flatnonzero(is_out)))


def _study(request: SearchRequest, dataset: Dataset, valid: Dataset | None) -> "Study":
    """Return the study of a search: a new one, or that of its file. Raises BadParameter."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    description = json.dumps(
        {
            "data": dataset.sha256,
            "valid": None if valid is None else valid.sha256,
            "folds": request.folds,
            "seed": request.seed,
            "trainers": request.trainers,
            "metric": request.metric,
            "fixed": sorted(request.fixed),
            "spaces": digest_of_spaces(),
        }
    )
    url = None
    if request.study is not None:
        if "?" in str(request.study) or not request.study.parent.is_dir():
            raise BadParameter(
                f"--study: expected a file in a directory that is there, found {request.study}"
            )
        url = f"sqlite:///{request.study.resolve()}"
    try:
        study = optuna.create_study(
            storage=url, study_name=_STUDY, direction="maximize", load_if_exists=True
        )
        stored_description = study.user_attrs.get(_DESCRIPTION)
        if stored_description is None:
            study.set_user_attr(_DESCRIPTION, description)
        # another seed for each start, or the proposals of the first one would come again
        study.sampler = optuna.samplers.TPESampler(seed=(request.seed + len(study.trials)) % 2**32)
    except (SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError) as error:
        raise BadParameter(
            f"--study: expected a file that xylem tune wrote, or none, found {request.study}: "
            f"{type(error).__name__}"
        ) from error
    if stored_description not in (None, description):
        raise BadParameter(
            "--study: expected a study with the same data, metric, trainers, folds, seed, "
            f"parameters and spaces of this release, {description}, found {stored_description}"
        )
    return study


class ProposedTrial(NamedTuple):
    """A trial that is to be run.

    until  when it is given up, in seconds since 1970, which the clocks of all machines agree on
    """

    number: int
    trainer: str
    parameters: dict[str, Scalar]
    until: float


class _Running:
    """Trials that were proposed and have not ended.

    This is Optuna's ask and tell, in the caller's thread.
    """

    def __init__(self, study: "Study", request: SearchRequest, on_progress: OnProgress) -> None:
        from optuna.trial import TrialState

        self._study = study
        self._failed = TrialState.FAIL
        self._request = request
        self._on_progress = on_progress
        self._until = time.time() + 60.0 * request.minutes
        self._trials: dict[int, Trial] = {}

    def ask(
        self, parameters_of: "Callable[[Trial, str], dict[str, Scalar]]"
    ) -> Iterator[ProposedTrial]:
        """Yield trials while there is time, until as many as requested have ended or run."""
        while time.time() < self._until:
            n_ended = len(_completed_trials(self._study))
            if n_ended + len(self._trials) >= self._request.trials:
                return
            self._on_progress("trials", n_ended, self._request.trials)
            trial = self._study.ask()
            self._trials[trial.number] = trial
            name = trial.suggest_categorical(TRAINER, self._request.trainers)
            yield ProposedTrial(trial.number, name, parameters_of(trial, name), self._until)

    def tell(self, proposal: ProposedTrial, facts: TrialFacts | None) -> None:
        """Record the outcome of a trial; None: it was given up."""
        trial = self._trials.pop(proposal.number)
        if facts is None:
            self._study.tell(trial, state=self._failed)
        else:
            trial.set_user_attr(_FACTS, facts._asdict())
            self._study.tell(trial, facts.value)
        self._on_progress("trials", len(_completed_trials(self._study)), self._request.trials)

    def give_up(self) -> None:
        """Record the trials that are still running as failed."""
        for trial in self._trials.values():
            self._study.tell(trial, state=self._failed)


def try_trial(
    proposal: ProposedTrial,
    folds: list[Fold],
    request: SearchRequest,
    on_progress: OnProgress = no_progress,
) -> TrialFacts | None:
    """Train and measure on each fold; return None if it took too long. Raises BadInput."""

    def watch(phase: str, done: int, total: int) -> None:
        if time.time() > proposal.until:
            raise _TimeIsUp
        on_progress(phase, done, total)

    threads = request.threads if request.ray is None else 1
    training = TrainRequest(
        trainer=proposal.trainer,
        data=request.data,
        parameters=proposal.parameters,
        seed=request.seed,
        threads=threads,
    )
    start = time.monotonic()
    values = []
    n_bytes = 0
    try:
        for fold in folds:
            draft = train_dataset(
                fold.train,
                training,
                watch,
                # an encoder has made the vectors of all folds already
                chosen=training.chosen()._replace(encoder_name=None),
            )
            model = model_of(draft)
            featurizer = featurizer_of(model)
            values.append(
                valid_figures(
                    model,
                    labelled_dataset(featurizer.drop_unused_vectors(fold.held_out), featurizer),
                    threads,
                    watch,
                ).metrics[request.metric]
            )
            n_bytes = max(n_bytes, sum(array.nbytes for array in draft.ensemble))
    except _TimeIsUp:
        return None
    return TrialFacts(
        trainer=proposal.trainer,
        parameters=proposal.parameters,
        value=sum(values) / len(values),
        seconds=round(time.monotonic() - start, 3),
        model_bytes=n_bytes,
    )


def _completed_trials(study: "Study") -> "list[FrozenTrial]":
    """Return the trials that have a value, in the order in which they were tried."""
    from optuna.trial import TrialState

    return list(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
