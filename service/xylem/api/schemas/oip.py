"""The JSON of answers of the Open Inference Protocol: tensors, models and the server."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from xylem.serving import RequestModel


class TensorMetadata(TypedDict):
    """A tensor that a model takes or answers with; -1 stands for any length."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(TypedDict):
    """The tensors that a model takes and answers with."""

    name: str
    versions: list[str]
    platform: str
    inputs: Annotated[
        list[TensorMetadata], Field(description="text alone, or the three others together")
    ]
    outputs: list[TensorMetadata]


class ServerMetadata(TypedDict):
    """The server: its name, version and protocol extensions."""

    name: str
    version: str
    extensions: list[str]


class ServerLive(TypedDict):
    """Whether the process runs."""

    live: bool


class ServerReady(TypedDict):
    """Whether requests should be sent here."""

    ready: bool


class ModelReady(TypedDict):
    """Whether a model's version can answer."""

    name: str
    ready: bool


class RepositoryIndexRequest(RequestModel):
    """Which versions a client wants to see."""

    ready: bool = False


class RepositoryEntry(TypedDict):
    """A version of the store, and whether it is open in this process."""

    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: Annotated[str, Field(description="why it is not open; empty if it is")]


class OutputTensor(TypedDict):
    """A tensor of an answer, with a row for each instance.

    `data` is flat; it is missing if the data are behind the JSON.
    """

    name: str
    shape: list[int]
    datatype: str
    parameters: NotRequired[dict[str, int]]
    data: NotRequired[list[Any]]


class InferAnswerParameters(TypedDict):
    """The version that answered, and the epoch of its thresholds if it has tuned ones."""

    version: int
    threshold_epoch: NotRequired[int]


class InferAnswer(TypedDict):
    """The labels of instances as tensors."""

    model_name: str
    model_version: str
    id: NotRequired[str]
    parameters: InferAnswerParameters
    outputs: list[OutputTensor]
