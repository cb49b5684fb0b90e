"""The JSON of jobs, schedules and the files of the data directory."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, RootModel

from xylem.admin import JobProgress, PromotionVerdict, UploadedFile
from xylem.serving import AtMost, RequestModel

# The most jobs of one answer.
JOBS_MAX = 1000


class KindQuery(RequestModel):
    """Selects jobs of one kind to list."""

    state: str | None = Field(
        default=None, description="queued, running, succeeded, failed or cancelled; all if left out"
    )
    model: str | None = Field(default=None, description="only jobs of this model")
    limit: int = Field(default=100, ge=1, le=JOBS_MAX, description="how many to return at most")


class JobQuery(KindQuery):
    """Selects jobs to list."""

    kind: str | None = Field(
        default=None,
        description="training, combine, extend, vocabulary, learn, threshold-tuning or batch; "
        "all if left out",
    )


class SubmittedJob(BaseModel):
    """A job that was accepted; the header Location has its URL."""

    id: str
    kind: str
    state: str = Field(examples=["queued", "running", "succeeded", "failed", "cancelled"])


class JobAnswer(SubmittedJob):
    """A job and its result. Times are RFC 3339."""

    model: str
    version: int | None = Field(description="the version that it published, or works with")
    progress: JobProgress | None
    error: str | None = Field(description="why it failed")
    error_code: str | None
    created: str
    started: str | None
    ended: str | None
    promotion: PromotionVerdict | None
    result: dict[str, Any] | None = Field(
        description="figures of a version or tuning, counts of a batch"
    )
    attempts: int
    worker: str | None
    cancel_asked: bool
    request: dict[str, Any]


class JobList(BaseModel):
    """Jobs, the newest first."""

    jobs: list[JobAnswer]


class ScheduleRequest(RequestModel):
    """A job that is submitted automatically; either `cron` or `rows` tells when."""

    kind: str = Field(default="training", description="the kind of the job")
    job: dict[str, Any] = Field(description="the body of such a job")
    cron: str | None = Field(
        default=None,
        description="times of UTC: minute, hour, day of the month, month, day of the week",
    )
    rows: int | None = Field(
        default=None, ge=1, description="submit a job whenever this many rows of feedback have come"
    )


class ScheduleAnswer(BaseModel):
    """A schedule.

    `next` is the time of the next run; `rows_come` is how many rows have come since the last run.
    """

    id: str
    kind: str
    model: str
    alias: str | None = Field(description="the alias that its jobs move")
    cron: str | None
    next: str | None
    rows: int | None
    rows_come: int | None
    runs: int
    last_job: str | None
    created: str
    job: dict[str, Any]


class ScheduleList(BaseModel):
    """The schedules, the oldest first."""

    schedules: list[ScheduleAnswer]


class RecipeBody(RootModel[dict[str, Any]]):
    """A recipe: what a model learns from, how, and when."""


class RecipeAnswer(BaseModel):
    """The recipe of a model."""

    model: str
    recipe: dict[str, Any]
    changed: str


def _with_fields(description: str, **types: Any) -> Any:
    """Return the annotation of an object with fields of these types of JSON.

    A small object of an answer is described by it, because a model would also validate it: reports
    are read from versions, which another release may have made.
    """
    return Field(
        description=description,
        json_schema_extra={"properties": {name: {"type": kind} for name, kind in types.items()}},
    )


class LearningRun(BaseModel):
    """What a run of a recipe has reported. Times are seconds since 1970."""

    version: int
    published_at: float = Field(alias="at")
    until: float = Field(description="when feedback was read; 0: there was none")
    promoted: bool
    reasons: list[str]
    judges: int = Field(description="the held-out documents of the figures")
    figures: dict[
        str,
        Annotated[
            dict[str, float],
            _with_fields(
                "the version before (a; 0 without one), the new one (b), their difference with its "
                "95% interval, and p of the paired randomisation test",
                **dict.fromkeys(("a", "b", "difference", "low", "high", "p"), "number"),
            ),
        ],
    ] = Field(description="by name, such as F1@5, in percent; empty: not measured")
    corrections: Annotated[
        dict[str, Any],
        _with_fields(
            "held-out corrections: those that are like learnt rows (twins), and the figures of the "
            "others",
            rows="integer",
            twins="integer",
            figures="object",
        ),
    ]
    concepts: Annotated[
        dict[str, Any],
        _with_fields(
            "how many were learnt, for the first time (some are named), or are found by their "
            "names alone; and how many labels of rows are never answered",
            learnt="integer",
            new="integer",
            new_names="array",
            by_name="integer",
            never="integer",
        ),
    ]
    sources: list[
        Annotated[
            dict[str, Any],
            _with_fields(
                "a file, feedback or concepts: its rows, and how many have which use",
                source="string",
                role="string",
                **dict.fromkeys(("rows", "learnt", "members", "held_out", "left_out"), "integer"),
            ),
        ]
    ]


class LearningAnswer(BaseModel):
    """How a model learns by its recipe. Times are seconds since 1970."""

    recipe: dict[str, Any] | None
    schedule: Annotated[
        dict[str, Any] | None,
        _with_fields(
            "when a run begins: at the times of a cron line, or after a number of rows of feedback",
            id="string",
            cron=["string", "null"],
            rows=["integer", "null"],
            next_at=["number", "null"],
        ),
    ]
    n_waiting: int = Field(description="the rows of feedback since the last run")
    job: Annotated[
        dict[str, Any] | None, _with_fields("the run under way", id="string", state="string")
    ]
    runs: list[LearningRun] = Field(description="at most 50, the newest first")


class ConceptKey(RequestModel):
    """The key of a concept that is added to the vocabulary of a model."""

    key: str = Field(description="the label, such as a URI")


class ConceptBody(ConceptKey):
    """A concept that is added to the vocabulary of a model."""

    names: Annotated[
        dict[str, Annotated[list[str], AtMost("label_list_max", "names")]],
        AtMost("label_list_max", "languages"),
    ] = Field(description="by language, the name and then other names: texts are searched for them")
    broader: Annotated[list[str], AtMost("label_list_max", "broader concepts")] = Field(
        default=[], description="keys of the concepts above it"
    )
    examples: Annotated[list[str], AtMost("events_max", "examples")] = Field(
        default=[], description="texts that have it: the next run learns"
    )


class AddedConcept(ConceptBody):
    """A concept that was added to the vocabulary of a model."""

    added_at: float = Field(alias="at", description="when it was added, in seconds since 1970")
    version: int | None = Field(description="the first version that answers it")


class ConceptList(BaseModel):
    """The concepts that were added to a model's vocabulary, the oldest first."""

    concepts: list[AddedConcept]


class UploadedFileList(BaseModel):
    """The files of the data directory, by name."""

    files: list[UploadedFile]
