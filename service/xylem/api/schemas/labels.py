"""The labels of a version, what speaks for one, their thresholds in
force, and how admins change these.
"""

from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from xylem.serving import DescribedLabel, Float32, InfoQuery, RequestModel, VersionAnswer

INTEGER_MAX = (1 << 31) - 1

VersionNumber: TypeAlias = Annotated[int, Field(ge=1, le=INTEGER_MAX)]
_Offset: TypeAlias = Annotated[int, Field(ge=0, le=INTEGER_MAX, description="labels to skip")]
_MarksBelow: TypeAlias = Annotated[
    int,
    Field(
        ge=0,
        le=INTEGER_MAX,
        description="only labels with fewer marks: those that rest on too little feedback; 0: all",
    ),
]


class ThresholdQuery(RequestModel):
    """Which labels to show."""

    offset: _Offset = 0
    limit: int = Field(
        default=100, ge=0, le=10_000, description="labels to show; 0: none, and no page follows"
    )
    marks_below: _MarksBelow = 0


class LabelThreshold(TypedDict):
    """A label's threshold and what it rests on: see `xylem.thresholds.methods.ofo.Counters`."""

    label: str
    id: int
    threshold: Float32
    hits: Annotated[int, Field(description="rows in which it was true and predicted")]
    marks: Annotated[
        int, Field(description="rows in which it was true, plus those it was predicted in")
    ]


class ShadowSummary(TypedDict):
    """A candidate, and macro-F, in percent, of both on the events that it was scored on."""

    since_epoch: int
    created_at: float
    method: str
    start: dict[str, float]
    n_events: int
    macro_f: float
    served_macro_f: float
    empty_label_convention: str


class ThresholdCheckpoint(TypedDict):
    """An epoch whose whole state is kept."""

    epoch: int
    kind: str
    created_at: float


class Thresholds(VersionAnswer):
    """The thresholds of a version, some labels at a time."""

    threshold_epoch: int
    method: str
    start: dict[str, float]
    n_events: Annotated[int, Field(description="events of feedback that were counted")]
    macro_f: Annotated[
        float, Field(description="mean F-measure, percent, of the labels with marks")
    ]
    shadow: ShadowSummary | None
    checkpoints: list[ThresholdCheckpoint]
    n_labels: Annotated[int, Field(description="labels that the query selects")]
    labels: list[LabelThreshold]
    next_offset: int | None


class CandidateRequest(RequestModel):
    """Of which version: that of `latest` if none is named."""

    version: VersionNumber | None = None


class RestoreRequest(CandidateRequest):
    """Which epoch's thresholds to restore."""

    epoch: VersionNumber


class ThresholdChange(BaseModel):
    """The epoch that a change has led to."""

    model: str
    version: int
    threshold_epoch: int


class TunedFacts(TypedDict):
    """What a method found, and how good it is: F-measures in percent."""

    method: str
    validation_macro_f: float
    validation_micro_f: float
    validation_instance_f: float
    test_macro_f: NotRequired[float]
    test_micro_f: NotRequired[float]
    test_instance_f: NotRequired[float]
    empty_label_convention: str
    labels: int
    start: list[float]
    power: float
    scale: float
    instead_of: NotRequired[str]
    instead_of_macro_f: NotRequired[float]
    note: NotRequired[str]


class TuneAnswer(TunedFacts):
    """What was found and kept, the new epoch, and what each method found."""

    model: str
    version: int
    epoch: int
    shadow: bool
    methods: list[TunedFacts]


FEATURES_MAX = 100
"""Features of one answer, at most."""

LabelOrder = Literal["id", "label", "training_rows", "threshold", "marks", "hits"]


class LabelsQuery(InfoQuery):
    """Which labels to show, in which order, and what of their label
    info: what is told is searched too.
    """

    search: str = Field(
        default="",
        max_length=200,
        description="only labels with this part, or with one of it in the names that are "
        "asked for, in "
        "capitals or not; a number stands in quotes",
    )
    order: LabelOrder = Field(
        default="id", description="by what they are ordered; of equals the smaller id"
    )
    descending: bool = Field(default=False, description="the largest first")
    marks_below: _MarksBelow = 0
    offset: _Offset = 0
    limit: int = Field(default=100, ge=1, le=1000, description="labels to show")


class LabelQuery(RequestModel):
    """Which label: by its id or by its name, one of the two."""

    id: int | None = Field(default=None, ge=0, le=INTEGER_MAX, description="the label's id")
    label: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="the label's name, instead of its id; a number stands in quotes",
    )


class LabelFeaturesQuery(LabelQuery):
    """Of which label, and how many."""

    top: int = Field(default=20, ge=1, le=FEATURES_MAX, description="so many features")


class LabelSummary(DescribedLabel):
    """A label: how often it was seen, and its threshold; null where it
    was not counted, or is not set yet.
    """

    label: str
    id: int
    training_rows: Annotated[int | None, Field(description="training rows that have it")]
    threshold: Float32 | None
    hits: Annotated[int | None, Field(description="rows in which it was true and predicted")]
    marks: Annotated[
        int | None, Field(description="rows in which it was true, plus those it was predicted in")
    ]
    denied: Annotated[
        bool, Field(description="whether it is never answered: denied by the alias, or deprecated")
    ]


class LabelPage(VersionAnswer):
    """Some labels of a version; without thresholds its epoch is null."""

    threshold_epoch: int | None
    n_labels: Annotated[int, Field(description="labels of the version")]
    n_found: Annotated[int, Field(description="labels that the query selects")]
    n_denied: Annotated[int, Field(description="labels that the alias denies, and deprecated ones")]
    languages: Annotated[list[str], Field(description="of the names in the model's label info")]
    labels: list[LabelSummary]
    next_offset: int | None


class WeighedFeature(TypedDict):
    """A feature, and its weight: above 0 it speaks for the label, below 0 against it."""

    feature: Annotated[str, Field(description="its name, or its id if it has none")]
    weight: float


class LabelFeatures(VersionAnswer):
    """What a label's own classifiers weigh most: means over the trees that have the label."""

    label: str
    id: int
    n_trees: Annotated[int, Field(description="trees that have the label")]
    features: list[WeighedFeature]


class HistoryPoint(TypedDict):
    """A label's threshold from an epoch on."""

    epoch: int
    at: Annotated[float, Field(description="seconds since 1970")]
    kind: Annotated[str, Field(examples=["tuned", "feedback", "restored"])]
    threshold: Float32


class ThresholdHistory(VersionAnswer):
    """A label's threshold over time, as far as it is still known."""

    label: str
    id: int
    threshold_epoch: int
    points: list[HistoryPoint]
