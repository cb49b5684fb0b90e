"""What a job of each kind is asked for: one pydantic model a kind, strict, no field but these.

Whether names, trainers and parameters are good is for `xylem.admin.jobs.kinds` to say.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag

from xylem.base import COLUMNS_MAX, TableColumns, columns_of, fault
from xylem.serving import HIDDEN, Options, RequestModel, null_or
from xylem.workflows import KAPPA_MAX, KAPPA_MIN
from xylem_store import BEAM_MAX, CANDIDATES_MAX, MEMBERS_MAX

Name = Annotated[str, Field(max_length=512)]
Language = Annotated[str, Field(max_length=64)]


Version = Annotated[int | str | None, null_or((int, str), "null, a number or an alias")]
"""Whether it is a good one is seen later."""

TuningMethod = Literal["ofo", "fta", "fta-one", "sto", "all"]
EmptyLabels = Literal["one", "zero"]
Kappa = Annotated[float, Field(ge=KAPPA_MIN, le=KAPPA_MAX)]
StartValues = Annotated[list[float], Field(min_length=2, max_length=2)]

CONDITIONS_MAX = 32
SOURCES_MAX = 32
PARAMETERS_MAX = 100
FILES_MAX = 16


def _few(value: Any) -> Any:
    """Return the parameters of a request: of too many, none is looked at."""
    if type(value) is dict and len(value) > PARAMETERS_MAX:
        raise fault(f"expected at most {PARAMETERS_MAX} parameters, found {len(value)}")
    return value


ParameterValue = Annotated[
    bool | int | float | str | None,
    null_or((bool, int, float, str), "a string, a number, true, false or null"),
]
"""Whether it is a good one is for its trainer to say."""


class TuningChoice(RequestModel):
    """How thresholds are tuned; `xylem.workflows.tuning.TuneRequest` says what the fields mean.

    method  "all": the thresholds of ofo are kept, the others are reported
    """

    method: TuningMethod = "ofo"
    empty_labels: EmptyLabels = "zero"
    kappa: Kappa | None = None
    start: StartValues | None = None


class PromotionCondition(RequestModel):
    """A figure of `xylem evaluate`, and by how much it must rise
    at least; below 0: may fall at most.
    """

    metric: str
    least_change: Annotated[float, Field(allow_inf_nan=False)] = 0.0


class PromotionRule(RequestModel):
    """An alias, and what must hold for it to move to the new version;
    no alias: the version is only kept.
    """

    alias: str | None = "latest"
    conditions: Annotated[
        list[PromotionCondition], Field(alias="if", max_length=CONDITIONS_MAX)
    ] = Field(default_factory=list)


class TableFields(RequestModel):
    """Which columns of data files that are tables are read, as the options of the
    commands say it.
    """

    text_column: Annotated[list[str], Field(max_length=COLUMNS_MAX)] | None = None
    label_column: Name | None = None
    label_separator: str | None = None
    delimiter: str | None = None

    def columns(self) -> TableColumns:
        """Return the columns. Raises BadParameter."""
        return columns_of(self.text_column, self.label_column, self.label_separator, self.delimiter)


class FeedbackSpan(RequestModel):
    """The rows that are kept of the feedback to a model, of the
    last `days`; all of them if left out.
    """

    model: str
    days: Annotated[int, Field(ge=1, le=36_500)] | None = None


class FeedbackSource(RequestModel):
    """Rows of feedback, as a part of the data."""

    feedback: FeedbackSpan


class HeldOutFeedback(RequestModel):
    """The share of the rows of feedback in `data`, the newest, that is
    kept out of the fit to measure on.
    """

    feedback: Annotated[float, Field(ge=0.001, le=0.9)]


_FILE = Tag(f"{HIDDEN}file")
_OTHER = Tag(f"{HIDDEN}other")
_file_or = Discriminator(
    lambda value: (_OTHER if isinstance(value, dict | list | RequestModel) else _FILE).tag
)

File: TypeAlias = Annotated[Name, _FILE]
Source: TypeAlias = Annotated[File | Annotated[FeedbackSource, _OTHER], _file_or]
Sources: TypeAlias = Annotated[
    File | Annotated[list[Source], Field(min_length=1, max_length=SOURCES_MAX), _OTHER], _file_or
]
ValidRows: TypeAlias = Annotated[File | Annotated[HeldOutFeedback, _OTHER], _file_or]


class PublishingJob(TableFields):
    """What publishes a version, and decides whether an alias moves to it.

    valid       a validation file, or a share of the feedback in `data`
    thresholds  tuned on the validation rows; none: not tuned
    promotion   none: `latest` moves to the version whatever its figures are
    """

    model: str
    valid: ValidRows | None = None
    thresholds: TuningChoice | None = None
    promotion: PromotionRule | None = None

    @property
    def valid_file(self) -> str | None:
        """The validation file, if there is one."""
        return self.valid if isinstance(self.valid, str) else None

    @property
    def sources(self) -> list[str | FeedbackSource]:
        """What the rows of the data come from."""
        return []

    @property
    def feedback(self) -> list[str]:
        """The models whose feedback is among them."""
        return [
            source.feedback.model for source in self.sources if isinstance(source, FeedbackSource)
        ]

    @property
    def measures(self) -> bool:
        """Whether there are validation rows."""
        return self.valid is not None

    @property
    def goes_on(self) -> bool:
        """Whether it goes on from a version, whose thresholds may fit."""
        return False


class FittingJob(PublishingJob):
    """What publishes a version that is fitted to the rows of
    `data`: a file, or several and feedback.

    split  in place of `valid`: so large a share of the rows is kept out of the fit, to measure on
    """

    data: Sources
    split: Annotated[float, Field(ge=0.001, le=0.9)] | None = None
    seed: Annotated[int, Field(ge=0, le=(1 << 63) - 1)] = 0

    @property
    def sources(self) -> list[str | FeedbackSource]:
        """What the rows of the data come from."""
        return [self.data] if isinstance(self.data, str) else self.data

    @property
    def measures(self) -> bool:
        """Whether there are validation rows."""
        return self.valid is not None or self.split is not None


class TrainingJob(FittingJob):
    """A training that publishes a version.

    parameters   of the trainer by name, of the features as "features.NAME"
    label_names  for numeric data files: line i + 1 is the name of label i
    calibrate    whether scores are fitted to the validation rows, so that they are probabilities
    rerank       whether near training rows rank candidates anew, where held-out rows gain by it
    keep_rows    whether the version keeps its training rows, so that labels can be added
    keep_state   whether the version keeps the state of a learner, so that a training goes on from
                 it
    until        the last pass of those that are planned; 0: all
    base         "from": a version that it goes on from, as "NAME" or "NAME@VERSION"
    executor     ray: the steps are run by the nodes of the cluster at XYLEM_RAY_ADDRESS
    """

    trainer: str
    parameters: Annotated[
        dict[str, ParameterValue], Field(max_length=PARAMETERS_MAX), BeforeValidator(_few)
    ] = Field(default_factory=dict)
    label_names: Name | None = None
    weights: Literal["float32", "bfloat16", "int8"] = "float32"
    calibrate: bool = False
    rerank: bool = False
    executor: Literal["local", "ray"] = "local"
    keep_rows: bool = False
    keep_state: bool = False
    until: Annotated[int, Field(ge=0)] = 0
    base: Annotated[Name | None, Field(alias="from")] = None

    @property
    def goes_on(self) -> bool:
        """Whether it goes on from a version, whose thresholds may fit."""
        return self.base is not None


class ExtendJob(FittingJob):
    """Labels added to a version, without `version` to what `latest` names, and published.

    data  labelled rows, some with labels that the version does not have; `seed` is of their split
    rows  the files that it was trained on; without them it must keep its rows
    """

    version: Version = None
    rows: Annotated[list[Name], Field(max_length=FILES_MAX)] = Field(default_factory=list)
    label_names: Name | None = None

    @property
    def goes_on(self) -> bool:
        """Whether it goes on from a version, whose thresholds may fit."""
        return True


class ConceptFields(RequestModel):
    """How concepts are read; `xylem.workflows.combine.CombineRequest` says what the fields mean."""

    language: Language | None = None
    by: Language | None = None


class CombineJob(FittingJob, ConceptFields):
    """A combination that publishes a version; its ranker is fitted
    to `data`, which no member may know.

    members  versions of the store, as "NAME" or "NAME@VERSION"
    rerank   a file: the rows that the first member was trained on
    """

    members: Annotated[list[Name], Field(min_length=1, max_length=MEMBERS_MAX)]
    vocabulary: Name | None = None
    candidates: Annotated[int, Field(ge=1, le=CANDIDATES_MAX)] = 50
    beam_width: Annotated[int, Field(ge=1, le=BEAM_MAX)] = 3
    ranker: Literal["auto", "boosted", "linear"] = "auto"
    rerank: Name | None = None


class VocabularyJob(PublishingJob, ConceptFields):
    """A combined version with another vocabulary; what is left out of
    `language` and `by` stays as it was.
    """

    vocabulary: Name
    version: Version = None


class TuneThresholdsRequest(TuningChoice, TableFields):
    """A tuning of the thresholds of a version; without `version` of what `latest` names.

    test    another file, to measure on
    shadow  whether what is found is only scored beside the thresholds in force
    """

    data: Name
    version: Version = None
    test: Name | None = None
    shadow: bool = False


class TuningJob(TuneThresholdsRequest):
    """The same as a job, which looks what `latest` names when it begins."""

    model: str


class BatchJob(Options, TableFields):
    """Predictions for the lines of a file or the rows of a table; the options are
    those of a batch.
    """

    model: str
    data: Name
    version: Version = None
