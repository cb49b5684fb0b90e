"""Events of feedback, and what becomes of them."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypeAlias, cast

from pydantic import Field, SkipValidation, model_validator
from typing_extensions import TypedDict

from service.base.faults import fault
from service.serving.schemas.instances import AnyInstance, Instance, RequestModel
from service.serving.schemas.limits import AtMost, utf8_length
from service.serving.schemas.predict import LabelList
from service.serving.schemas.predictions import LineError
from service.thresholds.live.events import Result


class FeedbackEvent(RequestModel):
    """The true labels of an instance, or of what a prediction was made for: one of the two."""

    event_id: Annotated[str, AtMost("event_id_bytes_max", "bytes of an id", utf8_length)] = Field(
        description="an event counts once, however often its id is sent", json_schema_extra={"minLength": 1}
    )
    labels: LabelList = Field(description="the true labels, all of them")
    instance: Instance = Field(default=cast(AnyInstance, None))
    prediction_id: str = Field(default="", description="of the prediction that the labels are for")

    @model_validator(mode="after")
    def _one_of_two(self) -> FeedbackEvent:
        if not self.event_id:
            raise fault("expected an id of at least one character, found none", "event_id")
        given = self.model_fields_set & {"instance", "prediction_id"}
        if len(given) != 1:
            raise fault(f"expected either instance or prediction_id, found {'both' if given else 'neither'}")
        return self

    @property
    def token(self) -> str | None:
        """Return the prediction_id; None: the event has an instance."""
        return self.prediction_id if "prediction_id" in self.model_fields_set else None

    @property
    def given(self) -> AnyInstance | None:
        """Return the instance; None: the event has a prediction_id."""
        return self.instance if "instance" in self.model_fields_set else None


class FeedbackEvents(RequestModel):
    """Events of a request. Each is read by itself, as a FeedbackEvent: one at fault stops no other."""

    events: Annotated[list[SkipValidation[FeedbackEvent]], AtMost("events_max", "events")]


FeedbackRequest: TypeAlias = FeedbackEvents | FeedbackEvent
"""The body of a feedback request: events, or one event."""


class FeedbackResult(TypedDict):
    """What became of an event. `reason` is a code, of what was rejected or came too late."""

    event_id: NotRequired[str | None]
    result: Result
    reason: NotRequired[str]
    detail: NotRequired[str]


class FeedbackLineResult(FeedbackResult):
    """What became of the event of a line, which counts from 1."""

    line: NotRequired[int]


class FeedbackLineError(TypedDict):
    """What ended the answer: send again what has no result."""

    error: LineError


FeedbackLine: TypeAlias = FeedbackLineResult | FeedbackLineError
"""A line of the answer to a stream of events."""


class FeedbackAnswer(TypedDict):
    """What became of each event, in their order; `threshold_epoch` is null without tuned thresholds."""

    model: str
    version: int
    threshold_epoch: int | None
    results: list[FeedbackResult]
