"""Divide heads of requests into the few headers that differ between requests, and a template.

The heads of one client differ only in their lengths and ids. So the meaning of the other headers is
remembered as a HeadTemplate.
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

# The most bytes of a head that is remembered, without the headers that differ between requests.
TEMPLATE_LENGTH_MAX = 1024

# The most bytes of a whole head that is looked up among the remembered ones.
HEAD_LENGTH_MAX = 4096

HEAD_END = b"\r\n\r\n"

# headers that ask for something else than an answer to the body that follows them
_ASKS_FOR_MORE = frozenset(
    {b"content-encoding", b"expect", b"origin", b"transfer-encoding", b"upgrade"}
)

_REQUEST_ID = rb"[A-Za-z0-9._:/+=@-]{1,128}"
_IS_REQUEST_ID = re.compile(_REQUEST_ID).fullmatch


class RequestHeaders(Struct, frozen=True):
    """Values of the headers that differ between the requests of one client; None: not sent.

    request_id  the id that the client gives the request, if it has a valid form
    canary_key  chooses whether the canary answers the request
    """

    request_id: bytes | None = None
    traceparent: bytes | None = None
    tracestate: bytes | None = None
    canary_key: bytes | None = None


class HeadTemplate(NamedTuple):
    """The meaning of a remembered head: the same for all requests that have it.

    ref              the version's number or alias
    path             the path, which fits the pattern `route`
    header_or_query  the dialect's header, or the query string, about the body; None: not sent
    key              the id of the key in `authorization`, where a key is needed
    n_bytes          the length of the body
    """

    dialect: Dialect[Any]
    model: str
    ref: str
    route: str
    path: str
    header_or_query: str | None
    authorization: bytes | None
    gzip: bool = False
    key: str | None = None
    n_bytes: int = 0


NOTHING = RequestHeaders()

# The key of a request's ASGI scope under which its RequestHeaders are.
HEADERS_KEY = "xylem.request_headers"


class VaryingHeader(NamedTuple):
    """How one header that differs between requests is found in a head, and how its value is read.

    name    a pattern of its name; it need not match a name in capitals: a request with such a name
            is answered by the route
    value   a pattern of its value, without groups
    choose  takes all values that a request has, and returns the one to use; None if none is valid
    """

    name: bytes
    value: bytes
    choose: Callable[[list[bytes]], bytes | None]


# The headers that differ between requests, by their names in lower case.
#
# They are in the order of the fields of RequestHeaders. Add a new header here and there.
VARYING_HEADERS: dict[bytes, VaryingHeader] = {
    b"x-request-id": VaryingHeader(
        rb"[Xx]-[Rr]equest-[Ii][Dd]",
        _REQUEST_ID,
        lambda ids: next(filter(_IS_REQUEST_ID, ids), None),
    ),
    b"traceparent": VaryingHeader(
        rb"[Tt]raceparent",
        rb"[!-~]+(?:[ \t]+[!-~]+)*",
        lambda parents: parents[0] if len(parents) == 1 else None,
    ),
    b"tracestate": VaryingHeader(
        rb"[Tt]racestate",
        rb"[!-~]+(?:[ \t]+[!-~]+)*",
        # several headers are one list, joined by commas (W3C Trace Context, 3.3.1)
        lambda states: b",".join(states)[: TRACESTATE_MAX + 1],
    ),
    KEY_HEADER.encode(): VaryingHeader(
        rb"(?i:%b)" % KEY_HEADER.encode(), rb"[!-~]{1,256}", lambda keys: keys[0].strip() or None
    ),
}


def lines_of(headers: Mapping[bytes, VaryingHeader]) -> re.Pattern[bytes]:
    """Return a pattern that matches these headers, wherever they are in a head.

    Each header has one group, which is its value.
    """
    return re.compile(
        rb"\r\n(?:%b)[ \t]*(?=\r\n|\Z)"
        % b"|".join([b"%b:[ \t]*(%b)" % (header.name, header.value) for header in headers.values()])
    )


VARYING_LINES = lines_of(VARYING_HEADERS)


def inner_path(path: str, root_path: str) -> str:
    """Return a path without the prefix of a proxy, whether the proxy has removed it or not."""
    return path.removeprefix(root_path) if path.startswith(f"{root_path}/") else path


def headers_of(headers: Iterable[tuple[bytes, bytes]]) -> RequestHeaders:
    """Return the values of the headers that differ between requests.

    headers  the headers of a request, with names in lower case
    """
    values_of: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name in VARYING_HEADERS:
            values_of.setdefault(name, []).append(value)
    if not values_of:
        return NOTHING
    return RequestHeaders(
        *(
            header.choose(values_of[name]) if name in values_of else None
            for name, header in VARYING_HEADERS.items()
        )
    )


def reference_of(parts: Mapping[str, str]) -> tuple[str, str]:
    """Return the model and the version, its number or alias, that a path names.

    parts  the parameters of the path

    Raises VersionNotFound for a text that is no number, AliasNotFound for one that is no alias.
    """
    version = parts.get("version")
    alias = parts.get("alias", DEFAULT_ALIAS)
    if version is not None and not is_version(version):
        raise VersionNotFound(f"version: expected a number from 1, found {version[:80]!r}")
    if not is_alias(alias):
        raise AliasNotFound(f"alias: expected the name of an alias, found {alias[:80]!r}")
    return parts["model"], version or alias


def template_of(scope: Scope, dialect: Dialect[Any], model: str, ref: str) -> HeadTemplate:
    """Return the template of a request's head.

    dialect     the one in which the request is written
    model, ref  the model, and the version's number or alias, that the request's path names
    """
    key, (_, gzip) = dict(scope["headers"]).get(b"authorization"), codings_of(scope["headers"])
    return HeadTemplate(
        dialect=dialect,
        model=model,
        ref=ref,
        route=scope["route"].path,
        path=scope["path"],
        header_or_query=header_or_query_of(dialect, scope),
        authorization=key,
        gzip=gzip,
    )


def header_or_query_of(dialect: Dialect[Any], scope: Scope) -> str | None:
    """Return the value of the dialect's header or, for a dialect without one, the query string.

    None if the request does not have it.
    """
    if not dialect.header:
        return scope["query_string"].decode("latin-1") or None
    name = dialect.header.encode()
    return next(
        (value.decode("latin-1") for header, value in scope["headers"] if header == name), None
    )


def usual_head(message: bytes, scope: Scope, bytes_max: int) -> bytes | None:
    """Return the head of a message without the headers that differ between requests.

    Returns None if it is not usual: the same bytes might mean something else next time. `message`
    is one whole request, and `scope` is the ASGI scope that the server's parser made from it.
    """
    head, _, body = message.partition(HEAD_END)
    if len(head) > HEAD_LENGTH_MAX or scope["query_string"] or scope["http_version"] != "1.1":
        return None
    headers = dict(scope["headers"])
    n_lines = head.count(b"\n")
    head, request_headers = divide(head)
    is_odd = (
        not len(headers) == len(scope["headers"]) == n_lines
        or b"host" not in headers
        or not _ASKS_FOR_MORE.isdisjoint(headers)
        or any(
            (name in headers) != (value is not None)
            for name, value in zip(VARYING_HEADERS, astuple(request_headers), strict=True)
        )
        or headers.get(b"content-length") != b"%d" % len(body)
        or headers.get(b"connection", b"keep-alive").lower() != b"keep-alive"
    )
    return None if is_odd or len(head) > TEMPLATE_LENGTH_MAX or len(body) > bytes_max else head


def divide(head: bytes) -> tuple[bytes, RequestHeaders]:
    """Return a head without the headers that differ between requests, and their values.

    If two headers have the same name, the second stays in the head.
    """
    values: list[bytes | None] = [None] * len(VARYING_HEADERS)

    def take(line: re.Match[bytes]) -> bytes:
        group = line.lastindex or 0
        if values[group - 1] is not None:
            return line[0]
        values[group - 1] = line[group]
        return b""

    return VARYING_LINES.sub(take, head), RequestHeaders(*values)
