"""The kinds of jobs: for each the model of its requests, further checks, and the function to run.

To add a kind, add a model to `requests`, a function that does the job, and a line with both and the
check to KINDS.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from xylem.admin.jobs.data import DataRoot
from xylem.admin.jobs.requests import (
    BatchJob,
    CombineJob,
    ConceptFields,
    ExtendJob,
    FeedbackSource,
    FittingJob,
    HeldOutFeedback,
    LearnJob,
    PromotionRule,
    PublishingJob,
    TableFields,
    TrainingJob,
    TuneThresholdsRequest,
    TuningChoice,
    TuningJob,
    VocabularyJob,
)
from xylem.base import (
    TABLES,
    BadFields,
    BadInput,
    BadParameter,
    BadRequest,
    Limits,
    TrainingOptions,
    is_table,
    plain_name,
    refuse_without_table,
    what_is,
)
from xylem.engine import PARAMETERS
from xylem.serving import PREDICT_ONLY, RequestModel, all_faults_of
from xylem.thresholds import request_of
from xylem.trainers import TRAINERS, check_spreads, installed, trainer as find_trainer
from xylem.workflows import TrainRequest
from xylem_store import InvalidName, check_alias, check_model, is_language, parse_named, parse_ref

if TYPE_CHECKING:
    from xylem.admin.jobs.context import JobContext

# The figures that a promotion rule may use: for each, more is better.
METRICS = (
    *(f"{metric}@{k}" for metric in ("P", "nDCG", "PSP", "PSnDCG") for k in (1, 3, 5)),
    "R@5",
    "macro_f",
    "micro_f",
    "instance_f",
)

# Data files from which lines can be held out of a training.
SPLIT_SUFFIXES = (".jsonl", ".ndjson", ".svm", ".txt", *TABLES)

# Data files that can be joined with others, and with feedback.
JOINED_SUFFIXES = (".jsonl", ".ndjson", *TABLES)

# Values that replace wrong values of required fields, so that the other fields can be checked.
_STAND_INS = {
    "model": "m",
    "trainer": "ovr",
    "data": "x.jsonl",
    "members": ["m"],
    "vocabulary": "x.ttl",
}

# fields that cannot be checked without the field that is the key
_DEPENDENT = {"trainer": "parameters", "data": "valid"}
Faults = Iterator[BadInput]


class JobKind(NamedTuple):
    """A kind of jobs.

    request  the model of its requests
    check    yields all faults of a request whose fields are valid
    run      the module and the name of the function that does the job: it is not imported here,
             because the modules of all kinds take a part of a second to import
    """

    request: type[RequestModel]
    check: Callable[[Any, DataRoot], Faults]
    run: str


def check_request(
    kind: str, body: object, data: DataRoot, limits: Limits
) -> tuple[dict[str, Any], str]:
    """Return a request as it is stored, and the name of its model.

    Raises BadFields with all faults, each with its place; BadRequest for an unknown kind, or a body
    that is not an object.
    """
    if kind not in KINDS:
        raise BadRequest(f"expected a kind of {', '.join(KINDS)}, found {kind[:40]!r}").with_path(
            "kind"
        )
    if not isinstance(body, dict):
        raise BadRequest(f"expected an object, found {what_is(body)}")
    model, check, _ = KINDS[kind]

    def checked(request: Any) -> Faults:
        yield from _fault_of(check_model, request.model, "model")
        yield from _fault_of(parse_ref, getattr(request, "version", None), "version")
        yield from check(request, data)

    try:
        request = model.model_validate(body, context=limits)
    except ValidationError as error:
        faults = all_faults_of(error, [model])
        bad = {_field(fault) for fault in faults}
        good = {field.alias or name for name, field in model.model_fields.items()} - bad
        good_values = {name: value for name, value in body.items() if name in good}
        stand_ins = {name: value for name, value in _STAND_INS.items() if name in bad}
        reported_fields = set(good_values).difference(_DEPENDENT.get(name) for name in bad)
        with contextlib.suppress(ValidationError):  # more faults, not reported
            other_faults = checked(
                model.model_validate({**stand_ins, **good_values}, context=limits)
            )
            faults += [fault for fault in other_faults if _field(fault) in reported_fields]
        raise BadFields(faults) from None
    if faults := list(checked(request)):
        raise BadFields(faults)
    stored_request = request.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return stored_request, stored_request["model"]


def read_request(kind: str, request: Mapping[str, Any]) -> Any:
    """Return the model of a request that was checked before.

    Raises BadFields, only after an upgrade that changed the model.
    """
    try:
        return KINDS[kind].request.model_validate(request)
    except ValidationError as error:
        raise BadFields(all_faults_of(error, [KINDS[kind].request])) from None


def run_job(context: "JobContext") -> dict[str, Any]:
    """Do a job; return its result.

    An earlier run of the job may have been killed at any moment. This run must have the same
    result, whatever files and rows the earlier one left.
    """
    job = context.job
    result: dict[str, Any] = resolve_name(KINDS[job.kind].run)(
        context, read_request(job.kind, job.request)
    )
    return result


def parameter_schemas() -> dict[str, Any]:
    """Return JSON Schemas of `parameters` of a training job, from which a form can be made.

    `trainers` has for each trainer a description and the schema of its parameters, also for
    trainers of installed packages, except those that cannot be loaded. `features` has for each kind
    of features the schema of its parameters; in a job, their names begin with `features.`. Defaults
    are in the schemas.
    """
    trainers: dict[str, Any] = {}
    for name in dict.fromkeys([*TRAINERS, *installed()]):
        with contextlib.suppress(BadParameter):  # reported to a user who names that trainer
            spec = find_trainer(name)
            trainers[name] = {
                "about": spec.about,
                "parameters": spec.parameters.model_json_schema(),
            }
    return {
        "trainers": trainers,
        "features": {
            kind: parameters.model_json_schema() for kind, parameters in PARAMETERS.items()
        },
    }


def _field(fault: BadInput) -> str:
    return (fault.path or "").split(".")[0].split("[")[0]


def _fault_of(check: Callable[[Any], object], value: Any, path: str) -> Faults:
    """Yield the fault, at `path`, that a check raises for a value; none for null."""
    try:
        if value is not None:
            check(value)
    except (BadInput, InvalidName) as error:
        yield BadRequest(str(error)).with_path(path)


def _check_training(request: TrainingJob, data: DataRoot) -> Faults:
    yield from _fitting_faults(request, data)
    yield from _files(data, label_names=request.label_names)
    yield from parameter_faults(request.trainer, request.parameters)
    yield from _fault_of(parse_named, request.base, "from")
    with contextlib.suppress(BadParameter):  # `parameter_faults` reports it
        yield from _option_faults(request)


def _option_faults(request: TrainingJob) -> Faults:
    """Yield what the options of a training need and do not have, as its workflow would.

    If the training continues from a version, its passes are those that the version planned, and are
    checked when it begins. Raises BadParameter for parameters that are not valid.
    """
    training = TrainRequest(
        **request.model_dump(include=set(TrainingOptions.model_fields)),
        trainer=request.trainer,
        parameters=request.parameters,
        data=Path("data"),  # no file is opened
        valid=Path("valid") if request.measures else None,
    )
    chosen = training.chosen()
    for name, message in training.faults(training.facts(chosen)):
        if request.base is None or name not in ("keep_state", "until"):
            yield BadRequest(message).with_path(name)
    if request.executor == "ray":
        yield from _fault_of(
            lambda name: check_spreads(name, chosen.trainer), request.trainer, "executor"
        )


def _check_combine(request: CombineJob, data: DataRoot) -> Faults:
    yield from _fitting_faults(request, data)
    yield from _files(data, vocabulary=request.vocabulary, rerank=request.rerank)
    for i, member in enumerate(request.members):
        yield from _fault_of(parse_named, member, f"members[{i}]")
    yield from _concept_faults(request)


def _check_extend(request: ExtendJob, data: DataRoot) -> Faults:
    yield from _fitting_faults(request, data)
    yield from _files(data, label_names=request.label_names)
    yield from _files(data, **{f"rows[{i}]": name for i, name in enumerate(request.rows)})


def _check_vocabulary(request: VocabularyJob, data: DataRoot) -> Faults:
    yield from _publishing_faults(request, data)
    yield from _files(data, vocabulary=request.vocabulary)
    yield from _column_faults(request, data)
    yield from _concept_faults(request)


def _concept_faults(request: ConceptFields) -> Faults:
    for field in ("language", "by"):
        tag = getattr(request, field)
        if tag is not None and not is_language(tag):
            yield BadRequest(f"expected a language, as en or pt-br, found {tag!r}").with_path(field)


def _fitting_faults(request: FittingJob, data: DataRoot) -> Faults:
    yield from _publishing_faults(request, data)
    is_one_file = isinstance(request.data, str)
    for i, source in enumerate(request.sources):
        place = "data" if is_one_file else f"data[{i}]"
        if isinstance(source, str):
            yield from _files(data, **{place: source})
            if not (is_one_file or plain_name(Path(source)).endswith(JOINED_SUFFIXES)):
                yield BadRequest(
                    f"expected files of {', '.join(JOINED_SUFFIXES)}, which can be "
                    f"joined, found {source!r}"
                ).with_path(place)
        elif isinstance(source, FeedbackSource):
            yield from _fault_of(check_model, source.feedback.model, f"{place}.feedback.model")
    yield from _column_faults(request, data)
    if request.valid is not None and request.split is not None:
        yield BadRequest("expected valid or split, found both").with_path("split")
    can_split = not is_one_file or plain_name(Path(str(request.data))).endswith(SPLIT_SUFFIXES)
    if request.split is not None and not can_split:
        yield BadRequest(
            f"expected data of {', '.join(SPLIT_SUFFIXES)}, which can be split, found "
            f"{request.data!r}"
        ).with_path("split")


def _publishing_faults(request: PublishingJob, data: DataRoot) -> Faults:
    yield from _files(data, valid=request.valid_file)
    if isinstance(request.valid, HeldOutFeedback) and not request.feedback:
        yield BadRequest(
            "expected feedback in data, whose newest rows are kept out to measure on, found none"
        ).with_path("valid")
    if request.thresholds is not None:
        if not request.measures:
            yield BadRequest("expected valid or split, to tune on, found neither").with_path(
                "thresholds"
            )
        yield from _choice_faults(request.thresholds, "thresholds.")
    if request.promotion is not None:
        yield from _promotion_faults(request.promotion, request.measures)


def _promotion_faults(promotion: PromotionRule, measures: bool) -> Faults:
    conditions = promotion.conditions
    if promotion.alias is None:
        if conditions:
            yield BadRequest("expected no conditions, as no alias moves, found some").with_path(
                "promotion.if"
            )
        return
    yield from _fault_of(check_alias, promotion.alias, "promotion.alias")
    if conditions and not measures:
        yield BadRequest("expected valid or split, to measure on, found neither").with_path(
            "promotion"
        )
    for i, condition in enumerate(conditions):
        if condition.metric not in METRICS:
            yield BadRequest(
                f"expected one of {', '.join(METRICS)}, found {condition.metric[:40]!r}"
            ).with_path(f"promotion.if[{i}].metric")


def parameter_faults(trainer: str, parameters: Mapping[str, Any]) -> Faults:
    """Yield all faults in a trainer's name, its parameters, and the parameters of the features."""
    try:
        find_trainer(trainer)
    except BadParameter as error:
        yield BadRequest(str(error).removeprefix("trainer: ")).with_path("trainer")
        return
    try:
        TrainRequest(trainer=trainer, parameters=parameters, data=Path("data")).chosen()
    except BadParameter as error:
        for name, message in error.faults:
            yield BadRequest(message).with_path(f"parameters.{name}" if name else "parameters")


def _check_tuning(request: TuningJob, data: DataRoot) -> Faults:
    yield from _files(data, data=request.data, test=request.test)
    yield from _column_faults(request, data)
    yield from _choice_faults(request)


def _check_batch(request: BatchJob, data: DataRoot) -> Faults:
    yield from _files(data, data=request.data)
    yield from _column_faults(request, data)
    file = Path(request.data)
    if not (is_table(file) or plain_name(file).endswith((".jsonl", ".ndjson"))):
        yield BadRequest(
            "expected a name that ends in .jsonl, .ndjson, .csv, .tsv (and .gz or .zst), or "
            ".parquet, found another"
        ).with_path("data")
    for name in PREDICT_ONLY:
        if getattr(request, name):
            yield BadRequest(
                "expected an option of a batch, found one that only predict has"
            ).with_path(name)


def _column_faults(request: TableFields, data: DataRoot) -> Faults:
    is_one = isinstance(request.vectors, str)
    for i, name in enumerate(request.vector_files):
        yield from _files(data, **{"vectors" if is_one else f"vectors[{i}]": name})
    try:
        chosen = request.columns()
        if not isinstance(request, TrainingJob):
            chosen.texts.refuse_unweighted()
        paths = list(map(Path, request.data_files))
        for path in paths:
            chosen.for_file(path, Path(plain_name(path)).suffix)
    except BadParameter as error:
        refusal = BadRequest(str(error))
        refusal.path = error.path
        yield refusal
        return
    if paths:
        yield from _fault_of(lambda columns: refuse_without_table(columns, *paths), chosen, "data")


def _files(root: DataRoot, /, **names: str | None) -> Faults:
    for field, name in names.items():
        yield from _fault_of(root.path_of, name, field)


def _choice_faults(choice: TuningChoice, place: str = "") -> Faults:
    """Yield the fault of how thresholds are tuned; `place` is put before its field."""
    try:
        request_of(
            methods=[choice.method],
            valid=Path("valid"),
            test=None,
            empty=choice.empty_labels,
            kappa=choice.kappa,
            start=None if choice.start is None else (choice.start[0], choice.start[1]),
            objective=choice.objective,
        )
    except BadParameter as error:
        field = str(error).partition(":")[0].split()[0]  # method, kappa, start
        yield BadRequest(str(error)).with_path(f"{place}{field}")


# Every kind, by its name.
KINDS: dict[str, JobKind] = {
    "training": JobKind(TrainingJob, _check_training, "xylem.admin.jobs.training:run"),
    "combine": JobKind(CombineJob, _check_combine, "xylem.admin.jobs.training:combine"),
    "extend": JobKind(ExtendJob, _check_extend, "xylem.admin.jobs.training:run_extend"),
    "vocabulary": JobKind(
        VocabularyJob, _check_vocabulary, "xylem.admin.jobs.training:publish_vocabulary"
    ),
    "learn": JobKind(LearnJob, lambda request, data: iter(()), "xylem.admin.jobs.learning:run"),
    "threshold-tuning": JobKind(TuningJob, _check_tuning, "xylem.admin.jobs.training:run_tuning"),
    "batch": JobKind(BatchJob, _check_batch, "xylem.admin.jobs.batch:run"),
}

# The models of the requests of jobs; the first is that of the route that waits for its job.
REQUEST_MODELS: tuple[type[RequestModel], ...] = (
    TuneThresholdsRequest,
    *(kind.request for kind in KINDS.values()),
)
