"""The JSON of predictions, of lines of batches, and of problems (RFC 9457).

Kernels write predictions, so these classes are only for the OpenAPI document.
"""

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import Field, with_config
from typing_extensions import TypedDict

from xylem.serving import Float32, LabelExplanation, VersionAnswer


class FieldFault(TypedDict):
    """A fault in one field of a request."""

    path: Annotated[str, Field(description="where the field is, such as instances[3].indices[0]")]
    detail: str


class LineError(TypedDict):
    """An error in a line."""

    code: str
    detail: str
    line: Annotated[
        NotRequired[int],
        Field(description="counted from 1; left out if the error ended the stream"),
    ]
    errors: NotRequired[list[FieldFault]]


class ProblemDetails(TypedDict):
    """The reason why a request was refused, or failed (RFC 9457)."""

    type: Annotated[
        str, Field(description="where the code is explained", examples=["/docs#bad-request"])
    ]
    title: str
    status: int
    detail: Annotated[str, Field(description="what was expected, and what was found")]
    code: Annotated[str, Field(description="stable; new ones may come", examples=["bad-request"])]
    instance: Annotated[str, Field(description="the path of the request")]
    request_id: str
    errors: NotRequired[list[FieldFault]]
    error: Annotated[
        NotRequired[str], Field(description="only for paths under /v2/: the same as detail")
    ]


_EXAMPLE: dict[str, Any] = {
    "labels": [{"label": "role::program", "id": 12, "score": 0.93}],
    "prediction_id": "5f0c1d2e3a4b5c6d-1",
    "exact": False,
}


class DescribedLabel(TypedDict):
    """The label info of a label, as far as the request asks for it."""

    uri: Annotated[NotRequired[str | None], Field(description="with language or label_info")]
    notation: Annotated[NotRequired[str | None], Field(description="with language or label_info")]
    name: Annotated[
        NotRequired[str | None], Field(description="with language: in the first that has one")
    ]
    names: Annotated[NotRequired[dict[str, str]], Field(description="with label_info: by language")]
    broader: Annotated[NotRequired[list[str]], Field(description="with label_info: URIs")]


class NamedLabel(DescribedLabel):
    """A predicted label. A score is a float32, written with just enough digits."""

    label: str
    id: int
    score: Float32
    learned: Annotated[
        NotRequired[Literal[False]],
        Field(description="there, and false, of a combined model's label without training rows"),
    ]
    explanation: NotRequired[LabelExplanation]


class Statistics(TypedDict):
    """The cost of a prediction: inner nodes with children scored, and bytes of weights read."""

    nodes: int
    weight_bytes: int


@with_config(json_schema_extra={"example": _EXAMPLE})
class Prediction(TypedDict):
    """The prediction for one instance."""

    labels: Annotated[
        list[NamedLabel], Field(description="the best first; of equal scores the smaller id")
    ]
    prediction_id: Annotated[str, Field(description="opaque, and unique")]
    exact: Annotated[
        bool, Field(description="whether these are surely the labels that an exact search finds")
    ]
    statistics: NotRequired[Statistics]
    no_known_features: Annotated[
        NotRequired[bool],
        Field(
            description="there, and true, if the model knows nothing of the text or the "
            "named features: the "
            "labels are those of an empty instance"
        ),
    ]


class PredictAnswer(VersionAnswer):
    """A prediction for each instance, in their order."""

    threshold_epoch: Annotated[int | None, Field(description="null: no tuned thresholds")]
    predictions: list[Prediction]


class BatchPrediction(Prediction):
    """The prediction for the instance of a line, with the id that the line has."""

    id: NotRequired[str | int]


class BatchError(TypedDict):
    """The error of a line, with the id that the line has; or the error that ended the batch."""

    id: NotRequired[str | int]
    error: LineError


# A line of the answer to a batch.
BatchAnswerLine: TypeAlias = BatchPrediction | BatchError
