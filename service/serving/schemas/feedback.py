"""Events of feedback."""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import Field, model_validator

from service.serving.schemas.instances import AnyInstance, Instance, RequestModel
from service.serving.schemas.limits import AtMost, fault, utf8_length
from service.serving.schemas.predict import LabelList


class FeedbackEvent(RequestModel):
    """The true labels of an instance, or of what a prediction was made for: one of the two."""

    event_id: Annotated[str, AtMost("event_id_bytes_max", "bytes of an id", utf8_length)]
    labels: LabelList
    instance: Instance = Field(default=cast(AnyInstance, None))
    prediction_id: str = Field(default="")

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
