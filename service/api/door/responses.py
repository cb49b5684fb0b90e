"""Answers of JSON."""

from __future__ import annotations

from starlette.responses import Response

from service.serving.wire import dump

_JSON = b"content-type", b"application/json"


class JsonResponse(Response):
    """A 200 of JSON, made without a look at headers that could be given."""

    def __init__(self, body: bytes) -> None:
        self.status_code = 200
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), _JSON]


def json_response(value: object) -> Response:
    """Return the 200 that answers with `value`."""
    return JsonResponse(dump(value))
