"""Calls of the protocol: each is one of the app's requests, by a table.

So a call passes the same door as a request of HTTP, and the same code answers it: admission, keys,
limits, canaries, figures, the log and traces are no other than there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError

from xylem.base import BadRequest
from xylem.extras.grpc.messages import message_class
from xylem.extras.grpc.tensors import body_of, message_of
from xylem.serving import HEADER, LONG_BYTES

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

CALL = "xylem.grpc_call"
"""The key of a call's ASGI scope under which its Method is."""

_OK = 200


class Method(NamedTuple):
    """A method of the protocol, and the request that it stands for.

    verb    the method of HTTP
    path    the path; `{model}` is the model, and its version if the call names one
    """

    name: str
    verb: str
    path: str

    def read(self, content: bytes) -> tuple[str, bytes, int]:
        """Return the path and the body of the request, and how many bytes of it are JSON.

        Raises BadRequest, which names the field.
        """
        try:
            call = message_class(f"{self.name}Request").FromString(content)
        except DecodeError as error:
            raise BadRequest(f"expected a {self.name}Request, found bytes that are none") from error
        path = self.path.replace("{model}", _model(call)) if "{model}" in self.path else self.path
        if self.name == "ModelInfer":
            return path, *body_of(call)
        body = b"" if self.name != "RepositoryIndex" else orjson.dumps({"ready": call.ready})
        return path, body, len(body)

    def write(self, answer: bytes, n_json: int | None) -> bytes:
        """Return the message that says what the answer says."""
        if self.name == "ModelInfer":
            message = message_of(answer, n_json)
        else:
            value = orjson.loads(answer or b"{}")
            value = {"models": value} if isinstance(value, list) else value
            response = message_class(f"{self.name}Response")()
            message = ParseDict(value, response, ignore_unknown_fields=True)
        return bytes(message.SerializeToString())


METHODS = tuple(
    Method(*row)
    for row in (
        ("ServerLive", "GET", "/v2/health/live"),
        ("ServerReady", "GET", "/v2/health/ready"),
        ("ServerMetadata", "GET", "/v2"),
        ("ModelReady", "GET", "/v2/models/{model}/ready"),
        ("ModelMetadata", "GET", "/v2/models/{model}"),
        ("ModelInfer", "POST", "/v2/models/{model}/infer"),
        ("RepositoryIndex", "POST", "/v2/repository/index"),
        ("RepositoryModelLoad", "POST", "/v2/repository/models/{model}/load"),
        ("RepositoryModelUnload", "POST", "/v2/repository/models/{model}/unload"),
    )
)


def _model(call: Any) -> str:
    """Return the part of a path that names the model of a call, and its version if it has one."""
    fields = {field.name for field in call.DESCRIPTOR.fields}
    name_field = "model_name" if "model_name" in fields else "name"
    name = getattr(call, name_field)
    if not name:
        raise BadRequest("expected the name of a model, found none").with_path(name_field)
    version = getattr(call, name_field.replace("name", "version"), "")
    parts = (name, "versions", version) if version else (name,)
    return "/".join(quote(part, safe="") for part in parts)  # a name has no part of a path


class InferenceCalls:
    """ASGI middleware, within the request scope: makes requests of calls, and messages of answers.

    A call's message is read here, after the call was admitted and with the limits of a body.
    Requests of HTTP pass unchanged.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one call."""
        method: Method | None = scope.get(CALL)
        if method is None:
            await self._app(scope, receive, send)
            return
        content = (await receive())["body"]
        scope["path"], body, n_json = await _here_or_in_a_thread(method.read, content)
        is_binary = method.name == "ModelInfer"
        media = b"application/octet-stream" if is_binary else b"application/json"
        scope["headers"] = [*scope["headers"], (b"content-type", media)]
        if is_binary:
            scope["headers"].append((HEADER.encode(), b"%d" % n_json))

        async def receive_body() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        answer = WholeAnswer()
        await self._app(scope, receive_body, answer.receive)
        content = b"".join(answer.parts)
        if answer.status == _OK:
            length = answer.headers.get(HEADER.encode())
            length_of_json = None if length is None else int(length)
            content = await _here_or_in_a_thread(method.write, content, length_of_json)
        headers = list(answer.headers.items())
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


class WholeAnswer:
    """An answer of the app, collected from its ASGI messages."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[bytes, bytes] = {}
        self.parts: list[bytes] = []

    async def receive(self, message: Message) -> None:
        """Take the next message of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])
        else:
            self.parts.append(message.get("body", b""))


async def _here_or_in_a_thread(convert: Callable[..., Any], content: bytes, *more: Any) -> Any:
    """Return what `convert` makes of a content; a long one is not for the event loop."""
    if len(content) <= LONG_BYTES:
        return convert(content, *more)
    return await asyncio.to_thread(convert, content, *more)
