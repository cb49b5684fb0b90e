"""The JSON of stored rows of feedback, and of a stream of events."""

from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from xylem.api.schemas.predict import LineError
from xylem.serving import FeedbackLineResult, RequestModel


class RowsQuery(RequestModel):
    """A choice of the rows of feedback to export."""

    days: int | None = Field(
        default=None,
        ge=1,
        le=36_500,
        description="only rows of this number of days before now; by default all",
    )


class CorrectionsQuery(RequestModel):
    """A choice of the rows of feedback to show."""

    limit: int = Field(default=50, ge=1, le=200, description="how many to return at most")
    before: int | None = Field(
        default=None, ge=1, le=(1 << 63) - 1, description="only rows with smaller numbers"
    )
    label: str | None = Field(default=None, description="only rows with this label")
    key: str | None = Field(default=None, description="only rows of the key of this name")


class Correction(BaseModel):
    """A row of feedback. One without a text has the fields of its other features."""

    model_config = ConfigDict(extra="allow")

    number: int = Field(description="newer rows have larger numbers")
    event_id: str
    came_at: float = Field(alias="at", description="when it came, in seconds since 1970")
    key: str | None = Field(description="the name of the sender's key; null: it is not known")
    text: str | None
    labels: list[str]
    gone_labels: list[str] = Field(description="those that the served version does not have")


class CorrectionPage(BaseModel):
    """Rows of feedback, the newest first."""

    corrections: list[Correction]
    next: int | None = Field(description="the `before` of the next page")
    n_rows: int = Field(description="the stored rows of the model, whatever the choice")


class RowsDeleted(TypedDict):
    """The number of rows of feedback that were removed."""

    model: str
    deleted: int


class FeedbackState(TypedDict):
    """Whether the text of a correction would be stored, and if not, why."""

    rows_stored: bool
    because: str | None


class FeedbackLineError(TypedDict):
    """The error that ended the answer: send the events without a result again."""

    error: LineError


# A line of the answer to a stream of events.
FeedbackLine: TypeAlias = FeedbackLineResult | FeedbackLineError
