"""The request for a training and its parameters, checked together before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from xylem.base import (
    DEFAULT_COLUMNS,
    BadParameter,
    Crew,
    Dataset,
    ParameterFault,
    Parameters,
    TableColumns,
    crew_of,
    json_object,
    scalar_of,
    split_items,
    stored_steps,
)
from xylem.datasets import STDIN, read_dataset
from xylem.engine import (
    FILE_SUFFIX,
    PREFIX,
    WORD_FORMS,
    WordParameters,
    check_features,
    fit_forms,
)
from xylem.trainers import TRAINERS, ClassifierParameters, Progress, check_spreads, trainer
from xylem_store import Weights


@dataclass(frozen=True)
class TrainRequest:
    """A request for a training: what to train on, and how.

    data        a file, or STDIN: lines that are learnt as they arrive
    parameters  "key=value" each, or the values of a JSON object by name; those whose names begin
                with "features." are the features', others the trainer's
    label_names  for numeric data files: line i + 1 is the name of label i
    columns     of data and valid, if they are tables
    weights     the type in which weights are stored
    stream      read the data again for each pass, and never hold it in memory
    origin      fields of the version's origin (`xylem_store.origin`), such as its job; the parent
                is the version that `latest` named before, unless it is given here
    latest      whether `latest` moves to the published version; to a first version it always does
    calibrate   whether scores are fitted to the validation rows (`xylem.workflows.calibrate`)
    rerank      whether candidates are re-ranked, if that gains (`xylem.workflows.rerank`)
    keep_rows   whether the rows are stored with the version, so that labels can be added (`xylem
                extend`)
    keep_state  whether the state of a learner is stored, so that the training can be continued
    until       the last pass over the rows to make, of those that the parameters plan; 0: all
    base        a model's name and a version that the training continues from: its features,
                parameters and trees stay, and what it stores is stored again
    extends     whether labels that the base lacks are added, learnt from `data`
    rows        with `extends`: files of the rows that the base was trained on; none: the rows that
                the base stores
    made_for    an id for which only one version is published: if it exists already, no other is
                made
    ray         the address of a Ray cluster whose nodes run the steps
                (`xylem.base.executors.ray.connect`)
    steps       a directory in which finished steps are kept until the version is published; not for
                a stream
    resume      whether finished steps that are in `steps` already are used
    """

    trainer: str
    data: Path
    valid: Path | None = None
    parameters: Sequence[str] | Mapping[str, Any] = ()
    label_names: Path | None = None
    columns: TableColumns = DEFAULT_COLUMNS
    weights: Weights = "float32"
    seed: int = 0
    threads: int = 1
    stream: bool = False
    origin: Mapping[str, Any] = field(default_factory=dict)
    latest: bool = True
    calibrate: bool = False
    rerank: bool = False
    keep_rows: bool = False
    keep_state: bool = False
    until: int = 0
    base: tuple[str, str | int] | None = None
    extends: bool = False
    rows: Sequence[Path] = ()
    made_for: str | None = None
    ray: str | None = None
    steps: Path | None = None
    resume: bool = False

    def read(self, on_progress: Progress, file: Path | None = None) -> Dataset:
        """Return the rows of the data, or of another file of the same form. Raises BadInput."""
        return read_dataset(
            self.data if file is None else file,
            label_names_file=self.label_names,
            columns=self.columns,
            on_progress=partial(on_progress, "read"),
        )

    def chosen(self) -> Chosen:
        """Return the parameters. Raises BadParameter, which lists everything that is wrong."""
        if isinstance(self.parameters, Mapping):
            return from_json(self.trainer, dict(self.parameters))
        return parse(self.trainer, self.parameters)

    @contextmanager
    def crew(self) -> Iterator[Crew]:
        """Yield the crew that runs the steps; finished steps are deleted if the block ends well."""
        with ExitStack() as stack:
            crew = stack.enter_context(crew_of(self.threads, self.ray))
            if self.steps is not None:
                crew = stack.enter_context(stored_steps(crew, self.steps, self.resume))
            yield crew

    def check(self, chosen: Chosen, finds_thresholds: bool) -> None:
        """Raise BadParameter for options that cannot be used together.

        finds_thresholds  whether thresholds are found beside the training
        """
        name = self.trainer
        plan = trainer(self.trainer).plan(chosen.trainer)
        is_exact = name in TRAINERS and TRAINERS[name].is_exact
        from_stdin = self.data == STDIN
        is_stream = self.stream or from_stdin
        in_blocks = self.stream and isinstance(chosen.trainer, ClassifierParameters)
        has_more = (is_stream and plan is None) or self.rerank or finds_thresholds
        on_nodes = self.ray is not None or self.resume
        until = self.until
        passes, can_add = (0, True) if plan is None else (plan.passes, plan.is_open)
        keeps = self.keep_state or until > 0
        stdin = "standard input"
        memory = "rows in memory"
        capable = ", ".join(spec.name for spec in TRAINERS.values() if spec.plan(spec.parameters()))
        learners = f"one of {capable}, or plt with solver=sgd"
        a_pass = f"a file, and a pass of 1 to {passes}"
        below = f"--until below the {passes} passes, because {name} cannot make more passes later"
        with_file = "a file with --stream and --label-names"
        for is_wrong, option, expected, actual in (
            (
                self.calibrate and self.valid is None,
                "calibrate",
                "a validation file to fit to",
                "none",
            ),
            (self.calibrate and from_stdin, "calibrate", "a file", stdin),
            (
                self.calibrate and is_exact,
                "calibrate",
                "a score for each label by itself",
                f"{name}, whose scores sum to 1",
            ),
            (self.rerank and is_exact, "rerank", "sparse rows", f"{name}, whose scores sum to 1"),
            (
                finds_thresholds and not self.stream,
                "thresholds",
                "--stream",
                f"{memory}: xylem thresholds",
            ),
            (
                finds_thresholds and self.calibrate,
                "thresholds",
                "uncalibrated scores",
                "--calibrate",
            ),
            (self.rerank and self.calibrate, "rerank", "uncalibrated scores", "--calibrate"),
            (self.rerank and is_stream, "rerank", memory, "a stream"),
            (self.base and has_more, "from", f"{memory}, without a ranker or thresholds", "others"),
            (keeps and plan is None, "keep_state", learners, name),
            (keeps and self.rerank, "keep_state", learners, "--rerank"),
            (
                until and not self.keep_state,
                "until",
                "--keep-state, so that a training can go on",
                "none",
            ),
            (until and from_stdin, "until", a_pass, stdin),
            (until and not 1 <= until <= passes, "until", a_pass, until),
            (keeps and not can_add and until in (0, passes), "keep_state", below, until or "none"),
            (self.keep_rows and is_stream, "keep_rows", f"{memory}, of one version", "a stream"),
            (self.keep_rows and self.rerank, "keep_rows", f"{memory}, of one version", "--rerank"),
            (on_nodes and from_stdin, "ray", f"{memory}, label-tree or ovr", stdin),
            (
                on_nodes and is_stream and not in_blocks,
                "ray",
                f"{memory}, label-tree or ovr",
                "a stream",
            ),
            (from_stdin and (self.stream or self.label_names), "data", with_file, stdin),
        ):
            if is_wrong:
                raise BadParameter(f"{option}: expected {expected}, found {actual}")
        if on_nodes:
            check_spreads(name, chosen.trainer)


class Chosen(NamedTuple):
    """The parameters of a training.

    trainer   of the trainer's class
    features  values by name, without their prefix; the kind of features they belong to may be known
              only with the data
    """

    trainer: Parameters
    features: dict[str, Any]


def parse(name: str, items: Sequence[str]) -> Chosen:
    """Return the parameters that a command line's `key=value` items choose for trainer `name`.

    Items whose names begin with "features." are the features', others the trainer's. Raises
    BadParameter for a trainer that is unknown; otherwise its `faults` are all that is wrong with
    the parameters. Raises BadData for a file of stop words that cannot be used.
    """
    parameters = trainer(name).parameters
    trainer_values, features = _split_values(split_items(items))
    return _check_together(
        lambda: parameters.from_text(trainer_values),
        {key: scalar_of(text) for key, text in features.items()},
    )


def from_json(name: str, values: object) -> Chosen:
    """Return the parameters that a JSON object chooses: `{"trees": 3, "features.ngram_max": 2}`.

    Raises as `parse`. The object may come from another machine, so it cannot name files, such as
    one of stop words.
    """
    parameters = trainer(name).parameters
    trainer_values, features = _split_values(json_object(values))
    stop_words = features.get("stop_words")
    if isinstance(stop_words, str) and stop_words.endswith(FILE_SUFFIX):
        message = (
            "expected the code of a language, found a file, which only xylem train and "
            "estimate take"
        )
        raise BadParameter.from_faults([ParameterFault(f"{PREFIX}stop_words", message)])
    return _check_together(lambda: parameters.from_json(trainer_values), features)


def _split_values(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of the trainer, and those of the features without their prefix."""
    trainer_values = {key: value for key, value in values.items() if not key.startswith(PREFIX)}
    return trainer_values, {
        key.removeprefix(PREFIX): value
        for key, value in values.items()
        if key not in trainer_values
    }


def _check_together(make: Callable[[], Parameters], features: dict[str, Any]) -> Chosen:
    faults: list[ParameterFault] = []
    chosen = None
    try:
        chosen = make()
    except BadParameter as error:
        faults += error.faults
    try:
        check_features(features)
    except BadParameter as error:
        faults += error.faults
    if chosen is None or faults:
        raise BadParameter.from_faults(faults)
    words = {name: features[name] for name in WORD_FORMS if name in features}
    # a missing library or file is reported before data are read
    fit_forms(WordParameters(**words))
    return Chosen(chosen, features)
