"""A receiver of OpenTelemetry's protocol over HTTP, on loopback, with spans as plain values."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self


class ReceivedSpan(NamedTuple):
    """A received span; ids are hexadecimal, and the parent's is empty if there is none."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    state: str
    began: int
    ended: int
    attributes: dict[str, Any]
    is_failed: bool
    resource: dict[str, Any]


def values_of(attributes: Any) -> dict[str, Any]:
    """Return attributes as a dictionary."""
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in attributes
    }


class Receiver:
    """A server that receives spans, in a thread of its own."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        self.spans: list[ReceivedSpan] = []
        self.n_requests = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces", self.path
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, request: Any) -> None:
        """Store the spans of a request."""
        self.n_requests += 1
        for group in request.resource_spans:
            resource = values_of(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans += [_received(span, resource) for span in scope.spans]

    def of_trace(self, trace_id: str) -> list[ReceivedSpan]:
        """Return the spans of a trace that came so far."""
        return [span for span in list(self.spans) if span.trace_id == trace_id]


def _received(span: Any, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.kind,
        span.trace_state,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        values_of(span.attributes),
        span.status.code == 2,
        resource,
    )
