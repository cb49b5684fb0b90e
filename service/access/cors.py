"""Which pages of other origins may call the service: the options of Starlette's CORSMiddleware."""

from __future__ import annotations

from typing import Any

from service.settings import Settings

_METHODS = ["GET", "POST", "PUT", "DELETE"]
_REQUEST_HEADERS = [
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "Last-Event-ID",
    "Range",
    "X-Request-ID",
]
_ANSWER_HEADERS = ["Location", "Retry-After", "WWW-Authenticate", "X-Request-ID", "Content-Range"]
_MAX_AGE_SECONDS = 600


def cors_options(settings: Settings) -> dict[str, Any] | None:
    """Return the named arguments of `CORSMiddleware`; None where `XYLEM_CORS_ORIGINS` is not set.

    Credentials are never allowed, so `*` may be: the service knows no cookies, and a key is sent in a header
    that the page's script sets itself.
    """
    if not settings.cors_origins:
        return None
    return {
        "allow_origins": list(settings.cors_origins),
        "allow_credentials": False,
        "allow_methods": _METHODS,
        "allow_headers": _REQUEST_HEADERS,
        "expose_headers": _ANSWER_HEADERS,
        "max_age": _MAX_AGE_SECONDS,
    }
