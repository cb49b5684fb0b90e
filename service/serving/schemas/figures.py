"""A version's figures on validation rows, as they were when it was trained."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from service.serving.schemas.models import VersionSummary

_Percent = float | None

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
"""Figures, in percent, of the labels that have so many training rows; null for a share of nothing."""


class ReliabilityFigures(TypedDict):
    """Predictions with scores from `low` to `high`."""

    low: float
    high: float
    n: int
    mean_score: float
    share_true: float


class LabelFigures(TypedDict):
    """A label on the validation rows, decided at `threshold`."""

    label: Annotated[str, Field(max_length=4096)]
    support: Annotated[int, Field(description="rows in which it is true")]
    hits: Annotated[int, Field(description="rows in which it is true and predicted")]
    predicted: Annotated[int, Field(description="rows in which it is predicted")]


class ValidationFigures(TypedDict):
    """What was measured on the validation rows of the training."""

    rows: int
    threshold: Annotated[float, Field(description="at which labels were decided")]
    bands: Annotated[list[BandFigures], Field(max_length=16)] | None
    calibration_error: Annotated[
        float | None, Field(description="how far score and share of true ones are apart, 0 to 1")
    ]
    reliability: Annotated[list[ReliabilityFigures], Field(max_length=100)]
    labels: Annotated[
        list[LabelFigures], Field(max_length=1000, description="the labels that are true most often")
    ]
    labels_true: Annotated[int, Field(description="labels that are true in some row")]


class VersionFigures(VersionSummary):
    """A version, with its figures on validation rows; null where they were not kept."""

    model: str
    validation: ValidationFigures | None
