"""What an answer says that is none: a problem of RFC 9457, or the error of a line."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict


class FieldFault(TypedDict):
    """What is wrong with one field of a request."""

    path: Annotated[str, Field(description="where the field is, such as instances[3].indices[0]")]
    detail: str


class LineError(TypedDict):
    """What is wrong with a line."""

    code: str
    detail: str
    line: Annotated[NotRequired[int], Field(description="from 1; without one, the error ended the stream")]
    errors: NotRequired[list[FieldFault]]


class ProblemDetails(TypedDict):
    """Why a request was refused, or failed (RFC 9457)."""

    type: Annotated[str, Field(description="where the code is explained", examples=["/docs#bad-request"])]
    title: str
    status: int
    detail: Annotated[str, Field(description="what was expected, and what was found")]
    code: Annotated[str, Field(description="stable; new ones may come", examples=["bad-request"])]
    instance: Annotated[str, Field(description="the path of the request")]
    request_id: str
    errors: NotRequired[list[FieldFault]]
    error: Annotated[NotRequired[str], Field(description="of paths under /v2/: the detail once more")]
