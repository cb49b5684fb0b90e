"""The JSON of models and versions, of what is served, and of a version's validation figures."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict


class CanaryFacts(BaseModel):
    """The version that answers a part of the requests to an alias."""

    version: int
    weight: float = Field(description="the part, above 0 and below 1")


class ShadowFacts(BaseModel):
    """The version that answers copies of a part of an alias's requests."""

    version: int
    share: float = Field(description="the part, above 0 and at most 1")


class AliasSplit(BaseModel):
    """The canary and the shadow of an alias."""

    canary: CanaryFacts | None
    shadow: ShadowFacts | None


class ModelSummary(BaseModel):
    """A model of the store, with its versions and the versions that its aliases serve.

    splits  the splits of the aliases that have a canary or a shadow
    """

    name: str
    versions: list[int]
    aliases: dict[str, int]
    splits: dict[str, AliasSplit]


class ModelList(BaseModel):
    """Every model of the store."""

    models: list[ModelSummary]


class TrainerSummary(BaseModel):
    """The trainer that made a version, and its parameters."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    parameters: dict[str, Any]


class VersionSummary(BaseModel):
    """A version as its manifest describes it."""

    model_config = ConfigDict(from_attributes=True)

    version: int
    created_at: str = Field(json_schema_extra={"format": "date-time"})
    kind: str = Field(examples=["label-tree", "decision-tree"])
    trainer: TrainerSummary
    features: dict[str, Any]
    fields: list[str] = Field(description="the fields of a text, with their weights: title=3")
    n_labels: int
    n_features: int
    n_trees: int
    model_bytes: int
    metrics: dict[str, float]


class VersionFault(BaseModel):
    """Why a version's manifest cannot be read."""

    code: str
    detail: str


class UnreadableVersion(BaseModel):
    """A version whose manifest cannot be read, and why."""

    version: int
    error: VersionFault


class ModelDetails(ModelSummary):
    """A model, and its versions, newest first."""

    version_details: list[VersionSummary | UnreadableVersion]


class Alive(BaseModel):
    """The answer that the process runs."""

    status: Literal["alive"] = "alive"


class ServedAlias(BaseModel):
    """An alias, and the version that it serves now."""

    model: str
    alias: str
    version: int


class ServingFailure(BaseModel):
    """A version or an alias that cannot be served in its present state, and why."""

    model: str
    ref: str
    detail: str


class Readiness(BaseModel):
    """Whether requests should be sent to this process.

    Clients that may predict also see which models are served.
    """

    status: str = Field(examples=["ready", "not ready", "draining"])
    models: list[ServedAlias] = []
    failures: list[ServingFailure] = []
    store_error: str | None = None
    waits_for: str | None = Field(
        default=None,
        description="what has to happen before the models are open: kernels, the database, models; "
        "null: nothing",
        examples=["kernels 12 of 40, 60 s left"],
    )


_Percent = float | None

# Figures, in percent, of the labels with this many training rows.
#
# A figure is null if it is a share of nothing.
BandFigures = TypedDict(
    "BandFigures",
    {
        "band": Annotated[str, Field(max_length=32, examples=["10-99"])],
        "labels": int,
        "support": int,
        "P@1": _Percent,
        "P@3": _Percent,
        "P@5": _Percent,
        "R@5": _Percent,
        "macro_f": _Percent,
    },
)


class ReliabilityFigures(TypedDict):
    """Predictions with scores from `low` to `high`."""

    low: float
    high: float
    n: int
    mean_score: float
    share_true: float


class LabelFigures(TypedDict):
    """Counts of a label on the validation rows, decided at `threshold`."""

    label: Annotated[str, Field(max_length=4096)]
    support: Annotated[int, Field(description="rows in which it is true")]
    hits: Annotated[int, Field(description="rows in which it is true and predicted")]
    predicted: Annotated[int, Field(description="rows in which it is predicted")]


class ValidationFigures(TypedDict):
    """Figures that were measured on the validation rows of the training."""

    rows: int
    threshold: Annotated[float, Field(description="the threshold at which labels were decided")]
    bands: Annotated[list[BandFigures], Field(max_length=16)] | None
    calibration_error: Annotated[
        float | None,
        Field(description="mean distance between score and share of true labels, 0 to 1"),
    ]
    reliability: Annotated[list[ReliabilityFigures], Field(max_length=100)]
    labels: Annotated[
        list[LabelFigures],
        Field(max_length=1000, description="the labels that are true most often"),
    ]
    labels_true: Annotated[int, Field(description="labels that are true in some row")]


class VersionFigures(VersionSummary):
    """A version, with its figures on validation rows; null if they were not stored."""

    model: str
    validation: ValidationFigures | None
