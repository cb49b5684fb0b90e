"""Heads of requests: what each says of its own, and what those of one client have in common.

A client's heads are alike but for their lengths and ids. What the rest of one means is remembered.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple
from starlette.types import Scope

from xylem.api.door.encodings import codings_of
from xylem.base import TRACESTATE_MAX
from xylem.serving import DEFAULT_ALIAS, KEY_HEADER, Dialect
from xylem_store import AliasNotFound, VersionNotFound, is_alias, is_version

HEAD_LENGTH_KEPT = 1024
"""Bytes of a head up to which it is remembered, without what each request has of its own."""

HEAD_LENGTH_MAX = 4096
"""Bytes of a whole head up to which it is looked at."""

HEAD_END = b"\r\n\r\n"

_ASKS_FOR_MORE = frozenset(
    {b"content-encoding", b"expect", b"origin", b"transfer-encoding", b"upgrade"}
)
"""Headers that ask for more than to answer the body that follows."""

_REQUEST_ID = rb"[A-Za-z0-9._:/+=@-]{1,128}"
_IS_REQUEST_ID = re.compile(_REQUEST_ID).fullmatch


class RequestHeaders(Struct, frozen=True):
    """What a head says that those of the same client's other
    requests do not; None: it does not say it.

    request_id  that the client gives the request, if it is a sane one
    canary_key  by which a canary's requests are chosen
    """

    request_id: bytes | None = None
    traceparent: bytes | None = None
    tracestate: bytes | None = None
    canary_key: bytes | None = None


class HeadTemplate(NamedTuple):
    """What heads say that are alike.

    ref      the version's number or alias
    route    the route's pattern; path: what fits it
    said     what the dialect's header, or the query string, says of the body; None: nothing
    key      the id of the key that it brings, where one is needed
    """

    dialect: Dialect[Any]
    model: str
    ref: str
    route: str
    path: str
    body_options: str | None
    authorization: bytes | None
    gzip: bool = False
    key: str | None = None
    n_bytes: int = 0


NOTHING = RequestHeaders()

OWN = "xylem.own"
"""The key of a request's scope under which its RequestHeaders are."""


class OwnHeader(NamedTuple):
    """How a header is found and read that each request has of its own.

    name    a pattern of its name: one all in capitals need not fit, such a request takes the route
    value   a pattern of its value, without groups
    choose  returns its value, of those that a request has; None: there is none that is sane
    """

    name: bytes
    value: bytes
    choose: Callable[[list[bytes]], bytes | None]


OWN_HEADERS: dict[bytes, OwnHeader] = {
    b"x-request-id": OwnHeader(
        rb"[Xx]-[Rr]equest-[Ii][Dd]",
        _REQUEST_ID,
        lambda ids: next(filter(_IS_REQUEST_ID, ids), None),
    ),
    b"traceparent": OwnHeader(
        rb"[Tt]raceparent",
        rb"[!-~]+(?:[ \t]+[!-~]+)*",
        lambda parents: parents[0] if len(parents) == 1 else None,
    ),
    b"tracestate": OwnHeader(
        rb"[Tt]racestate",
        rb"[!-~]+(?:[ \t]+[!-~]+)*",
        # a list of several headers, as others are (W3C Trace Context, 3.3.1)
        lambda states: b",".join(states)[: TRACESTATE_MAX + 1],
    ),
    KEY_HEADER.encode(): OwnHeader(
        rb"(?i:%b)" % KEY_HEADER.encode(), rb"[!-~]{1,256}", lambda keys: keys[0].strip() or None
    ),
}
"""By their names in small letters, in the order of RequestHeaders: a new one is added here."""


def lines_of(headers: Mapping[bytes, OwnHeader]) -> re.Pattern[bytes]:
    """Return what finds these headers, wherever they stand in a head: a group of each
    is its value.
    """
    lines = b"|".join(
        [b"%b:[ \t]*(%b)" % (header.name, header.value) for header in headers.values()]
    )
    return re.compile(rb"\r\n(?:%b)[ \t]*(?=\r\n|\Z)" % lines)


OWN_LINES = lines_of(OWN_HEADERS)


def inner_path(path: str, root_path: str) -> str:
    """Return a path without the prefix that a proxy shows the service
    under, whether it was left or not.
    """
    return path.removeprefix(root_path) if path.startswith(f"{root_path}/") else path


def headers_of(headers: Iterable[tuple[bytes, bytes]]) -> RequestHeaders:
    """Return what a request's headers, names in small letters, say of it alone."""
    values_of: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name in OWN_HEADERS:
            values_of.setdefault(name, []).append(value)
    if not values_of:
        return NOTHING
    values = (
        header.choose(values_of[name]) if name in values_of else None
        for name, header in OWN_HEADERS.items()
    )
    return RequestHeaders(*values)


def reference_of(parts: Mapping[str, str]) -> tuple[str, str]:
    """Return the model that the parts of a path name, and the version's number or alias.

    Raises VersionNotFound and AliasNotFound for what is neither.
    """
    version = parts.get("version")
    alias = parts.get("alias", DEFAULT_ALIAS)
    if version is not None and not is_version(version):
        raise VersionNotFound(f"version: expected a number from 1, found {version[:80]!r}")
    if not is_alias(alias):
        raise AliasNotFound(f"alias: expected the name of an alias, found {alias[:80]!r}")
    return parts["model"], version or alias


def template_of(scope: Scope, dialect: Dialect[Any], model: str, ref: str) -> HeadTemplate:
    """Return what the head of a request in a dialect says, to this version of a model."""
    route = scope["route"].path
    body_options = body_options_of(dialect, scope)
    key, (_, gzip) = dict(scope["headers"]).get(b"authorization"), codings_of(scope["headers"])
    return HeadTemplate(
        dialect=dialect,
        model=model,
        ref=ref,
        route=route,
        path=scope["path"],
        body_options=body_options,
        authorization=key,
        gzip=gzip,
    )


def body_options_of(dialect: Dialect[Any], scope: Scope) -> str | None:
    """Return what the header of a dialect, or the query string, says of the body; None: nothing."""
    if not dialect.header:
        return scope["query_string"].decode("latin-1") or None
    name = dialect.header.encode()
    return next(
        (value.decode("latin-1") for header, value in scope["headers"] if header == name), None
    )


def usual_head(message: bytes, scope: Scope, bytes_max: int) -> bytes | None:
    """Return the head of a message, one whole request, without what
    is its own; None: it is not usual.

    `scope` is what the server's parser made of it. The same bytes will mean the same again.
    """
    head, _, body = message.partition(HEAD_END)
    if len(head) > HEAD_LENGTH_MAX or scope["query_string"] or scope["http_version"] != "1.1":
        return None
    headers = dict(scope["headers"])
    is_odd = len(headers) != len(scope["headers"]) or head.count(b"\n") != len(headers)
    is_odd = is_odd or b"host" not in headers or not _ASKS_FOR_MORE.isdisjoint(headers)
    head, request_headers = divide(head)
    is_odd = is_odd or any(
        (name in headers) != (value is not None)
        for name, value in zip(OWN_HEADERS, astuple(request_headers), strict=True)
    )
    is_odd = is_odd or headers.get(b"content-length") != b"%d" % len(body)
    is_odd = is_odd or headers.get(b"connection", b"keep-alive").lower() != b"keep-alive"
    return None if is_odd or len(head) > HEAD_LENGTH_KEPT or len(body) > bytes_max else head


def divide(head: bytes) -> tuple[bytes, RequestHeaders]:
    """Return a head without what is each request's own, and that.

    Of two headers of a name one is left.
    """
    values: list[bytes | None] = [None] * len(OWN_HEADERS)

    def take(line: re.Match[bytes]) -> bytes:
        group = line.lastindex or 0
        if values[group - 1] is not None:
            return line[0]
        values[group - 1] = line[group]
        return b""

    return OWN_LINES.sub(take, head), RequestHeaders(*values)
