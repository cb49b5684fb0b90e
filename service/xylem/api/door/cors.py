"""CORS: which pages a browser lets read answers, and how a page that may not is refused."""

from typing import Any

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from xylem.api.door.heads import VARYING_HEADERS
from xylem.api.door.problems import (
    CorsRefused,
)
from xylem.base import Settings
from xylem.serving import HEADER

_METHODS = ["GET", "POST", "PUT", "DELETE"]
_REQUEST_HEADERS = [
    "Authorization",
    "Content-Encoding",
    "Content-Type",
    "Idempotency-Key",
    "If-None-Match",
    "Last-Event-ID",
    "Range",
    HEADER,
    *(name.decode() for name in VARYING_HEADERS),
]
_ANSWER_HEADERS = [
    "Accept-Ranges",
    "Allow",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Range",
    "ETag",
    "Location",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-ID",
    "xylem-model",
    "xylem-thresholds",
    "xylem-version",
    HEADER,
]


def cors_options(settings: Settings) -> dict[str, Any] | None:
    """Return the arguments of `Cors`; None if `XYLEM_CORS_ORIGINS` is not set.

    Credentials are never allowed, so `*` can be: the service has no cookies, and a key is sent in a
    header that the page's script sets itself.
    """
    if not settings.cors_origins:
        return None
    return {
        "allow_origins": list(settings.cors_origins),
        "allow_credentials": False,
        "allow_methods": _METHODS,
        "allow_headers": _REQUEST_HEADERS,
        "expose_headers": _ANSWER_HEADERS,
        "max_age": 600,  # seconds that a browser may remember an answer; Chromium caps it at 7200
        # a browser asks this, too, if the service has a private address and the page does not; the
        # origins are chosen for this service, wherever they are
        "allow_private_network": True,
    }


class Cors(CORSMiddleware):
    """Starlette's CORS middleware, which here answers refused requests with a problem."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Return the answer to a preflight request: whether a page may send a request.

        Raises CorsRefused.
        """
        answer = super().preflight_response(request_headers)
        if answer.status_code != 200:
            raise CorsRefused(
                "CORS: expected an origin of XYLEM_CORS_ORIGINS, a method of "
                f"{', '.join(_METHODS)}, headers of {', '.join(self.allow_headers)}, "
                f"found another: {bytes(answer.body).decode().removeprefix('Disallowed CORS ')}"
            )
        return answer
