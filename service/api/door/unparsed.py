"""What the parser of HTTP cannot read is refused as every other fault is: a problem, an id, a log line."""

from __future__ import annotations

from time import perf_counter_ns

from starlette.types import Scope

from service.api.door.ended_request import EndedRequest
from service.api.door.problems import BadHead, HeadTooLong, error_response
from service.api.door.request_log import RequestLog, new_request_id

PATH_CHARACTERS_MAX = 256
"""Of a target that was read, if any, the problem names so much."""


class UnparsedRequests:
    """Makes the last answer of a connection whose bytes are no HTTP, or the head of which is too long."""

    def __init__(self, requests: RequestLog, head_bytes_max: int) -> None:
        self._requests = requests
        self._head_bytes_max = head_bytes_max

    def refuse(
        self, target: bytes, n_head_bytes: int, fault: BaseException | None
    ) -> tuple[int, bytes, bytes]:
        """Return the status, the headers and the body of the answer; all but Date and Connection are there.

        target        what has been read of the request's target
        n_head_bytes  how long the head was found to be; 0: not too long
        fault         the parser's
        """
        path = target.partition(b"?")[0][:PATH_CHARACTERS_MAX].decode("latin-1")
        scope: Scope = {"type": "http", "path": path, "request_id": new_request_id()}
        answer = error_response(scope, self._error(n_head_bytes, fault))
        ended = EndedRequest("none", "none", path, answer.status_code, scope["error_code"])
        outcome = self._requests.outcome(ended, is_traced=False)
        self._requests.record(scope["request_id"], outcome, perf_counter_ns())
        named = [*answer.raw_headers, (b"x-request-id", scope["request_id"].encode())]
        return answer.status_code, b"".join([b"%b: %b\r\n" % header for header in named]), bytes(answer.body)

    def _error(self, n_head_bytes: int, fault: BaseException | None) -> BadHead:
        if n_head_bytes:
            most = self._head_bytes_max
            return HeadTooLong(
                f"head: expected at most {most} bytes of a request's target and headers, "
                f"found {n_head_bytes} or more"
            )
        found = f"found: {fault}" if fault is not None else "found bytes that are none"
        return BadHead(f"expected a request of HTTP/1.1, {found}")
