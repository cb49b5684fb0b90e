"""Requests of the Open Inference Protocol, version 2, over REST, and the names of its tensors."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field

from xylem.base import TextFields
from xylem.serving.dialects.predict.schema import Options
from xylem.serving.schemas.fields import AtMost, RequestModel, utf8_length

# The name of the tensor with a vector for each text.
VECTORS = "vectors"

# The input tensors and their types. A request has `text`, with `vectors` if the model takes them,
# or the other three. In place of `text` there may be tensors of BYTES that are named as the fields
# of the version.
INPUTS = {
    "text": "BYTES",
    VECTORS: "FP32",
    "indptr": "INT64",
    "indices": "INT32",
    "values": "FP32",
}

# The tensors of an answer, and their types.
OUTPUTS = {
    "labels": "BYTES",
    "label_ids": "INT32",
    "scores": "FP32",
    "lengths": "INT32",
    "exact": "BOOL",
}

TENSORS_MAX = TextFields.n_max  # the most inputs or outputs of a request: one for each field
OutputName: TypeAlias = Literal["labels", "label_ids", "scores", "lengths", "exact"]


# parameters of requests, tensors and outputs that are not ours are ignored, such as `content_type`
# of MLServer's codecs. The price is that nobody is told of a misspelt option
_OPEN = ConfigDict(extra="ignore")


def _or_null(model: type[RequestModel]) -> BeforeValidator:
    """Return a validator of parameters that may be null, as the protocol allows: then as if empty.

    OpenAPI gets the right schema.
    """
    return BeforeValidator(
        lambda value: {} if value is None else value, json_schema_input_type=model | None
    )


class InferParameters(Options):
    """Options to predict: the options of predict, except those whose answers are no tensors.

    The protocol allows any parameter: those without a meaning here are ignored.
    """

    model_config = _OPEN

    binary_data_output: bool = Field(
        default=False,
        description="whether outputs are binary data; the parameters of an output go first",
    )


class TensorParameters(RequestModel):
    """The place of a tensor's data, if they are not in the JSON."""

    model_config = _OPEN

    binary_data_size: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="bytes of its data behind the JSON, after those of earlier tensors",
    )


class InferTensor(RequestModel):
    """A tensor of a request; its data are in `data`, or behind the JSON."""

    name: str = Field(
        description="text, or the names of fields, vectors; or indptr, indices, values",
        examples=["text"],
    )
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=2)] = Field(
        description="one dimension; or two, the second of which is 1, and for vectors their length",
        examples=[[2]],
    )
    datatype: str = Field(
        description="text, fields: BYTES; vectors, values: FP32; indptr: INT64; indices: INT32",
        examples=["BYTES"],
    )
    parameters: Annotated[TensorParameters, _or_null(TensorParameters)] = Field(
        default=TensorParameters()
    )
    data: list[Any] | None = Field(
        default=None, description="strings or numbers, as many as the shape says"
    )


class OutputParameters(RequestModel):
    """The form of an output's data."""

    model_config = _OPEN

    binary_data: bool | None = Field(
        default=None,
        description="whether they are binary data; by default as binary_data_output says",
    )


class RequestedOutput(RequestModel):
    """An output to answer with."""

    name: OutputName
    parameters: Annotated[OutputParameters, _or_null(OutputParameters)] = Field(
        default=OutputParameters()
    )


class InferRequest(RequestModel):
    """Instances as tensors, and options to predict them."""

    id: Annotated[str, AtMost("name_bytes_max", "bytes of an id", utf8_length)] | None = Field(
        default=None, description="repeated by the answer"
    )
    parameters: Annotated[InferParameters, _or_null(InferParameters)] = Field(
        default=InferParameters()
    )
    inputs: Annotated[list[InferTensor], Field(min_length=1, max_length=TENSORS_MAX)] = Field(
        description="text: one text for each instance, or the same for each field of the version, "
        "and vectors: its vector; or indptr, indices and values: sparse rows of feature ids and "
        "values"
    )
    outputs: Annotated[list[RequestedOutput], Field(max_length=TENSORS_MAX)] | None = Field(
        default=None, description="the outputs to answer with; by default all"
    )
