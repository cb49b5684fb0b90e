"""Plain predict requests, answered from their bytes as they came: no task, no scope, no JSON library.

A traversal leaves little of anything else in the processor's caches, so what a request costs besides is how
much different code it runs. A plain one, whose head has been seen before and whose body is one that
`sparse_request` reads, runs little: its head is looked up, one kernel makes its predictions of
its body (`sparse_request`), and they are put together with what does not change. Other short
requests with such a head, of texts for example, are parsed and answered as on the general way, but without
the task and the scope. Whatever is long, or would be refused, goes the general way, which answers with the
same bytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from starlette.types import Scope

from service.api.door.admission import JSON, Admission, check_media
from service.api.door.metrics import Metrics
from service.api.door.problems import UnsupportedEncoding, UnsupportedMediaType
from service.api.door.request_scope import Edge, Outcome, new_request_id
from service.api.door.routing import Direct
from service.errors import XylemError
from service.logs import log
from service.serving.answer import SHORT_BEAMS, SHORT_ITEMS, answer_shortly
from service.serving.answers import ANSWER_END, answer_head
from service.serving.parse import parse_predict
from service.serving.schemas.predict import TUNED
from service.serving.served import DEFAULT_ALIAS, LiveServed, Served
from service.settings import Limits

HEADS_KEPT = 4096
"""Heads that are remembered. Those of one client differ by their content-length."""

HEAD_LENGTH_KEPT = 1024
"""Bytes of a head up to which it is."""

_SHORT_BYTES = 8 * SHORT_ITEMS
"""Bytes of a body up to which it is parsed to see whether it is short: longer ones hardly are."""

_HEAD_END = b"\r\n\r\n"
_STATUS, _LENGTH = b"HTTP/1.1 200 OK\r\n", b"content-length: "
_TYPE = b"\r\ncontent-type: application/json\r\nx-request-id: "
_NOT_PLAIN = frozenset({b"x-request-id", b"expect", b"transfer-encoding", b"upgrade"})


class _Head(NamedTuple):
    """What a head says: the model, the version's number or alias, the body's bytes, route and path."""

    model: str
    ref: str
    n_bytes: int
    route: str
    path: str


class _Target:
    """What requests with a head are answered with, for as long as the store stays as it is.

    epoch, begin  the epoch of the thresholds at the last answer, and what stands before its predictions
    """

    __slots__ = ("begin", "epoch", "n_bytes", "outcome", "served")

    def __init__(self, n_bytes: int, served: Served, outcome: Outcome) -> None:
        self.n_bytes = n_bytes
        self.served = served
        self.outcome = outcome
        self.epoch = 0
        self.begin = answer_head(served, 0)


class PlainRequests:
    """Answers requests to predict from their bytes. Event loop only.

    direct          where a method and path lead
    predict_paths   the patterns of the routes that predict
    draining        whether the server is about to stop
    """

    def __init__(
        self,
        direct: Direct,
        predict_paths: frozenset[str],
        live: LiveServed,
        admission: Admission,
        metrics: Metrics,
        edge: Edge,
        limits: Limits,
        draining: Callable[[], bool],
    ) -> None:
        self._direct = direct
        self._predict_paths = predict_paths
        self._live = live
        self._admission = admission
        self._metrics = metrics
        self._edge = edge
        self._limits = limits
        self._draining = draining
        self._heads: dict[bytes, _Head] = {}

    def learn(self, message: bytes, scope: Scope) -> None:
        """Remember the head of a message that was one whole request, and nothing else, if it is plain.

        `scope` is what the server's parser made of it. The same bytes will mean the same again.
        """
        found = self._direct.find(scope["method"], scope["path"])
        if found is None or found.route.path not in self._predict_paths:
            return
        head, _, body = message.partition(_HEAD_END)
        if len(head) > HEAD_LENGTH_KEPT or scope["query_string"] or scope["http_version"] != "1.1":
            return
        headers = dict(scope["headers"])
        is_odd = len(headers) != len(scope["headers"]) or head.count(b"\n") != len(headers)
        is_odd = is_odd or b"host" not in headers or not _NOT_PLAIN.isdisjoint(headers)
        if is_odd or len(body) > self._limits.body_bytes_max:
            return
        if headers.get(b"content-length") != b"%d" % len(body):
            return
        if headers.get(b"connection", b"keep-alive").lower() != b"keep-alive":
            return
        try:
            check_media(scope, JSON)
        except (UnsupportedMediaType, UnsupportedEncoding):
            return
        parts = found.path_params
        ref = parts.get("version") or parts.get("alias", DEFAULT_ALIAS)
        if len(self._heads) >= HEADS_KEPT:
            self._heads.clear()
            self._live.notes.clear()
        self._heads[head] = _Head(parts["model"], ref, len(body), found.route.path, scope["path"])

    def answer(self, message: bytes, headers: bytes) -> bytes | None:
        """Return the answer, these headers in front, if the message is one whole plain request; else None."""
        end = message.find(_HEAD_END)
        head = message[:end]
        notes = self._live.notes  # before the store is looked at: what is noted must not outlive its state
        target = notes.get(head) or self._find(head, notes)
        start = end + len(_HEAD_END)
        if target is None or len(message) - start != target.n_bytes:
            return None
        if self._admission.is_full or self._draining():
            return None
        began = time.perf_counter()
        try:
            body = self._predict(target, message, start)
        except Exception as error:  # the general way meets it again, and answers
            log(logging.ERROR, "failure", error=error)
            return None
        if body is None:
            return None
        request_id = new_request_id()
        self._edge.record(request_id, target.outcome, time.perf_counter() - began)
        length = b"%d" % sum(map(len, body))
        return b"".join((_STATUS, headers, _LENGTH, length, _TYPE, request_id.encode(), _HEAD_END, *body))

    def _find(self, head: bytes, notes: dict[bytes, _Target]) -> _Target | None:
        """Return what answers requests with a head that is remembered, and note it; else None."""
        known = self._heads.get(head)
        served = None if known is None else self._live.resident(known.model, known.ref)
        if known is None or served is None:
            return None
        outcome = self._edge.outcome("POST", known.route, known.path, 200, None)
        target = notes[head] = _Target(known.n_bytes, served, outcome)
        return target

    def _predict(self, target: _Target, message: bytes, start: int) -> tuple[bytes, ...] | None:
        """Return the JSON of the answer, in parts; None: it is not for us to give."""
        served = target.served
        thresholds = served.thresholds
        epoch = thresholds.epoch
        seal, serial = served.ids.seal(epoch, SHORT_BEAMS)
        tuned = None if thresholds.is_stale else thresholds.prepared  # else the answer has a header to say so
        found = served.plain.answer(message, start, thresholds.thresholds, tuned, seal, serial)
        if found is None:
            return self._shortly(served, message[start:])
        self._metrics.record_rows(served.name, found.n_rows)
        if target.epoch != epoch:
            target.epoch, target.begin = epoch, answer_head(served, epoch)
        return target.begin, found.predictions, ANSWER_END

    def _shortly(self, served: Served, body: bytes) -> tuple[bytes] | None:
        """Return the JSON of the answer to a request that is short, as the general way makes it."""
        if len(body) > _SHORT_BYTES:
            return None
        try:
            query = parse_predict(body, self._limits)
            is_odd = query.threshold == TUNED and served.thresholds.is_stale
            answer = None if is_odd else answer_shortly(query, served)
        except XylemError:
            return None
        if answer is None:
            return None
        self._metrics.record_rows(served.name, len(query.instances))
        return (answer,)
