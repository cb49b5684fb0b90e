"""Answer requests of every dialect with `Dialect.answer`, which routes and the protocol call.

A search evicts nearly all other code from the processor's caches. So the cost of a short request,
besides its search, grows with the amount of different code that it runs. Therefore a request that
arrives whole, with a head that was seen before, is answered from its bytes, without a task and
without an ASGI scope. Requests that take long are left to the route, which has threads.
"""

import logging
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from xylem.api.door.admission import Admission, check_media
from xylem.api.door.encodings import PACKED_FROM, packed
from xylem.api.door.heads import (
    HEAD_END,
    HEAD_LENGTH_MAX,
    NOTHING,
    HeadTemplate,
    RequestHeaders,
    divide,
    inner_path,
    reference_of,
    template_of,
    usual_head,
)
from xylem.api.door.problems import error_response
from xylem.api.door.request_log import RequestLog, RequestOutcome
from xylem.api.door.request_timings import TRACE, AnsweredBy, EndedRequest
from xylem.base import (
    AccessRefused,
    AccessScope,
    KeyRing,
    Limits,
    Principal,
    StageTimings,
    XylemError,
    log,
)
from xylem.serving import (
    HEADER,
    SHORT_ITEMS,
    Body,
    ChosenVersion,
    Dialect,
    LiveServed,
    LiveSplit,
    Longer,
    Reply,
    SearchDialect,
    ServedVersion,
    ShadowCopy,
    Shadows,
)
from xylem_store import StoreError, is_version

# bodies of up to this many bytes are answered here; longer ones mostly take long
_SHORT_BYTES = 8 * SHORT_ITEMS

# The most heads that are remembered; those of one client differ by their content-length.
HEADS_MAX = 4096

_STATUS = b"HTTP/1.1 200 OK\r\n"
_LENGTH = b"content-length: "
_ID_LINE = b"x-request-id: "
_JSON = ((b"content-type", b"application/json"),)
_JSON_LINES = b"\r\ncontent-type: application/json\r\n"
_BINARY_LINES = b"\r\ncontent-type: application/octet-stream\r\n%b: %%d\r\n" % HEADER.encode()
_PACKED_LINES = b"\r\ncontent-encoding: gzip\r\nvary: Accept-Encoding"

Header = tuple[bytes, bytes]


class Answering:
    """The objects that answer requests, and the steps after each answer. Event loop only."""

    def __init__(
        self,
        live: LiveServed,
        ring: KeyRing,
        shadows: Shadows,
        requests: RequestLog,
        limits: Limits,
    ) -> None:
        self._counts_usage = not ring.is_open(AccessScope.PREDICT, None)
        self.live = live
        self.ring = ring
        self.requests = requests
        self.limits = limits
        self._shadows = shadows

    def finish(
        self,
        dialect: Dialect[Any],
        chosen: ChosenVersion[ServedVersion],
        body: Body,
        reply: Reply,
        sender: Principal,
        n_requests: int,
        timings: StageTimings,
    ) -> None:
        """Count the rows of an answer, and offer a copy of the request to the shadow version.

        n_requests  the requests that are charged to the sender, too: those not charged before
        """
        served, shadow = chosen
        self.requests.metrics.rows[served.name] += reply.n_rows
        if sender.meter.is_limited:
            sender.meter.charge(n_requests, reply.n_rows)
        if self._counts_usage:
            self.ring.usage.add(
                sender.key_id,
                served.name,
                n_rows=reply.n_rows,
                n_characters=len(body.message) - body.start,
                search_ns=self.requests.metrics.stages.drain_search(timings),
            )
        if shadow is not None and isinstance(dialect, SearchDialect):
            body = Body(body.content, 0, body.header_or_query)
            self._shadows.offer(ShadowCopy(dialect, body, reply, served, shadow))


def headers_for(reply: Reply, served: ServedVersion) -> Sequence[Header]:
    """Return an answer's headers without its length; they tell if thresholds may be old."""
    headers: Sequence[Header] = (
        _JSON
        if reply.n_json is None
        else (
            (b"content-type", b"application/octet-stream"),
            (HEADER.encode(), b"%d" % reply.n_json),
        )
    )
    if reply.is_tuned and served.thresholds.is_stale:
        headers = *headers, (b"xylem-thresholds", b"stale")
    return headers


class _Target(NamedTuple):
    """The target of all requests with a given head, for as long as the store does not change.

    chosen   the version that the alias or number of the head names
    outcome  the record of requests that this version answers
    split    the split of the alias, if it has a canary or a shadow
    canary   the record of requests that the canary answers
    usage    the Usage that `LiveModels` has of the version; it drops the target with it
    """

    head: HeadTemplate
    chosen: ChosenVersion[ServedVersion]
    outcome: RequestOutcome
    split: LiveSplit[ServedVersion] | None
    canary: RequestOutcome
    usage: Any


class WholeRequests:
    """Answers whole requests from their bytes, without an ASGI scope. Event loop only."""

    def __init__(
        self,
        routes: Sequence[tuple[Dialect[Any], BaseRoute]],
        answering: Answering,
        admission: Admission,
        root_path: str = "",
    ) -> None:
        self._routes = routes
        self._root_path = root_path
        self._endings = tuple(
            {"/" + str(getattr(route, "path", "")).rpartition("/")[2] for _, route in routes}
        )
        self._answering = answering
        self._live = answering.live
        self._requests = answering.requests
        self._is_open = answering.ring.is_open(AccessScope.PREDICT, None)
        self._admission = admission
        self._bytes_max = min(_SHORT_BYTES, answering.limits.body_bytes_max)
        self._timings, self._traced_timings = StageTimings(), StageTimings(is_traced=True)
        self._heads: dict[bytes, HeadTemplate] = {}

    def learn(self, message: bytes, scope: Scope) -> None:
        """Remember the head of a message, if that was exactly one whole request with a usual head.

        `scope` is the ASGI scope that the server's parser made from the message.
        """
        template = self._template(scope)
        head = None if template is None else usual_head(message, scope, self._bytes_max)
        if template is None or head is None:
            return
        n_bytes = len(message) - message.index(HEAD_END) - len(HEAD_END)
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
            self._live.heads.clear()
        ring = self._answering.ring
        is_open = ring.is_open(AccessScope.PREDICT, template.model)  # no key is looked at then
        self._heads[head] = template._replace(
            key=None if is_open else ring.key_id(template.authorization), n_bytes=n_bytes
        )

    def _template(self, scope: Scope) -> HeadTemplate | None:
        """Return the template of a head; None if no route fits the path and takes the body."""
        if not scope["path"].endswith(self._endings):
            return None
        scope = {**scope, "path": inner_path(scope["path"], self._root_path)}
        for dialect, route in self._routes:
            match, child_scope = route.matches(scope)
            if match is Match.FULL:
                try:
                    check_media(scope, dialect.media)
                    return template_of(
                        {**scope, **child_scope}, dialect, *reference_of(child_scope["path_params"])
                    )
                except (XylemError, StoreError):
                    return None
        return None

    def answer(self, message: bytes, headers: bytes) -> bytes | None:
        """Return the answer to one whole request whose head is remembered.

        It has `headers` before its own. Returns None if a route has to answer the request.
        """
        end = message.find(HEAD_END)
        if end < 0:
            return None
        start = end + len(HEAD_END)
        text = message[:end]
        request_headers = NOTHING
        target = self._live.heads.get(text)
        if target is None:
            target, request_headers = self._look_up(text)
        if (
            target is None
            or len(message) - start != target.head.n_bytes
            or self._admission.n_free <= 0
            or self._admission.draining()
        ):
            return None
        began = time.perf_counter_ns()
        head, chosen, outcome, split, _, usage = target
        usage.last_ns = began
        request_id, trace = self._requests.begin(request_headers)
        stages = self._timings if trace is None or not trace.span_id else self._traced_timings
        if split is not None:
            chosen = split.choose(chosen.served, request_headers.canary_key or request_id.encode())
            outcome = outcome if chosen.served is target.chosen.served else target.canary
        try:
            sender = (
                self._answering.ring.anybody
                if self._is_open
                else self._answering.ring.check(head.authorization, AccessScope.PREDICT, head.model)
            )
            body = Body(message, start, head.header_or_query)
            reply = head.dialect.answer(body, chosen.served, self._answering.limits, stages)
            if isinstance(reply, Longer):
                stages.forget()
                return None
            self._answering.finish(head.dialect, chosen, body, reply, sender, 1, stages)
        except (XylemError, StoreError) as error:
            first, ended, lines, problem = _refusal(
                head,
                chosen.served,
                error,
                {
                    "path": head.path,
                    "root_path": self._root_path,
                    "request_id": request_id,
                    TRACE: trace,
                },
            )
            self._requests.end(request_id, ended, began, trace, stages)
            return b"".join(
                (first, headers, lines, _ID_LINE, request_id.encode(), HEAD_END, problem)
            )
        except Exception as error:  # the route runs into the same error, and answers it
            log(logging.ERROR, "failure", error=error)
            stages.forget()
            return None
        parts = reply.parts
        lines = _JSON_LINES
        if reply.n_json is not None or (reply.is_tuned and chosen.served.thresholds.is_stale):
            lines = (
                _BINARY_LINES % reply.n_json
                if reply.n_json is not None and not reply.is_tuned
                else b"\r\n%b" % _lines_of(headers_for(reply, chosen.served))
            )
        n_bytes = sum(map(len, parts))
        if head.gzip and n_bytes >= PACKED_FROM:
            parts = (packed(b"".join(parts)),)
            lines = _PACKED_LINES + lines
            n_bytes = len(parts[0])
        self._requests.record(request_id, outcome, began, trace, stages)
        return b"".join(
            (
                _STATUS,
                headers,
                _LENGTH,
                b"%d" % n_bytes,
                lines,
                sender.meter.lines,
                _ID_LINE,
                request_id.encode(),
                HEAD_END,
                *parts,
            )
        )

    def _look_up(self, head: bytes) -> tuple[_Target | None, RequestHeaders]:
        """Return the target of a head that is not in `heads`, or None, and its RequestHeaders."""
        # get the dictionary first: it is replaced when the store changes, so a target that is added
        # to it is dropped with the state of the store that it was made from
        targets = self._live.heads
        if len(head) > HEAD_LENGTH_MAX:
            return None, NOTHING
        head, request_headers = divide(head)
        return targets.get(head) or self._find(head, targets), request_headers

    def _find(self, head: bytes, targets: dict[bytes, _Target]) -> _Target | None:
        """Return the target of a head, and add it to `targets`; None if the head is not remembered.

        Also None if the version is not open.
        """
        template = self._heads.get(head)
        served = None if template is None else self._live.resident(template.model, template.ref)
        if template is None or served is None:
            return None
        split = self._live.splits.get((template.model, template.ref))
        outcome = self._outcome(template, served)
        target = targets[head] = _Target(
            head=template,
            chosen=ChosenVersion(served),
            outcome=outcome,
            split=split,
            canary=outcome
            if split is None or split.canary is None
            else self._outcome(template, split.canary),
            usage=self._live.usage(served.name, served.version),
        )
        return target

    def _outcome(self, head: HeadTemplate, served: ServedVersion) -> RequestOutcome:
        return self._requests.outcome(
            EndedRequest(
                method="POST",
                route=head.route,
                path=head.path,
                status=200,
                code=None,
                answered_by=_answered_by(head, served),
                key=head.key,
            ),
            is_traced=self._requests.tracer is not None,
        )


def _answered_by(head: HeadTemplate, served: ServedVersion) -> AnsweredBy:
    return AnsweredBy(served.name, served.version, None if is_version(head.ref) else head.ref)


def _refusal(
    head: HeadTemplate, served: ServedVersion, error: Exception, scope: Scope
) -> tuple[bytes, EndedRequest, bytes, bytes]:
    """Return the answer to a refused request: status line, record for the log, headers, body."""
    problem = error_response(scope, error)
    status = problem.status_code
    return (
        b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode()),
        EndedRequest(
            method="POST",
            route=head.route,
            path=head.path,
            status=status,
            code=scope["error_code"],
            answered_by=_answered_by(head, served),
            key=None if isinstance(error, AccessRefused) else head.key,
        ),
        _lines_of(problem.raw_headers),
        bytes(problem.body),
    )


def _lines_of(headers: Sequence[Header]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])
