"""Calls of the protocol: each is one of the app's requests, by a table.

So a call passes the same door as a request of HTTP, and the same code answers it: admission, keys,
limits, canaries, figures, the log and traces are no other than there.
"""

from typing import Any, NamedTuple
from urllib.parse import quote

import orjson
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError

from xylem.base import BadRequest
from xylem.extras.grpc.messages import message_class
from xylem.extras.grpc.tensors import tensor_body, tensor_message
from xylem.serving import HEADER


class Method(NamedTuple):
    """A method of the protocol, and the request that it stands for.

    verb   the method of HTTP
    path   the path; {} is the model, and its version if the call names one
    model  the field with the name of the model
    """

    name: str
    verb: str
    path: str
    model: str = ""


METHODS = (
    Method("ServerLive", "GET", "/v2/health/live"),
    Method("ServerReady", "GET", "/v2/health/ready"),
    Method("ServerMetadata", "GET", "/v2"),
    Method("ModelReady", "GET", "/v2/models/{}/ready", "name"),
    Method("ModelMetadata", "GET", "/v2/models/{}", "name"),
    Method("ModelInfer", "POST", "/v2/models/{}/infer", "model_name"),
    Method("RepositoryIndex", "POST", "/v2/repository/index"),
    Method("RepositoryModelLoad", "POST", "/v2/repository/models/{}/load", "model_name"),
    Method("RepositoryModelUnload", "POST", "/v2/repository/models/{}/unload", "model_name"),
)


def read_call(content: bytes, method: Method) -> tuple[str, list[tuple[bytes, bytes]], bytes]:
    """Return the request of a call's message: its path, headers that it needs, and its body.

    Raises BadRequest, which names the field.
    """
    try:
        call = message_class(f"{method.name}Request").FromString(content)
    except DecodeError as error:
        raise BadRequest(f"expected a {method.name}Request, found other bytes: {error}") from None
    path = method.path.format(_model(call, method.model)) if method.model else method.path
    if method.name == "ModelInfer":
        body, n_json = tensor_body(call)
        return (
            path,
            [(b"content-type", b"application/octet-stream"), (HEADER.encode(), b"%d" % n_json)],
            body,
        )
    body = orjson.dumps({"ready": call.ready}) if method.name == "RepositoryIndex" else b""
    return path, [(b"content-type", b"application/json")], body


def _model(call: Any, field: str) -> str:
    """Return the part of a path that names the model of a call, and its version if it has one."""
    name = getattr(call, field)
    if not name:
        raise BadRequest("expected the name of a model, found none").with_path(field)
    version = getattr(call, field.replace("name", "version"), "")
    parts = (name, "versions", version) if version else (name,)
    return "/".join(quote(part, safe="") for part in parts)  # a slash in a name leads nowhere


def write_answer(answer: bytes, method: Method, n_json: int | None) -> bytes:
    """Return the message that says what an answer says.

    n_json  how many bytes of the answer are JSON, before binary data; None: all
    """
    if method.name == "ModelInfer":
        message = tensor_message(answer, n_json)
    else:
        value = orjson.loads(answer or b"{}")
        message = ParseDict(
            {"models": value} if isinstance(value, list) else value,
            message_class(f"{method.name}Response")(),
            ignore_unknown_fields=True,
        )
    return bytes(message.SerializeToString())
