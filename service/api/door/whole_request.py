"""Predict requests that come whole, their heads seen before: answered without a task and a scope.

What a request costs besides its search is how much different code it runs, for a search leaves little of
anything else in the processor's caches. A client's heads are alike but for their lengths and ids: what one
means is looked up. The answer is `service.serving.answer`'s, as on the route. What takes long is left to the
route.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import NamedTuple

from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from model_store.errors import StoreError
from model_store.identifiers import is_version
from service.access.ring import KeyRing
from service.access.scopes import AccessScope
from service.api.door.admission import JSON, TENSORS, Admission, check_media
from service.api.door.ended_request import AnsweredBy, EndedRequest
from service.api.door.problems import UnsupportedEncoding, UnsupportedMediaType, error_response
from service.api.door.request_log import RequestLog, RequestOutcome, new_request_id
from service.api.door.stage_notes import TRACE
from service.errors import AccessRefused, XylemError
from service.logs import log
from service.serving.answer import SHORT_ITEMS, Answer, answer_now
from service.serving.oip import HEADER, infer_now
from service.serving.served import DEFAULT_ALIAS, LiveServed, ServedVersion
from service.serving.shadow_copies import ShadowCopy, TensorsTold
from service.serving.shadows import Shadows
from service.serving.split import KEY_HEADER, LiveSplit
from service.settings import Limits
from service.stages import StageNotes
from service.traces.tracer import Trace

HEADS_KEPT = 4096
"""Heads that are remembered. Those of one client differ by their content-length."""

HEAD_LENGTH_KEPT = 1024
"""Bytes of a head up to which it is, without what each request has of its own."""

HEAD_LENGTH_MAX = 4096
"""Bytes of a whole head up to which it is looked at."""

_SHORT_BYTES = 8 * SHORT_ITEMS
"""Bytes of a body up to which it is read here: what is longer hardly takes short."""

_OPEN_INFERENCE = "/v2/"
"""What the routes begin with whose bodies are tensors."""

_HEAD_END = b"\r\n\r\n"
_STATUS, _LENGTH = b"HTTP/1.1 200 OK\r\n", b"content-length: "
_ID_LINE = b"x-request-id: "
_JSON = b"\r\ncontent-type: application/json\r\n"
_BINARY = b"\r\ncontent-type: application/octet-stream\r\n%b: %%d\r\n" % HEADER.encode()
_ELSEWHERE = frozenset({b"expect", b"origin", b"transfer-encoding", b"upgrade"})
"""Headers that ask for more than an answer."""

_KEY = re.compile(rb"\r\n(?i:%b):[ \t]*([!-~]{1,256})[ \t]*(?=\r\n|\Z)" % KEY_HEADER.encode())
"""The key by which a canary's requests are chosen: a head is remembered without it, too."""

_ID = re.compile(rb"\r\n[Xx]-[Rr]equest-[Ii][Dd]:[ \t]*([A-Za-z0-9._:/+=@-]{1,128})[ \t]*(?=\r\n|\Z)")
"""The id that a client gives a request: another in each, so that a head is remembered without it."""

_TRACEPARENT, _TRACESTATE = (
    re.compile(rb"\r\n[Tt]race%b:[ \t]*([!-~]+(?:[ \t]+[!-~]+)*)[ \t]*(?=\r\n|\Z)" % end)
    for end in (b"parent", b"state")
)
"""The span that a request continues: another in each, too."""


_OWN_PATTERNS = ((b"equest-", _ID), (b"race", _TRACEPARENT), (b"race", _TRACESTATE), (b"anary-", _KEY))
"""What is each request's own, and bytes that a head with it has: to look for these costs a tenth.

A name in capitals is not found so; such a request takes the route.
"""


class _Head(NamedTuple):
    """What a head says: the model, the version's number or alias, the body's bytes, route, path, and key.

    key         the id of the key that it brings, where one is needed
    is_tensors  whether the body is one of the Open Inference Protocol
    json_bytes  what such a head says of the bytes of it that are JSON
    """

    model: str
    ref: str
    n_bytes: int
    route: str
    path: str
    authorization: bytes | None
    key: str | None
    is_tensors: bool
    json_bytes: str | None


class _Own(NamedTuple):
    """What a head says that those of the same client's other requests do not; None: it does not say it."""

    request_id: bytes | None
    traceparent: bytes | None
    tracestate: bytes | None
    canary_key: bytes | None


_NOTHING = _Own(None, None, None, None)
_OWN_HEADERS = (b"x-request-id", b"traceparent", b"tracestate", KEY_HEADER.encode())


class _Target(NamedTuple):
    """What requests with a head are answered with, for as long as the store stays as it is.

    split   of the alias, if it has a canary or a shadow that answers here
    canary  what those of them are answered with that fall to the canary
    """

    n_bytes: int
    served: ServedVersion
    outcome: RequestOutcome
    known: _Head
    split: LiveSplit[ServedVersion] | None = None
    canary: _Target | None = None


class WholeRequests:
    """Answers requests to predict from their bytes. Event loop only.

    routes     those that predict
    shadows    what answers copies of them, where an alias has a shadow
    draining   whether the server is about to stop
    """

    def __init__(
        self,
        routes: Sequence[BaseRoute],
        live: LiveServed,
        ring: KeyRing,
        admission: Admission,
        requests: RequestLog,
        limits: Limits,
        shadows: Shadows,
        draining: Callable[[], bool],
    ) -> None:
        self._routes = routes
        self._endings = tuple({"/" + str(getattr(route, "path", "")).rpartition("/")[2] for route in routes})
        self._live = live
        self._ring = ring
        self._is_open = AccessScope.PREDICT in ring.open
        self._admission = admission
        self._metrics = requests.metrics
        self._requests = requests
        self._limits = limits
        self._bytes_max = min(_SHORT_BYTES, limits.body_bytes_max)
        self._shadows = shadows
        self._draining = draining
        self._tracer = requests.tracer
        self._notes, self._traced_notes = StageNotes(), StageNotes(is_traced=True)
        self._heads: dict[bytes, _Head] = {}

    def learn(self, message: bytes, scope: Scope) -> None:
        """Remember the head of a message that was one whole request, and nothing else, if all of it is usual.

        `scope` is what the server's parser made of it. The same bytes will mean the same again.
        """
        found = self._match(scope)
        if found is None:
            return
        head, _, body = message.partition(_HEAD_END)
        if len(head) > HEAD_LENGTH_MAX or scope["query_string"] or scope["http_version"] != "1.1":
            return
        headers = dict(scope["headers"])
        is_odd = len(headers) != len(scope["headers"]) or head.count(b"\n") != len(headers)
        is_odd = is_odd or b"host" not in headers or not _ELSEWHERE.isdisjoint(headers)
        head, own = _divide(head)
        is_odd = is_odd or any(
            (name in headers) != (value is not None) for name, value in zip(_OWN_HEADERS, own, strict=True)
        )
        if is_odd or len(head) > HEAD_LENGTH_KEPT or len(body) > self._bytes_max:
            return
        if headers.get(b"content-length") != b"%d" % len(body):
            return
        if headers.get(b"connection", b"keep-alive").lower() != b"keep-alive":
            return
        route, parts = found
        is_tensors = route.startswith(_OPEN_INFERENCE)
        try:
            check_media(scope, TENSORS if is_tensors else JSON)
        except (UnsupportedMediaType, UnsupportedEncoding):
            return
        ref = parts.get("version") or parts.get("alias", DEFAULT_ALIAS)
        if len(self._heads) >= HEADS_KEPT:
            self._heads.clear()
            self._live.notes.clear()
        authorization = headers.get(b"authorization")
        key = None if self._is_open else self._ring.key_id(authorization)
        n_json = headers.get(HEADER.encode())
        json_bytes = None if n_json is None else n_json.decode("latin-1")
        self._heads[head] = _Head(
            parts["model"], ref, len(body), route, scope["path"], authorization, key, is_tensors, json_bytes
        )

    def _match(self, scope: Scope) -> tuple[str, dict[str, str]] | None:
        """Return the route's pattern and the parts of the path of a request to predict; None: of another."""
        if not scope["path"].endswith(self._endings):
            return None
        for route in self._routes:
            match, more = route.matches(scope)
            if match is Match.FULL:
                return more["route"].path, more["path_params"]
        return None

    def answer(self, message: bytes, headers: bytes) -> bytes | None:
        """Return the answer, these headers in front, to one whole request whose head is known; else None."""
        end = message.find(_HEAD_END)
        if end < 0:
            return None
        target, own = self._look_up(message[:end])
        start = end + len(_HEAD_END)
        is_ours = target is not None and len(message) - start == target.n_bytes
        if target is None or not is_ours or self._admission.is_full or self._draining():
            return None
        began, stages, shadow = time.perf_counter_ns(), self._notes, None
        request_id = new_request_id() if own.request_id is None else own.request_id.decode()
        if target.split is not None:
            target, shadow = _choose(target, target.split, own.canary_key or request_id.encode())
        _, served, outcome, known, _, _ = target
        trace = None if self._tracer is None else self._tracer.begin(own.traceparent, own.tracestate)
        if trace is not None and trace.span_id:
            stages = self._traced_notes
        found: object
        try:
            if not self._is_open:
                self._ring.check(known.authorization, AccessScope.PREDICT)
            if known.is_tensors:
                found = infer_now(message, start, known.json_bytes, served, self._limits, stages)
            else:
                found = answer_now(message, start, served, self._limits, stages)
        except (XylemError, StoreError) as error:
            return self._refuse(target, error, request_id, headers, began, trace, stages)
        except Exception as error:  # the route meets it again, and answers
            log(logging.ERROR, "failure", error=error)
            stages.forget()
            return None
        if not isinstance(found, Answer) or (found.is_tuned and served.thresholds.is_stale):
            stages.forget()
            return None  # it goes to a thread, or its answer has a header of its own
        parts, n_rows, _, n_json = found
        self._metrics.rows[served.name] += n_rows
        if stages.noted:
            self._metrics.stages.count(stages)
        self._requests.record(
            request_id, outcome, began, trace, stages.take_told() if stages.is_traced else ()
        )
        if shadow is not None:
            tensors = TensorsTold(known.json_bytes, n_json) if known.is_tensors else None
            self._shadows.offer(ShadowCopy(message[start:], b"".join(parts), served, shadow, tensors))
        length = b"%d" % sum(map(len, parts))
        media = _JSON if n_json is None else _BINARY % n_json
        return b"".join(
            (_STATUS, headers, _LENGTH, length, media, _ID_LINE, request_id.encode(), _HEAD_END, *parts)
        )

    def _refuse(
        self,
        target: _Target,
        error: Exception,
        request_id: str,
        headers: bytes,
        began: int,
        trace: Trace | None,
        stages: StageNotes,
    ) -> bytes:
        """Return the answer to a request at fault."""
        known = target.known
        scope: Scope = {"path": known.path, "request_id": request_id, TRACE: trace}
        problem = error_response(scope, error)
        self._metrics.stages.count(stages)
        status_code, code, by = problem.status_code, scope["error_code"], _by(known, target.served)
        key = None if isinstance(error, AccessRefused) else known.key
        ended = EndedRequest("POST", known.route, known.path, status_code, code, by, key)
        outcome = self._requests.outcome(ended, is_traced=stages.is_traced)
        self._requests.record(request_id, outcome, began, trace, stages.take_told())
        status = b"HTTP/1.1 %d %b\r\n" % (status_code, HTTPStatus(status_code).phrase.encode())
        lines = [b"%b: %b\r\n" % header for header in problem.raw_headers]
        return b"".join((status, headers, *lines, _ID_LINE, request_id.encode(), _HEAD_END, problem.body))

    def _look_up(self, head: bytes) -> tuple[_Target | None, _Own]:
        """Return what requests with a head are answered with, None if not known, and what is its own."""
        notes = self._live.notes  # before the store is looked at: what is noted must not outlive its state
        target = notes.get(head) or self._find(head, notes)
        if target is not None or len(head) > HEAD_LENGTH_MAX:
            return target, _NOTHING
        head, own = _divide(head)
        return notes.get(head) or self._find(head, notes), own

    def _find(self, head: bytes, notes: dict[bytes, _Target]) -> _Target | None:
        """Return what answers requests with a head that is remembered, and note it; else None."""
        known = self._heads.get(head)
        served = None if known is None else self._live.resident(known.model, known.ref)
        if known is None or served is None:
            return None
        split = self._live.splits.get((known.model, known.ref))
        canary = None if split is None or split.canary is None else self._target(known, split.canary)
        target = notes[head] = self._target(known, served)._replace(split=split, canary=canary)
        return target

    def _target(self, known: _Head, served: ServedVersion) -> _Target:
        ended = EndedRequest("POST", known.route, known.path, 200, None, _by(known, served), known.key)
        outcome = self._requests.outcome(ended, is_traced=self._tracer is not None)
        return _Target(known.n_bytes, served, outcome, known)


def _choose(
    target: _Target, split: LiveSplit[ServedVersion], key: bytes
) -> tuple[_Target, ServedVersion | None]:
    """Return what answers the requests of a key, and the shadow that is to answer them too, if any."""
    canary = None if split.canary_for(key) is None else target.canary
    return canary or target, split.shadow_for(key)


def _by(known: _Head, served: ServedVersion) -> AnsweredBy:
    """Return which version answers, and the alias that the head names it by."""
    return AnsweredBy(served.name, served.version, None if is_version(known.ref) else known.ref)


def _divide(head: bytes) -> tuple[bytes, _Own]:
    """Return a head without what is each request's own, and that. Of two headers of a name one is left."""
    values = []
    for mark, pattern in _OWN_PATTERNS:
        given = pattern.search(head) if mark in head else None
        values.append(None if given is None else given[1])
        if given is not None:
            head = head[: given.start()] + head[given.end() :]
    return head, _Own(*values)
