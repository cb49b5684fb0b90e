"""The gRPC server of a process: in its event loop, with health checks and reflection."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import partial
from typing import Any

import grpc
import orjson
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from xylem.base import Settings, url_of
from xylem.extras.grpc.calls import METHODS, Method, read_call, write_answer
from xylem.extras.grpc.messages import SERVICE
from xylem.serving import HEADER, KEY_HEADER, LONG_BYTES

Message = MutableMapping[str, Any]
App = Callable[..., Awaitable[None]]

# The key of a call's ASGI scope under which its Method is.
CALL = "xylem.grpc_call"

# The status code of each status of HTTP.
STATUS_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    405: grpc.StatusCode.UNIMPLEMENTED,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    412: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    416: grpc.StatusCode.OUT_OF_RANGE,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    431: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}

_OK = 200
_UNAVAILABLE = 503
# metadata of a call that are headers of its request; all others are ignored
_HEADERS = {"authorization", "traceparent", "tracestate", "x-request-id", KEY_HEADER}

# headers of an answer that say something of HTTP; all others are metadata at the call's end
_OF_HTTP = {b"connection", b"content-length", b"content-type", b"vary", HEADER.encode()}

DETAIL_CHARACTERS_MAX = 600  # of a refusal; clients take 8 KiB, a character may need 12 bytes
CALLS_A_REQUEST = 2  # calls for each request in flight: some only wait for clients to read
STOP_SECONDS = 0.05  # after it no further call begins


def receives_calls(app: App, infer: App) -> App:
    """Return the ASGI middleware, within the request scope, that receives a call's message first.

    The message has the path of the call's request. So a call is admitted before its message is
    read, and this has the limits of a body. Requests of HTTP pass unchanged.

    infer  answers predictions; to look for their routes among all of `app` would take longer than
           to predict
    """

    async def answer(scope: Message, receive: Callable[[], Awaitable[Message]], send: App) -> None:
        method: Method | None = scope.get(CALL)
        if method is None:
            await app(scope, receive, send)
            return
        scope["path"], headers, body = await _converted(
            read_call, (await receive())["body"], method
        )
        scope["headers"] += headers

        async def receive_body() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        await (infer if method.name == "ModelInfer" else app)(scope, receive_body, send)

    return answer


class InferenceServer:
    """Answers calls with the service's app, which has `receives_calls` among its middleware."""

    def __init__(self, app: Any, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._health = health.aio.HealthServicer()
        self._calls: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Begin to answer calls. Other processes may answer them at the same port."""
        settings = self._settings
        idle_ms = int(1000 * settings.keep_alive_seconds)
        self._server = grpc.aio.server(
            options=(
                ("grpc.so_reuseport", 1),
                ("grpc.max_receive_message_length", settings.limits.body_bytes_max),
                ("grpc.max_concurrent_streams", settings.limits.requests_max),
                ("grpc.max_connection_idle_ms", idle_ms),
                ("grpc.keepalive_time_ms", idle_ms),
            ),
            maximum_concurrent_rpcs=CALLS_A_REQUEST * settings.limits.requests_max,
        )
        handler = grpc.method_handlers_generic_handler(
            SERVICE,
            {
                method.name: grpc.stream_unary_rpc_method_handler(partial(self._answer, method))
                for method in METHODS
            },
        )
        self._server.add_generic_rpc_handlers((handler,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        await self.report_health()
        url = url_of(settings.host.strip("[]").replace("*", "::"), settings.grpc_port or 0)
        self._server.add_insecure_port(url.removeprefix("http://"))
        await self._server.start()

    async def report_health(self) -> None:
        """Answer health checks by whether calls should be sent here now."""
        status = (
            health_pb2.HealthCheckResponse.SERVING
            if self._app.state.services.ready
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for service in ("", SERVICE):
            await self._health.set(service, status)

    async def stop(self) -> None:
        """Take no more calls, and complete those in flight within the time for requests."""
        await self._health.enter_graceful_shutdown()
        stopping = asyncio.create_task(self._server.stop(self._settings.shutdown_seconds))
        await asyncio.sleep(STOP_SECONDS)
        if self._calls:
            await asyncio.wait(self._calls, timeout=self._settings.shutdown_seconds)
        await self._server.stop(None)  # a call that watches the health does not end by itself
        await stopping

    async def _answer(self, method: Method, _: object, context: Any) -> bytes:
        """Answer one call, or end it with the status code of its refusal."""
        task: Any = asyncio.current_task()
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)  # its answer has been sent then
        scope = _scope_of(method, context.invocation_metadata())
        messages: list[Message] = []

        async def receive() -> Message:
            content = await context.read() or b""  # None, no message, is read as an empty message
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, send)
        status = messages[0]["status"]
        headers = dict(messages[0]["headers"])
        content = b"".join([message.get("body", b"") for message in messages])
        metadata = [
            (name.decode(), value.decode("latin-1"))
            for name, value in headers.items()
            if name not in _OF_HTTP
        ]
        if status == _OK:
            context.set_trailing_metadata(metadata)
            length = headers.get(HEADER.encode())
            return bytes(
                await _converted(
                    write_answer, content, method, None if length is None else int(length)
                )
            )
        if status == _UNAVAILABLE and method.name.endswith("Ready"):
            return b""  # the message says no
        problem = orjson.loads(content)
        # by this clients that try again know when to
        metadata += [
            ("grpc-retry-pushback-ms", f"{1000 * int(value)}")
            for name, value in metadata
            if name == "retry-after"
        ]
        # a message has no binary_data_size
        detail = problem["detail"].replace(".parameters.binary_data_size", "")
        metadata.append(("xylem-code", problem["code"]))
        await context.abort(
            STATUS_CODES.get(status, grpc.StatusCode.UNKNOWN),
            detail[:DETAIL_CHARACTERS_MAX],
            tuple(metadata),
        )
        return b""


def _scope_of(method: Method, metadata: Iterable[tuple[str, str]]) -> Message:
    """Return the ASGI scope of a call, whose path and body its message will tell."""
    headers = [(name.encode(), str(text).encode()) for name, text in metadata if name in _HEADERS]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "2",
        "method": method.verb,
        "scheme": "http",
        "path": f"/{SERVICE}/{method.name}" if method.model else method.path,
        "query_string": b"",
        "root_path": "",
        # the length of the message is not known before it has come
        "headers": [*headers, (b"transfer-encoding", b"chunked")],
        "client": None,
        "server": None,
        "extensions": {},
        CALL: method,
    }


async def _converted(convert: Callable[..., Any], content: bytes, *arguments: Any) -> Any:
    """Return what `convert` makes of a content; a long one is not for the event loop."""
    return (
        convert(content, *arguments)
        if len(content) <= LONG_BYTES
        else await asyncio.to_thread(convert, content, *arguments)
    )
