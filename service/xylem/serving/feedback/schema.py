"""Events of feedback, and their results."""

from datetime import UTC, datetime
from typing import Annotated, NotRequired, TypeAlias, cast

from pydantic import Field, SkipValidation, model_validator
from typing_extensions import TypedDict

from xylem.base import fault
from xylem.serving.dialects.predict.schema import LabelList, VersionAnswer
from xylem.serving.schemas.fields import AnyInstance, AtMost, Instance, RequestModel, utf8_length
from xylem.thresholds import Result


class FeedbackEvent(RequestModel):
    """The true labels of one instance. The event has the instance, or the id of its prediction.

    If the event has both, the prediction counts, and the instance is only stored
    (`XYLEM_FEEDBACK_ROWS`).
    """

    event_id: Annotated[str, AtMost("event_id_bytes_max", "bytes of an id", utf8_length)] = Field(
        description="an event counts once, however often its id is sent",
        json_schema_extra={"minLength": 1},
    )
    labels: LabelList = Field(description="the true labels, all of them")
    instance: Instance = Field(default_factory=lambda: cast(AnyInstance, None))
    prediction_id: str = Field(default="", description="the prediction that the labels are for")

    @model_validator(mode="after")
    def _check_fields(self) -> "FeedbackEvent":
        if not self.event_id:
            raise fault("expected an id of at least one character, found none", "event_id")
        if not self.model_fields_set & {"instance", "prediction_id"}:
            raise fault("expected instance or prediction_id, found neither")
        return self

    @property
    def token(self) -> str | None:
        """Return the prediction_id; None if the event has none."""
        return self.prediction_id if "prediction_id" in self.model_fields_set else None

    @property
    def instance_or_none(self) -> AnyInstance | None:
        """Return the instance; None if the event has a prediction_id only."""
        return self.instance if "instance" in self.model_fields_set else None


class FeedbackEvents(RequestModel):
    """Several events. Each is validated by itself, so one at fault does not stop the others."""

    events: Annotated[list[SkipValidation[FeedbackEvent]], AtMost("events_max", "events")]


class DeleteRowsRequest(RequestModel):
    """A choice of the rows of feedback to remove: of some events, of one day, or of a key."""

    event_ids: Annotated[list[str], AtMost("events_max", "events")] | None = None
    day: str | None = Field(default=None, description="a day of UTC, such as 2026-11-23")
    key: str | None = Field(
        default=None, pattern=r"^[!-~ ]*$", description="the name of the sender's key: all its rows"
    )

    @model_validator(mode="after")
    def _check_fields(self) -> "DeleteRowsRequest":
        n_choices = 3 - (self.event_ids, self.day, self.key).count(None)
        if n_choices != 1:
            raise fault(f"expected either event_ids, day or key, found {n_choices} of them")
        try:
            _ = self.midnight
        except ValueError:
            raise fault(
                f"expected a day such as 2026-11-23, found {self.day!r:.42}", "day"
            ) from None
        return self

    @property
    def midnight(self) -> float | None:
        """Return when `day` begins, in seconds since 1970; None if no day is chosen.

        Raises ValueError if `day` is not a date.
        """
        return (
            None
            if self.day is None
            else datetime.strptime(self.day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
        )


# The body of a feedback request: events, or one event.
FeedbackRequest: TypeAlias = FeedbackEvents | FeedbackEvent


class FeedbackResult(TypedDict):
    """The result of an event. `reason` is the code of an event that was rejected or late."""

    event_id: NotRequired[str | None]
    result: Result
    reason: NotRequired[str]
    detail: NotRequired[str]


class FeedbackLineResult(FeedbackResult):
    """The result of the event in a line; lines are counted from 1."""

    line: NotRequired[int]


class FeedbackAnswer(VersionAnswer):
    """The result of each event, in order; `threshold_epoch` is null without tuned thresholds."""

    threshold_epoch: int | None
    results: list[FeedbackResult]
