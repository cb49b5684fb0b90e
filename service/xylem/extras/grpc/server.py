"""The gRPC server of a process: in its event loop, with health checks and reflection."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import orjson
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from xylem.base import BadRequest, Settings, url_of
from xylem.extras.grpc.calls import CALL, METHODS, App, InferenceCalls, Message, Method, WholeAnswer
from xylem.extras.grpc.messages import SERVICE
from xylem.serving import KEY_HEADER

__all__ = ["STATUS_CODES", "InferenceCalls", "InferenceServer"]

Code = grpc.StatusCode

STATUS_CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.UNIMPLEMENTED,
    408: Code.DEADLINE_EXCEEDED,
    409: Code.FAILED_PRECONDITION,
    412: Code.FAILED_PRECONDITION,
    413: Code.RESOURCE_EXHAUSTED,
    415: Code.INVALID_ARGUMENT,
    416: Code.OUT_OF_RANGE,
    422: Code.INVALID_ARGUMENT,
    429: Code.RESOURCE_EXHAUSTED,
    431: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    500: Code.INTERNAL,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}
"""The status code of each status of HTTP."""

ROUTE_NOT_FOUND = "route-not-found"
"""The code of a problem: the service has no such call; it is no model that is missing."""

_UNAVAILABLE = 503
_REFUSED_FROM = 400

IS_READY = frozenset({"ServerReady", "ModelReady"})
"""Methods that answer a question: 503 is a no."""

PUSHBACK = "grpc-retry-pushback-ms"
"""Metadata by which clients that try again by themselves know when to."""

HEADERS = frozenset(
    {"authorization", "traceparent", "tracestate", "x-request-id", KEY_HEADER.lower()}
)
"""Metadata of a call that are headers of its request; all others are ignored."""

_OF_HTTP = frozenset({b"connection", b"content-length", b"content-type", b"vary"})
"""Headers of an answer that say something of HTTP; all others are metadata of the call's end."""

DETAIL_CHARACTERS_MAX = 1500
"""Of a refusal's message. Clients take 8 KiB of metadata, where a character may need 12 bytes."""

CALLS_A_REQUEST = 2
"""So many calls may be there for one request in flight: some only wait for clients to read."""

TICK_SECONDS = 0.05  # between two looks at whether calls have ended


class InferenceServer:
    """Answers calls with an ASGI app, which has InferenceCalls among its middleware.

    is_ready  returns whether calls should be sent to this process
    """

    def __init__(self, app: App, settings: Settings, is_ready: Callable[[], bool]) -> None:
        self._app = app
        self._settings = settings
        self._is_ready = is_ready
        self._health = health.aio.HealthServicer()
        self._status: int | None = None
        self._calls: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Begin to answer calls. Other processes may answer them at the same port."""
        limits = self._settings.limits
        idle_ms = int(1000 * self._settings.keep_alive_seconds)
        self._server = grpc.aio.server(
            options=(
                ("grpc.so_reuseport", 1),
                ("grpc.max_receive_message_length", limits.body_bytes_max),
                ("grpc.max_concurrent_streams", limits.requests_max),
                ("grpc.max_connection_idle_ms", idle_ms),
                ("grpc.keepalive_time_ms", idle_ms),
            ),
            maximum_concurrent_rpcs=CALLS_A_REQUEST * limits.requests_max,
        )
        handlers = {
            method.name: grpc.stream_unary_rpc_method_handler(partial(self._answer, method))
            for method in METHODS
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        services = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(services, self._server)
        await self.report_health()
        port = self._settings.grpc_port or 0
        host = self._settings.host.strip("[]").replace("*", "::")
        self._server.add_insecure_port(url_of(host, port).removeprefix("http://"))
        await self._server.start()

    async def report_health(self) -> None:
        """Answer health checks by what is so now."""
        states = health_pb2.HealthCheckResponse
        status = states.SERVING if self._is_ready() else states.NOT_SERVING
        if status != self._status:
            self._status = status
            for service in ("", SERVICE):
                await self._health.set(service, status)

    async def stop(self, seconds: float) -> None:
        """Take no more calls, and complete those in flight, for at most so many seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        await self._health.enter_graceful_shutdown()
        stopping = asyncio.create_task(self._server.stop(seconds))
        await asyncio.sleep(TICK_SECONDS)
        while self._calls and loop.time() < deadline:
            await asyncio.sleep(TICK_SECONDS)
        await self._server.stop(None)  # those who watch the health never end by themselves
        await stopping

    async def _answer(self, method: Method, _: object, context: Any) -> bytes:
        """Answer one call, or end it with the status code of its refusal."""
        task = asyncio.current_task()
        if task is not None:
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)  # its answer has been sent then
        answer = WholeAnswer()
        await self._app(_scope_of(method, context), partial(_receive, context), answer.receive)
        content = b"".join(answer.parts)
        metadata = [
            (name.decode(), value.decode("latin-1"))
            for name, value in answer.headers.items()
            if name not in _OF_HTTP
        ]
        if answer.status == _UNAVAILABLE and method.name in IS_READY:
            return b""  # `ready` is false
        if answer.status >= _REFUSED_FROM:
            await _refuse(context, answer.status, orjson.loads(content), metadata)
        context.set_trailing_metadata(metadata)
        return content


def _scope_of(method: Method, context: Any) -> Message:
    """Return the ASGI scope of a call, whose path and body its message will tell."""
    headers = [
        (name.encode(), value.encode("latin-1"))
        for name, value in context.invocation_metadata()
        if name in HEADERS
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "2",
        "method": method.verb,
        "scheme": "http",
        "path": method.path if "{" not in method.path else f"/{SERVICE}/{method.name}",
        "query_string": b"",
        "root_path": "",
        # the length of the message is not known before it has come
        "headers": [*headers, (b"transfer-encoding", b"chunked")],
        "client": None,
        "server": None,
        "extensions": {},
        CALL: method,
    }


async def _receive(context: Any) -> Message:
    """Return a call's message as an ASGI message."""
    content = await context.read()
    if content is grpc.aio.EOF:
        raise BadRequest("expected a message, found none")
    return {"type": "http.request", "body": content, "more_body": False}


async def _refuse(
    context: Any, status: int, problem: dict[str, Any], metadata: list[tuple[str, str]]
) -> None:
    """End a call as a problem says."""
    detail = problem["detail"].replace(".parameters.binary_data_size", "")  # a message has no such
    metadata.append(("xylem-code", problem["code"]))
    metadata += [
        (PUSHBACK, f"{1000 * int(value)}") for name, value in metadata if name == "retry-after"
    ]
    code = STATUS_CODES.get(status, Code.UNKNOWN)
    if problem["code"] == ROUTE_NOT_FOUND:
        code = Code.UNIMPLEMENTED
    await context.abort(code, detail[:DETAIL_CHARACTERS_MAX], tuple(metadata))
