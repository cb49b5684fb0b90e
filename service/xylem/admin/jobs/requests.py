"""The requests of jobs: one strict pydantic model for each kind, without further fields.

`xylem.admin.jobs.kinds` checks whether names, trainers and parameters exist.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag

from xylem.base import TableColumns, TextFields, TrainingOptions, columns_of, fault
from xylem.serving import HIDDEN, Options, RequestModel, null_or
from xylem.thresholds import KAPPA_MAX, KAPPA_MIN
from xylem_store import BEAM_MAX, CANDIDATES_MAX, LATEST, MEMBERS_MAX

Name = Annotated[str, Field(max_length=512)]
Language = Annotated[str, Field(max_length=64)]


# A version's number or alias; it is checked later whether it exists.
Version = Annotated[int | str | None, null_or((int, str), "null, a number or an alias")]

TuningMethod = Literal["ofo", "fta", "fta-one", "sto", "all"]
TuningObjective = Literal["macro", "micro", "instance"]
EmptyLabels = Literal["one", "zero"]
Kappa = Annotated[float, Field(ge=KAPPA_MIN, le=KAPPA_MAX)]
StartValues = Annotated[list[float], Field(min_length=2, max_length=2)]

CONDITIONS_MAX = 32
SOURCES_MAX = 32
PARAMETERS_MAX = 100
FILES_MAX = 16

VECTOR = "vector"  # the key of the vector in a row of feedback


def _few(value: Any) -> Any:
    """Return the parameters of a request; refuse too many before any of them is checked."""
    if type(value) is dict and len(value) > PARAMETERS_MAX:
        raise fault(f"expected at most {PARAMETERS_MAX} parameters, found {len(value)}")
    return value


# The value of a parameter, which its trainer checks.
ParameterValue = Annotated[
    bool | int | float | str | None,
    null_or((bool, int, float, str), "a string, a number, true, false or null"),
]


class TuningChoice(RequestModel):
    """How thresholds are tuned; `xylem.thresholds.tuning.TuneRequest` describes the fields.

    method  "all": the thresholds of ofo are stored, the others are reported
    """

    method: TuningMethod = "ofo"
    objective: TuningObjective = "macro"
    empty_labels: EmptyLabels = "zero"
    kappa: Kappa | None = None
    start: StartValues | None = None


class PromotionCondition(RequestModel):
    """A figure of `xylem evaluate`, and by how much it must rise at least.

    least_change  below 0: by how much it may fall at most
    """

    metric: str
    least_change: Annotated[float, Field(allow_inf_nan=False)] = 0.0


class PromotionRule(RequestModel):
    """An alias, and the conditions under which it moves to the new version.

    alias  null: no alias moves, and the version is only published
    """

    alias: str | None = "latest"
    conditions: Annotated[
        list[PromotionCondition], Field(alias="if", max_length=CONDITIONS_MAX)
    ] = Field(default_factory=list)


_FILE = Tag(f"{HIDDEN}file")
_OTHER = Tag(f"{HIDDEN}other")
_file_or = Discriminator(
    lambda value: (_OTHER if isinstance(value, dict | list | RequestModel) else _FILE).tag
)

File: TypeAlias = Annotated[Name, _FILE]
Files: TypeAlias = Annotated[
    File | Annotated[list[Name], Field(min_length=1, max_length=SOURCES_MAX), _OTHER], _file_or
]


class TableFields(RequestModel):
    """How data files are read, and which columns of tables, as the options of the commands.

    vectors  a `.npy` file beside each data file, in the order of `data_files`
    """

    text_column: Annotated[list[str], Field(max_length=TextFields.n_max)] | None = None
    label_column: Name | None = None
    label_separator: str | None = None
    delimiter: str | None = None
    label_columns: Annotated[list[Name], Field(max_length=TextFields.n_max)] | None = None
    quote: Literal["none"] | None = None
    encoding: Name | None = None
    join_rows: Name | None = None
    strict: bool = False
    weight_column: Name | None = None
    vector_column: Name | None = None
    vectors: Files | None = None

    @property
    def data_files(self) -> list[str]:
        """Return the names of the data files."""
        return []

    @property
    def vector_files(self) -> list[str]:
        """Return the names of the files of vectors."""
        return [self.vectors] if isinstance(self.vectors, str) else self.vectors or []

    def columns(self, find: Callable[[str], Path] = Path) -> TableColumns:
        """Return how the files are read, whose paths `find` returns. Raises BadParameter."""
        columns = columns_of(
            self.text_column,
            self.label_column,
            self.label_separator,
            self.delimiter,
            label_columns=self.label_columns,
            quote=self.quote,
            encoding=self.encoding,
            join_rows=self.join_rows,
            strict=self.strict,
            weight_column=self.weight_column,
        )
        vectors = [find(name) for name in self.vector_files]
        columns = columns.with_vectors(
            vectors, *[find(name) for name in self.data_files if vectors], column=self.vector_column
        )
        # rows that a job writes anew, and those of feedback, have their vectors in this key
        return columns._replace(vector=VECTOR) if vectors else columns


class FeedbackSpan(RequestModel):
    """The stored rows of the feedback to a model: of the last `days`, or all if left out."""

    model: str
    days: Annotated[int, Field(ge=1, le=36_500)] | None = None


class FeedbackSource(RequestModel):
    """Rows of feedback, as a part of the data."""

    feedback: FeedbackSpan


class HeldOutFeedback(RequestModel):
    """The share of the feedback rows in `data` that is held out to measure on: the newest ones."""

    feedback: Annotated[float, Field(ge=0.001, le=0.9)]


Source: TypeAlias = Annotated[File | Annotated[FeedbackSource, _OTHER], _file_or]
Sources: TypeAlias = Annotated[
    File | Annotated[list[Source], Field(min_length=1, max_length=SOURCES_MAX), _OTHER], _file_or
]
ValidRows: TypeAlias = Annotated[File | Annotated[HeldOutFeedback, _OTHER], _file_or]


class PublishingJob(TableFields):
    """A job that publishes a version, and decides whether an alias moves to it.

    valid       a validation file, or a share of the feedback in `data`
    thresholds  how thresholds are tuned on the validation rows; null: they are not tuned
    promotion   null: `latest` moves to the version whatever its figures are
    """

    model: str
    valid: ValidRows | None = None
    thresholds: TuningChoice | None = None
    promotion: PromotionRule | None = None

    @property
    def data_files(self) -> list[str]:
        return [
            *[source for source in self.sources if isinstance(source, str)],
            *self.further_files,
            *([self.valid_file] if self.valid_file else []),
        ]

    @property
    def further_files(self) -> list[str]:
        """Return the names of the files of rows that are neither the data nor for validation."""
        return []

    @property
    def valid_file(self) -> str | None:
        """Return the validation file, if there is one."""
        return self.valid if isinstance(self.valid, str) else None

    @property
    def sources(self) -> list[str | FeedbackSource]:
        """Return the files and feedback that the rows of the data come from."""
        return []

    @property
    def feedback(self) -> list[str]:
        """Return the models whose feedback is among the data."""
        return [
            source.feedback.model for source in self.sources if isinstance(source, FeedbackSource)
        ]

    @property
    def measures(self) -> bool:
        """Return whether there are validation rows."""
        return self.valid is not None

    @property
    def bases(self) -> list[str]:
        """Return the versions whose features the rows get, as NAME@VERSION."""
        return []

    @property
    def goes_on(self) -> bool:
        """Return whether the job continues from a version, whose thresholds may fit the new one."""
        return False


class FittingJob(PublishingJob):
    """A job that publishes a version fitted to the rows of `data`: a file, or files and feedback.

    split  instead of `valid`: the share of the rows that is held out of the fit, to measure on
    """

    data: Sources
    split: Annotated[float, Field(ge=0.001, le=0.9)] | None = None
    seed: Annotated[int, Field(ge=0, le=(1 << 63) - 1)] = 0

    @property
    def sources(self) -> list[str | FeedbackSource]:
        return [self.data] if isinstance(self.data, str) else self.data

    @property
    def measures(self) -> bool:
        return self.valid is not None or self.split is not None


class TrainingJob(TrainingOptions, FittingJob):
    """A training that publishes a version; most of its fields are options of every training."""

    trainer: str
    parameters: Annotated[
        dict[str, ParameterValue],
        Field(
            max_length=PARAMETERS_MAX,
            description='Those of the trainer, by name; those of the features, as "features.NAME".',
        ),
        BeforeValidator(_few),
    ] = Field(default_factory=dict)
    label_names: Annotated[
        Name | None,
        Field(description="For numeric data files: line i + 1 is the name of label i."),
    ] = None
    executor: Annotated[
        Literal["local", "ray"],
        Field(description="ray: the nodes of the cluster at XYLEM_RAY_ADDRESS run the steps."),
    ] = "local"

    @property
    def bases(self) -> list[str]:
        return [] if self.base is None else [self.base]

    @property
    def goes_on(self) -> bool:
        return self.base is not None


class ExtendJob(FittingJob):
    """Labels are added to a version, which is published as a new one.

    version  the version; null: the one that `latest` names
    data     labelled rows, some with labels that the version does not have; `seed` is for their
             split
    rows     the files that the version was trained on; without them, it must contain its rows
    """

    version: Version = None
    rows: Annotated[list[Name], Field(max_length=FILES_MAX)] = Field(default_factory=list)
    label_names: Name | None = None

    @property
    def further_files(self) -> list[str]:
        return self.rows

    @property
    def bases(self) -> list[str]:
        return [f"{self.model}@{LATEST if self.version is None else self.version}"]

    @property
    def goes_on(self) -> bool:
        return True


class ConceptFields(RequestModel):
    """How concepts are read; `xylem.vocabulary.combine.CombineRequest` describes the fields."""

    language: Language | None = None
    by: Language | None = None
    first_name: bool = False


class CombineJob(FittingJob, ConceptFields):
    """A combination of versions, which is published. Its ranker is fitted to `data`.

    data     rows that no member was trained on
    members  versions of the store, as "NAME" or "NAME@VERSION"
    rerank   a file: the rows that the first member was trained on
    folds    whether members that were trained on `data` are trained again by folds
    """

    members: Annotated[list[Name], Field(min_length=1, max_length=MEMBERS_MAX)]
    vocabulary: Name | None = None
    candidates: Annotated[int, Field(ge=1, le=CANDIDATES_MAX)] = 50
    beam_width: Annotated[int, Field(ge=1, le=BEAM_MAX)] | None = None
    ranker: Literal["auto", "boosted", "linear"] = "auto"
    rerank: Name | None = None
    folds: bool = False

    @property
    def further_files(self) -> list[str]:
        return [] if self.rerank is None else [self.rerank]

    @property
    def bases(self) -> list[str]:
        return self.members


class VocabularyJob(PublishingJob, ConceptFields):
    """A combined version gets another vocabulary, and is published.

    If `language` or `by` is left out, it stays as it was.

    compare  whether nothing is published, whatever the other fields are: the result is what the
             vocabulary would change in that of the model, as `ModelLearning.vocabulary_changes`
             describes it
    """

    vocabulary: Name
    version: Version = None
    compare: bool = False


class LearnJob(RequestModel):
    """A run of the recipe of a model, with what is new; its rule decides on the promotion."""

    model: str


class TuneThresholdsRequest(TuningChoice, TableFields):
    """A tuning of the thresholds of a version.

    version  null: the version that `latest` names
    test     another file, to measure on
    shadow   whether the new thresholds become a candidate, which is scored beside those in force
    """

    data: Name
    version: Version = None
    test: Name | None = None
    shadow: bool = False

    @property
    def data_files(self) -> list[str]:
        return [self.data] if self.test is None else [self.data, self.test]


class TuningJob(TuneThresholdsRequest):
    """A tuning of thresholds, as a job; it finds out what `latest` names when it begins."""

    model: str


class BatchJob(Options, TableFields):
    """Predictions for the lines of a file or the rows of a table, with the options of a batch."""

    model: str
    data: Name
    version: Version = None

    @property
    def data_files(self) -> list[str]:
        return [self.data]
