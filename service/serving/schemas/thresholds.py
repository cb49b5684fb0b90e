"""Thresholds in force, and how admins change them."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypeAlias

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from service.serving.schemas.explanations import Float32
from service.serving.schemas.instances import RequestModel

LABELS_MAX = 10_000
"""Labels of one answer, at most."""

INTEGER_MAX = (1 << 31) - 1

VersionNumber: TypeAlias = Annotated[int, Field(ge=1, le=INTEGER_MAX)]


class ThresholdQuery(RequestModel):
    """Which labels to show."""

    offset: int = Field(default=0, ge=0, le=INTEGER_MAX, description="labels to skip")
    limit: int = Field(
        default=100, ge=0, le=LABELS_MAX, description="labels to show; 0: none, and no page follows"
    )
    marks_below: int = Field(
        default=0,
        ge=0,
        le=INTEGER_MAX,
        description="only labels with fewer marks: those that rest on too little feedback; 0: all",
    )


class LabelThreshold(TypedDict):
    """A label's threshold and what it rests on: see `service.thresholds.methods.ofo.Counters`."""

    label: str
    id: int
    threshold: Float32
    hits: Annotated[int, Field(description="rows in which it was true and predicted")]
    marks: Annotated[int, Field(description="rows in which it was true, plus those it was predicted in")]


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


class Thresholds(TypedDict):
    """The thresholds of a version, some labels at a time."""

    model: str
    version: int
    threshold_epoch: int
    method: str
    start: dict[str, float]
    n_events: Annotated[int, Field(description="events of feedback that were counted")]
    macro_f: Annotated[float, Field(description="mean F-measure, percent, of the labels with marks")]
    shadow: ShadowSummary | None
    checkpoints: list[ThresholdCheckpoint]
    n_labels: Annotated[int, Field(description="labels that the query selects")]
    labels: list[LabelThreshold]
    next_offset: int | None


class CandidateRequest(RequestModel):
    """Of which version: that of `latest` if none is named."""

    version: VersionNumber | None = None


class RestoreRequest(CandidateRequest):
    """Which epoch's thresholds to put in place again."""

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


class TuneAnswer(TunedFacts):
    """What was found and kept, the new epoch, and what each method found."""

    model: str
    version: int
    epoch: int
    shadow: bool
    methods: list[TunedFacts]
