"""The JSON of stored rows of feedback, and of a stream of events."""

from typing import TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from xylem.api.schemas.predict import LineError
from xylem.serving import FeedbackLineResult, RequestModel


class RowsQuery(RequestModel):
    """A choice of the rows of feedback to export."""

    days: int | None = Field(
        default=None,
        ge=1,
        le=36_500,
        description="only rows of the last so many days; by default all",
    )


class FeedbackLineError(TypedDict):
    """The error that ended the answer: send the events without a result again."""

    error: LineError


# A line of the answer to a stream of events.
FeedbackLine: TypeAlias = FeedbackLineResult | FeedbackLineError
