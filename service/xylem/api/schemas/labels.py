"""The JSON of a version's labels, their features and thresholds, and of changes of thresholds."""

from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from xylem.api.schemas.predict import DescribedLabel
from xylem.serving import Float32, InfoQuery, RequestModel, VersionAnswer

INTEGER_MAX = (1 << 31) - 1

# The most labels of one answer with thresholds.
THRESHOLDS_MAX = 10_000

# The most labels of one answer with all that is known of them.
LABELS_MAX = 1000

SEARCH_CHARACTERS_MAX = 200

# The longest label that is looked up: a version's names have at most as many bytes.
LABEL_CHARACTERS_MAX = 4096

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
    """Selects the labels whose thresholds are shown."""

    offset: _Offset = 0
    limit: int = Field(
        default=100,
        ge=0,
        le=THRESHOLDS_MAX,
        description="labels to show; 0: none, and no page follows",
    )
    marks_below: _MarksBelow = 0


class LabelThreshold(TypedDict):
    """A label's threshold and its counts: see `xylem.thresholds.methods.ofo.Counters`."""

    label: str
    id: int
    threshold: Float32
    hits: Annotated[int, Field(description="rows in which it was true and predicted")]
    marks: Annotated[
        int, Field(description="rows in which it was true, plus those it was predicted in")
    ]


class ShadowSummary(TypedDict):
    """A candidate, and F in percent of the candidate and of the thresholds in force.

    Both were scored on the same events.
    """

    since_epoch: int
    created_at: float
    method: str
    objective: str
    start: dict[str, float]
    n_events: int
    macro_f: float
    served_macro_f: float
    micro_f: float
    served_micro_f: float
    empty_label_convention: str


class ThresholdCheckpoint(TypedDict):
    """An epoch whose whole state is stored."""

    epoch: int
    kind: str
    created_at: float


class Thresholds(VersionAnswer):
    """The thresholds of a version, one page of labels."""

    threshold_epoch: int
    method: str
    objective: Annotated[str, Field(description="the F-measure they are tuned for")]
    limit: Annotated[
        int | None, Field(description="the most labels of a row; null: each label has a threshold")
    ]
    start: dict[str, float]
    n_events: Annotated[int, Field(description="events of feedback that were counted")]
    macro_f: Annotated[
        float, Field(description="mean F-measure, percent, of the labels with marks")
    ]
    micro_f: Annotated[float, Field(description="F-measure, percent, of all decisions")]
    instance_f: Annotated[
        float | None,
        Field(description="mean F-measure, percent, of the rows; null with another objective"),
    ]
    shadow: ShadowSummary | None
    checkpoints: list[ThresholdCheckpoint]
    n_labels: Annotated[int, Field(description="labels that the query selects")]
    labels: list[LabelThreshold]
    next_offset: int | None


class CandidateRequest(RequestModel):
    """Selects the candidate thresholds of a version; without a version, those of `latest`."""

    version: VersionNumber | None = None


class RestoreRequest(CandidateRequest):
    """Selects the epoch whose thresholds are restored."""

    epoch: VersionNumber


class ThresholdChange(BaseModel):
    """The epoch after a change."""

    model: str
    version: int
    threshold_epoch: int


class TunedFacts(TypedDict):
    """The thresholds that a method found, and how good they are: F-measures in percent."""

    method: str
    objective: str
    threshold: NotRequired[float]
    limit: NotRequired[int]
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


class TuneAnswer(VersionAnswer, TunedFacts):
    """The thresholds that were stored, the new epoch, and what each method found."""

    epoch: int
    shadow: bool
    methods: list[TunedFacts]


# The most features of one answer.
FEATURES_MAX = 100

LabelOrder = Literal["id", "label", "training_rows", "threshold", "marks", "hits"]


class LabelsQuery(InfoQuery):
    """Selects labels, their order, and their label info.

    The search also looks in the names of the label info that is shown.
    """

    search: str = Field(
        default="",
        max_length=SEARCH_CHARACTERS_MAX,
        description="only labels that contain this text, in their name or in one of the names "
        "that are asked for, in upper or lower case; put a number in quotes",
    )
    order: LabelOrder = Field(
        default="id", description="what to order by; of equal labels, the smaller id comes first"
    )
    descending: bool = Field(default=False, description="the largest first")
    marks_below: _MarksBelow = 0
    offset: _Offset = 0
    limit: int = Field(default=100, ge=1, le=LABELS_MAX, description="labels to show")


class LabelQuery(RequestModel):
    """A label, by its id or by its name; exactly one of the two."""

    id: int | None = Field(default=None, ge=0, le=INTEGER_MAX, description="the label's id")
    label: str | None = Field(
        default=None,
        min_length=1,
        max_length=LABEL_CHARACTERS_MAX,
        description="the label's name, instead of its id; put a number in quotes",
    )


class LabelFeaturesQuery(LabelQuery):
    """A label, and how many features to show."""

    top: int = Field(default=20, ge=1, le=FEATURES_MAX, description="how many features to show")


class LabelSummary(DescribedLabel):
    """A label, with its counts and its threshold.

    Null means that there was nothing to count, or that no threshold is set yet.
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
    """A page of the labels of a version. Without thresholds, `threshold_epoch` is null."""

    threshold_epoch: int | None
    n_labels: Annotated[int, Field(description="labels of the version")]
    n_found: Annotated[int, Field(description="labels that the query selects")]
    n_denied: Annotated[int, Field(description="labels that the alias denies, and deprecated ones")]
    languages: Annotated[list[str], Field(description="languages of the model's label info")]
    labels: list[LabelSummary]
    next_offset: int | None


class WeighedFeature(TypedDict):
    """A feature and its weight: above 0 it counts for the label, below 0 against it."""

    feature: Annotated[str, Field(description="its name, or its id if it has none")]
    weight: float


class LabelFeatures(VersionAnswer):
    """The features with the largest weights for a label.

    The weights are means over the trees that have the label.
    """

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
    """A label's threshold over time, as far as the database still has it."""

    label: str
    id: int
    threshold_epoch: int
    points: list[HistoryPoint]
