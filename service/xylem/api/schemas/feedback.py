"""The JSON of stored rows of feedback, and of a stream of events."""

from typing import Any, TypeAlias

from pydantic import BaseModel, Field
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


class CorrectionPage(BaseModel):
    """Rows of feedback, the newest first."""

    corrections: list[dict[str, Any]] = Field(
        description="each with `number`, `event_id`, `at` in seconds since 1970, `key` (the name "
        "of the sender's key), `text`, `labels`, and `gone_labels`, which the model does not have"
    )
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
