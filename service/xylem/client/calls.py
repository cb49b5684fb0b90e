"""Requests of all calls, described once for both clients; lines of batches and their answers."""

import re
import ssl
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict
from urllib.parse import quote, urlencode, urlsplit

import orjson

from xylem.client.batch_parts import divided
from xylem.errors import BadAnswer

_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_ODD = re.compile(r"[^\x21-\x7e]")
_PORTS = {"http": 80, "https": 443}


class Target:
    """The address of a server, http://HOST:PORT or https://HOST/PREFIX, and a key or None."""

    def __init__(self, url: str, key: str | None, tls: ssl.SSLContext | None = None) -> None:
        try:
            parts = urlsplit(url)
            host = parts.hostname
            port = parts.port
            host = host if host is None or host.isascii() else host.encode("idna").decode()
        except ValueError:
            parts = urlsplit("")
            host = port = None
        has_more = parts.query or parts.fragment or parts.username or parts.password
        if parts.scheme not in _PORTS or not host or has_more or _ODD.search(f"{host}{parts.path}"):
            redacted_url = re.sub(r"//[^/]*@", "//...@", str(url))
            raise ValueError(
                f"url: expected http://HOST:PORT or https://HOST:PORT, found {redacted_url!r}"
            )
        if key is not None and not _KEY.fullmatch(key):
            raise ValueError("key: expected visible characters of ASCII, found others")
        self.scheme = parts.scheme
        self.host = host
        self.port = port or _PORTS[parts.scheme]
        self.prefix = parts.path.rstrip("/")
        self._key = key
        self._tls = tls

    def __repr__(self) -> str:
        return f"{self.scheme}://{self.host_header}{self.prefix}"

    @property
    def host_header(self) -> str:
        """The value of the header Host."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request, with the key if there is one."""
        return {
            "host": self.host_header,
            "accept": "*/*",
            "accept-encoding": "identity",
            "user-agent": "xylem-client",
            **({} if self._key is None else {"authorization": f"Bearer {self._key}"}),
        }

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """The context that verifies the server's certificate; None for http.

        By default it uses the system's authorities.
        """
        return None if self.scheme == "http" else self._tls or ssl.create_default_context()


def segment(name: str, noun: str = "name") -> str:
    """Return a name as one segment of a path. Raises ValueError.

    noun  what the name is, for the message of the error
    """
    if not isinstance(name, str) or name in ("", ".", ".."):
        raise ValueError(f"{noun}: expected a name, found {name!r}")
    return quote(name, safe="")


def model_path(model: str, version: int | None = None, alias: str | None = None) -> str:
    """Return the path of a model, of one of its versions, or of an alias.

    Raises ValueError.
    """
    if version is not None and alias is not None:
        raise ValueError("expected a version or an alias, found both")
    path = f"/v1/models/{segment(model, 'model')}"
    if version is not None:
        return f"{path}/versions/{int(version)}"
    return path if alias is None else f"{path}/aliases/{segment(alias, 'alias')}"


JsonObject: TypeAlias = dict[str, Any]
# The states of a job.
State: TypeAlias = Literal["queued", "running", "succeeded", "failed", "cancelled"]

# An instance: a text, or an object as in docs/tutorial.md; values may be numpy arrays.
Instance: TypeAlias = str | Mapping[str, Any]

EVENTS_A_REQUEST = 256
EVENT_BYTES_A_REQUEST = 1 << 20

JOBS = "/v1/admin/jobs"
SCHEDULES = "/v1/admin/schedules"
_JSON = (("content-type", "application/json"),)
_LINES = (("content-type", "application/x-ndjson"),)


class BatchOptions(TypedDict, total=False):
    """Options for the lines of a batch; the server has defaults for those left out."""

    top_r: int
    top_k: int  # another name for top_r
    threshold: float | Literal["tuned"] | None
    beam_width: int
    exact: bool
    explain: bool
    language: str | None
    label_info: bool
    chunk_characters: int | None
    allow_labels: Sequence[str | Mapping[str, str]] | None  # {"under": CONCEPT} is a branch
    deny_labels: Sequence[str | Mapping[str, str]] | None


class PredictOptions(BatchOptions, total=False):
    """Options of a prediction; the server has defaults for those left out."""

    deadline_ms: int | None
    label_weights: Literal["propensity"] | Mapping[str, float] | None
    statistics: bool


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    path        with its query, quoted
    body        bytes, or a file whose content is sent
    repeatable  sending it twice has the same effect as sending it once
    """

    method: str
    path: str
    body: bytes | Path | None = None
    headers: tuple[tuple[str, str], ...] = ()
    repeatable: bool = False


def instance_of(instance: Instance) -> Mapping[str, Any]:
    """Return an instance as an object. Raises TypeError."""
    if isinstance(instance, str):
        return {"text": instance}
    if not isinstance(instance, Mapping):
        raise TypeError(f"instance: expected a text or a mapping, found {type(instance).__name__}")
    return instance


def dumped(value: object) -> bytes:
    """Return a value as JSON; numpy arrays are lists. Raises TypeError."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def query(**fields: object) -> str:
    """Return the fields that are not None as a query string with its question mark.

    A list is a field for each of its items. What is no string is JSON.
    """
    parameters = [
        (name, item if isinstance(item, str) else dumped(item))
        for name, value in fields.items()
        for item in (value if isinstance(value, list | tuple) else [value])
        if item is not None
    ]
    return f"?{urlencode(parameters)}" if parameters else ""


def get(path: str, **fields: object) -> Request:
    """Return a GET request of a path; fields that are not None are its query."""
    return Request("GET", f"{path}{query(**fields)}", repeatable=True)


def request_of(method: str, path: str, fields: Mapping[str, Any]) -> Request:
    """Return a request with the fields that are not None.

    They go into the body for PUT and POST, else into the query.
    """
    if method in ("GET", "DELETE"):
        return Request(method, f"{path}{query(**fields)}", repeatable=method == "GET")
    return Request(
        method,
        path,
        dumped({name: value for name, value in fields.items() if value is not None}),
        _JSON,
    )


def predict(
    model: str,
    instances: Iterable[Instance],
    version: int | None,
    alias: str | None,
    options: PredictOptions,
) -> Request:
    """Return a request for predictions."""
    return Request(
        "POST",
        f"{model_path(model, version, alias)}/predict",
        dumped({"instances": _several(instances), **_server_options(options)}),
        _JSON,
        repeatable=True,
    )


def score(
    model: str,
    instances: Iterable[Instance],
    version: int | None,
    alias: str | None,
    labels: Sequence[str] | None,
    *,
    sequence: bool,
) -> Request:
    """Return a request for scores; `labels` and `sequence` are for instances that have neither.

    Raises TypeError.
    """
    if isinstance(labels, str):
        raise TypeError("labels: expected several, found one: put it into a list")
    common: dict[str, Any] = {} if labels is None else {"labels": list(labels)}
    if sequence:
        common["sequence"] = True
    instance_objects = [
        instance if {"labels", "sequence"} & instance.keys() else {**instance, **common}
        for instance in _several(instances)
    ]
    return Request(
        "POST",
        f"{model_path(model, version, alias)}/score",
        dumped({"instances": instance_objects}),
        _JSON,
        repeatable=True,
    )


def _server_options(options: BatchOptions) -> JsonObject:
    """Return options by the server's names for them. Raises ValueError."""
    if "top_k" not in options:
        return {**options}
    if "top_r" in options:
        raise ValueError("expected top_r or top_k, which are the same, found both")
    return {"top_r" if name == "top_k" else name: value for name, value in options.items()}


def _several(instances: Iterable[Instance]) -> list[Mapping[str, Any]]:
    if isinstance(instances, str | Mapping):
        raise TypeError("instances: expected several, found one: put it into a list")
    return [instance_of(instance) for instance in instances]


def batch_request(
    model: str, version: int | None, alias: str | None, lines: bytes, options: BatchOptions
) -> Request:
    """Return a request of a batch. Raises ValueError."""
    return Request(
        "POST",
        f"{model_path(model, version, alias)}/batch{query(**_server_options(options))}",
        lines,
        _LINES,
        repeatable=True,
    )


def feedback_requests(
    model: str, events: Iterable[Mapping[str, Any]], version: int | None, alias: str | None
) -> Iterator[tuple[Request, int]]:
    """Yield the requests for these events, and the number of events of each.

    An event without an id gets one. Each event counts once, however often it is sent: so every
    request may be sent again.
    """
    path = f"{model_path(model, version, alias)}/feedback"
    dumps = (dumped({"event_id": uuid.uuid4().hex, **event}) for event in events)
    for block in divided(dumps, EVENTS_A_REQUEST, EVENT_BYTES_A_REQUEST):
        yield (
            Request("POST", path, b'{"events":[%b]}' % b",".join(block), _JSON, repeatable=True),
            len(block),
        )


def submission(kind: str, fields: Mapping[str, Any], idempotency_key: str | None) -> Request:
    """Return the request that submits a job of a kind, such as `training`.

    Fields that are None are left out. The idempotency key makes a submission that is sent again the
    same job; without one, a key is made.
    """
    key = uuid.uuid4().hex if idempotency_key is None else idempotency_key
    body = dumped({name: value for name, value in fields.items() if value is not None})
    return Request(
        "POST", f"/v1/admin/{kind}-jobs", body, (*_JSON, ("idempotency-key", key)), repeatable=True
    )


def job_path(job_id: str, part: str = "") -> str:
    """Return the path of a job, or of a part of it, such as `/log`."""
    return f"{JOBS}/{segment(job_id, 'job')}{part}"


def admin_path(model: str, part: str = "") -> str:
    """Return the path of a model for admins, or of a part of it, such as `/promote`."""
    return f"/v1/admin/models/{segment(model, 'model')}{part}"


def read_object(body: bytes) -> JsonObject:
    """Return the JSON object of an answer; an empty one for an answer without a body.

    Raises BadAnswer.
    """
    try:
        answer = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise BadAnswer("expected a JSON object, found another answer")
    return answer
