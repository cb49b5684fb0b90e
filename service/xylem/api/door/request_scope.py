"""The outermost layer of every request: id, admission, body, log line, figures, and errors."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from http.client import BAD_REQUEST, REQUEST_TIMEOUT
from time import perf_counter_ns
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xylem.api.door.admission import BODY_IS_RECEIVED, Admission
from xylem.api.door.cors import Cors
from xylem.api.door.encodings import PackedAnswer, Unpacking, codings_of
from xylem.api.door.heads import HEADERS_KEY, headers_of, inner_path
from xylem.api.door.problems import (
    BadHead,
    BodyTimeout,
    BodyTooLarge,
    HeadTooLong,
    UnsupportedEncoding,
    error_response,
    problem_response,
)
from xylem.api.door.request_log import RequestLog, new_request_id
from xylem.api.door.request_timings import ANSWERED_BY, TIMINGS, TRACE, EndedRequest, trace_id_of
from xylem.api.door.slow_clients import SlowClient
from xylem.base import Overloaded, StageTimings, XylemError, log
from xylem_store import StoreError

# The status that is logged when the client left before the answer, as nginx logs it.
CLIENT_GONE = 499


class RequestScope:
    """ASGI middleware around all other parts of the app.

    cors       the arguments of `Cors`, which adds its headers to errors, too; None: no CORS
    root_path  the prefix of a proxy
    """

    def __init__(
        self,
        app: ASGIApp,
        admission: Admission,
        requests: RequestLog,
        cors: Mapping[str, Any] | None = None,
        root_path: str = "",
    ) -> None:
        self._app = app
        self._admission = admission
        self._metrics = requests.metrics
        self._requests = requests
        self._cors = cors
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = perf_counter_ns()
        method = scope["method"]
        root_path = self._root_path
        if root_path:
            scope["path"] = inner_path(scope["path"], root_path)
            scope["root_path"] = root_path
        if method == "HEAD":  # answered as GET is; the server leaves out the body
            scope = {**scope, "method": "GET"}
        scope[HEADERS_KEY] = request_headers = headers_of(scope["headers"])
        scope["request_id"], trace = self._requests.begin(request_headers, scope["path"])
        if trace is not None:
            scope[TRACE] = trace
        scope[TIMINGS] = StageTimings(is_traced=trace is not None and trace.span_id != 0)
        guard = BodyGuard(scope, receive, send, self._admission)
        refusal = self._admission.enter(scope)
        self._metrics.in_flight += 1
        try:
            if refusal is not None:
                raise refusal
            guard.check_head()
            is_packed, takes_gzip = codings_of(scope["headers"])
            receive = (
                Unpacking(guard.receive, guard.bytes_max, guard.hold)
                if is_packed
                else guard.receive
            )
            app = PackedAnswer(self._app) if takes_gzip else self._app
            await app(scope, receive, guard.send)
        except ClientDisconnect:
            guard.status = CLIENT_GONE
        except asyncio.CancelledError:  # of a call of gRPC: its client left, or its deadline passed
            guard.status = guard.status or CLIENT_GONE
            raise
        except Exception as error:
            await self._answer_error(scope, guard, error)
        finally:
            if refusal is None:
                self._admission.leave()
            if (meter := scope.get("state", {}).get("meter")) is not None:
                meter.leave()
            self._admission.bodies.release(guard.sender)
            self._metrics.in_flight -= 1
            self._record(method, scope, guard.status, started)

    def _record(self, method: str, scope: Scope, status: int, started: int) -> None:
        principal = scope.get("state", {}).get("principal")
        self._requests.end(
            scope["request_id"],
            EndedRequest(
                method=method,
                route=getattr(scope.get("route"), "path", "none"),
                path=scope["path"],
                status=status,
                code=scope.get("error_code"),
                answered_by=scope.get(ANSWERED_BY),
                key=None if principal is None else principal.key_id or None,
            ),
            started,
            scope.get(TRACE),
            scope[TIMINGS],
        )

    async def _answer_error(self, scope: Scope, guard: "BodyGuard", error: Exception) -> None:
        """Answer with the error's problem.

        If the answer has begun already, log the error and raise it again.
        """
        is_expected = isinstance(error, XylemError | StoreError)
        if not is_expected or guard.status:
            log(
                logging.ERROR,
                "failure",
                request_id=scope["request_id"],
                error=error,
                **trace_id_of(scope),
            )
        if guard.status:
            raise error
        if is_expected:
            answer = error_response(scope, error)
        else:
            scope["error_code"] = "internal-error"
            answer = problem_response(
                scope, "internal-error", "the service failed; its log has the request's id"
            )
        if self._cors is None:
            await answer(scope, guard.receive, guard.send)
        else:
            await Cors(answer, **self._cors).simple_response(
                scope, guard.receive, guard.send, Headers(scope=scope)
            )


LINGER_SECONDS = 1.0  # how long the rest of an unread body is read and dropped

# An unread body of up to this size does not close the connection: most likely it has come.
UNREAD_BYTES_MAX = 64 << 10


class BodyGuard:
    """Counts the bytes of a request's body, and completes the head of the answer.

    A body that is held whole counts among all such bodies until its request ends, because the
    traceback of an error may keep it until then. While the rest of it is awaited, the request may
    be given up if others need the room.

    bytes_max  the most bytes that the body may have; None: it is never held whole, and has no limit
    sender     the client, as one of those whose bodies are held
    status     the answer's status; 0 until the answer begins
    """

    _timeout: asyncio.Timeout

    def __init__(self, scope: Scope, receive: Receive, send: Send, admission: Admission) -> None:
        self._receive = receive
        self._send = send
        self._scope = scope
        self._admission = admission
        self._is_given_up = False
        self.bytes_max = admission.bytes_max(scope)
        self.sender = SlowClient(lambda: self._bytes, self._give_up)
        self._bytes = 0
        headers = dict(scope["headers"])
        # None: the length is not known
        self._declared = (
            None if b"transfer-encoding" in headers else int(headers.get(b"content-length", 0))
        )
        self._unread = self._declared != 0
        self._linger = False
        self.status = 0

    def check_head(self) -> None:
        """Check the head: Host (RFC 9112, 3.2), Transfer-Encoding (6.1), and the declared length.

        Raises BadHead, UnsupportedEncoding and BodyTooLarge.
        """
        n_hosts = 0
        for name, value in self._scope["headers"]:
            if name == b"host":
                n_hosts += 1
            elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                raise UnsupportedEncoding(
                    "Transfer-Encoding: expected chunked, "
                    f"found {ascii(value.decode('latin-1'))[:100]}"
                )
        if n_hosts > 1 or (n_hosts == 0 and self._scope["http_version"] == "1.1"):
            raise BadHead(f"expected one Host header, found {n_hosts or 'none'}")
        self._check_bytes(self._declared or 0)

    async def receive(self) -> Message:
        """Return the next ASGI message.

        Raises BodyTooLarge once the bytes are more than the limit. For a body that is held whole,
        also raises BodyTimeout if it does not come in time, and Overloaded if there is no room for
        it.
        """
        is_whole = self.bytes_max is not None
        # without a timer if the body is here: it would cost more than to receive it
        waits = is_whole and self._unread
        waits = waits and BODY_IS_RECEIVED not in self._scope.get("extensions", ())
        message = await (self._wait() if waits else self._receive())
        if message["type"] == "http.request":
            body: bytes = message.get("body", b"")
            self._bytes += len(body)
            self._check_bytes(self._bytes)
            self._unread = message.get("more_body", False)
            if not self._unread:
                self._admission.bodies.waiting.pop(self.sender, None)
            if is_whole:
                self.hold(len(body))
        return message

    async def _wait(self) -> Message:
        """Return the next message of a body that is not complete yet."""
        seconds = self._admission.limits.body_seconds_max
        began = self._admission.bodies.waiting.setdefault(
            self.sender, asyncio.get_running_loop().time()
        )
        try:
            async with asyncio.timeout_at(began + seconds) as self._timeout:
                message = await self._receive()
        except TimeoutError:
            if not self._is_given_up:
                raise BodyTimeout(f"expected the whole body within {seconds:g} seconds") from None
        if self._is_given_up:
            raise Overloaded(
                "expected room for more bytes of bodies, found none: this one comes the slowest"
            )
        return message

    def _give_up(self) -> None:
        """Make `_wait` refuse the request."""
        self._is_given_up = True
        with contextlib.suppress(RuntimeError):  # the timeout has just ended by itself
            self._timeout.reschedule(0)

    def hold(self, n_bytes: int) -> None:
        """Count bytes that are held until the request ends. Raises Overloaded."""
        self._admission.bodies.hold(self.sender, n_bytes)

    async def send(self, message: Message) -> None:
        """Send a message of the answer."""
        if message["type"] == "http.response.start":
            message = self._begin(message)
        elif self._linger and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._read_on()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    def _check_bytes(self, n_bytes: int) -> None:
        if self.bytes_max is not None and n_bytes > self.bytes_max:
            raise BodyTooLarge(
                f"expected at most {self.bytes_max} bytes (limit body_bytes_max), found more"
            )

    def _begin(self, message: Message) -> Message:
        """Return the head of the answer with the headers that every answer has."""
        self.status = status = message["status"]
        is_long = self._declared is None or self._declared > UNREAD_BYTES_MAX
        is_cut = self._unread and (status == REQUEST_TIMEOUT or (is_long and status >= BAD_REQUEST))
        # a request that lingers keeps its place, and its error keeps the body: others may need both
        has_room = self._admission.n_free > self._admission.limits.requests_max // 2
        self._linger = is_cut and has_room and not self._is_given_up
        headers = [*message["headers"], (b"x-request-id", self._scope["request_id"].encode())]
        if (meter := self._scope.get("state", {}).get("meter")) is not None:
            headers += [(name.encode(), line.encode()) for name, line in meter.headers().items()]
        if is_cut or self._admission.draining():
            headers.append((b"connection", b"close"))
        return {"type": "http.response.start", "status": status, "headers": headers}

    async def _read_on(self) -> None:
        """Read and drop the rest of the body for a while, or until the connection ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while (await self._receive()).get("more_body", False):
                    pass


def refuse_unparsed(
    requests: RequestLog,
    head_bytes_max: int,
    root_path: str,
    target: bytes,
    n_head_bytes: int,
    fault: BaseException | None,
) -> tuple[int, bytes, bytes]:
    """Return the last answer of a connection whose bytes are not HTTP, or whose head is too long.

    It is the status, the headers without Date and Connection, and the body.

    target        the part of the request's target that has been read
    n_head_bytes  the length of the head, if it is too long; else 0
    fault         the error of the parser
    """
    path = target.partition(b"?")[0][:256].decode("latin-1")
    request_id = new_request_id()
    scope: Scope = {
        "path": inner_path(path, root_path),
        "root_path": root_path,
        "request_id": request_id,
    }
    if n_head_bytes:
        error: BadHead = HeadTooLong(
            f"head: expected at most {head_bytes_max} bytes of a request's target and "
            f"headers, found {n_head_bytes} or more"
        )
    else:
        fault_text = "found other bytes" if fault is None else f"found: {fault}"
        error = BadHead(f"expected a request of HTTP/1.1, {fault_text}")
    answer = error_response(scope, error)
    requests.end(
        request_id,
        EndedRequest("none", "none", path, answer.status_code, scope["error_code"]),
        perf_counter_ns(),
        None,
        StageTimings(),
    )
    answer_headers = [*answer.raw_headers, (b"x-request-id", request_id.encode())]
    return (
        answer.status_code,
        b"".join([b"%b: %b\r\n" % header for header in answer_headers]),
        bytes(answer.body),
    )
