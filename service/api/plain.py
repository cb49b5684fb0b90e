"""Plain predict requests, answered from their bytes as they came: no task, no scope, no JSON library.

A traversal leaves little of anything else in the processor's caches, so what a request costs besides is how
much different code it runs. A plain one, whose head has been seen before and whose body
`service.features.plain_body` reads, runs little: its head is looked up, its body read by one kernel and
predicted,
and its labels written by one kernel. Whatever is not plain, or would be refused, goes the general way, which
answers with the same bytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from starlette.types import Scope

from service.api.admission import JSON, Admission, check_media
from service.api.answers import write_answer, write_predictions
from service.api.edge import Edge, new_request_id
from service.api.metrics import Metrics
from service.api.parse import Options
from service.api.predict import SHORT_BEAMS, SHORT_ITEMS, is_small
from service.api.problems import UnsupportedEncoding, UnsupportedMediaType
from service.api.routing import Direct
from service.api.served import DEFAULT_ALIAS, LiveServed
from service.features.plain_body import PlainBodies, PlainQuery
from service.inference.predictor import PredictOptions
from service.logs import log
from service.settings import Limits

HEADS_KEPT = 4096
"""Heads that are remembered. Those of one client differ by their content-length."""

HEAD_LENGTH_KEPT = 1024
"""Bytes of a head up to which it is."""

_OPTIONS_KEPT = 256
_HEAD_END = b"\r\n\r\n"
_ANSWER = (
    b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\ncontent-type: application/json\r\nx-request-id: %b\r\n\r\n%b"
)
_NOT_PLAIN = frozenset({b"x-request-id", b"expect", b"transfer-encoding", b"upgrade"})


class _Head(NamedTuple):
    """What a head says: the model, the version's number or alias, the body's bytes, route and path."""

    model: str
    ref: str
    n_bytes: int
    route: str
    path: str


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
        self._options: dict[tuple[int, int], PredictOptions] = {}
        rows_max = min(SHORT_BEAMS, limits.instances_max)
        features_max = min(SHORT_ITEMS, limits.features_max)
        self._bodies = PlainBodies(rows_max, features_max, Options().top_r, Options().beam_width)
        self.n_answered = 0
        """Requests answered."""

    def learn(self, message: bytes, scope: Scope) -> None:
        """Remember the head of a message that was one whole request, and nothing else, if it is plain.

        `scope` is what the server's parser made of it. The same bytes will mean the same again.
        """
        head, _, body = message.partition(_HEAD_END)
        if len(head) > HEAD_LENGTH_KEPT or scope["query_string"] or scope["http_version"] != "1.1":
            return
        headers = dict(scope["headers"])
        is_odd = len(headers) != len(scope["headers"]) or head.count(b"\n") != len(headers)
        if is_odd or not _NOT_PLAIN.isdisjoint(headers) or len(body) > self._limits.body_bytes_max:
            return
        found = self._direct.find(scope["method"], scope["path"])
        if found is None or found.route.path not in self._predict_paths:
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
        self._heads[head] = _Head(parts["model"], ref, len(body), found.route.path, scope["path"])

    def answer(self, message: bytes, headers: bytes) -> bytes | None:
        """Return the answer, these headers in front, if the message is one whole plain request; else None."""
        end = message.find(_HEAD_END)
        head = self._heads.get(message[:end])
        start = end + len(_HEAD_END)
        if head is None or len(message) - start != head.n_bytes:
            return None
        if self._admission.is_full or self._draining():
            return None
        began = time.perf_counter()
        try:
            body = self._predict(head, message, start)
        except Exception as error:  # the general way meets it again, and answers
            log(logging.ERROR, "failure", error=error)
            return None
        if body is None:
            return None
        self.n_answered += 1
        request_id = new_request_id()
        seconds = time.perf_counter() - began
        self._edge.record(request_id, "POST", head.route, head.path, 200, None, seconds)
        return _ANSWER % (headers, len(body), request_id.encode(), body)

    def _predict(self, head: _Head, message: bytes, start: int) -> bytes | None:
        """Return the JSON of the answer; None: it is not for us to give."""
        served = self._live.resident(head.model, head.ref)
        if served is None:
            return None
        query = self._bodies.read(message, start, served.featurizer)
        if query is None or not self._is_allowed(query):
            return None
        if not is_small(query.rows.n_rows, query.beam_width, served):
            return None
        epoch = served.thresholds.epoch
        options = self._options_of(query)
        found = served.predictor.predict(query.rows, options)
        self._metrics.record_rows(served.name, query.rows.n_rows)
        ids = served.ids.of(found, options, epoch)
        return write_answer(served, epoch, write_predictions(found, ids, served))

    def _is_allowed(self, query: PlainQuery) -> bool:
        limits = self._limits
        return (
            query.top_r <= limits.top_r_max
            and query.beam_width <= limits.beam_width_max
            and query.top_r * query.rows.n_rows <= limits.answer_labels_max
        )

    def _options_of(self, query: PlainQuery) -> PredictOptions:
        """Return the engine's options, the same object for the same ones: the predictor keeps its plan."""
        key = query.top_r, query.beam_width
        options = self._options.get(key)
        if options is None:
            if len(self._options) >= _OPTIONS_KEPT:
                self._options.clear()
            options = self._options[key] = PredictOptions(query.top_r, query.beam_width)
        return options
