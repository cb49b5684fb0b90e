"""POST /v1/models/{model}/predict, and the same for a version or an alias."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from service.api.admission import read_body
from service.api.answers import explain_labels, write_answer, write_predictions
from service.api.metrics import Metrics
from service.api.parse import TUNED, Instance, Options, PredictQuery, RawInstance, TextInstance, parse_predict
from service.api.routing import RawRoute
from service.api.rows import to_options, to_rows, unknown_rows
from service.api.served import LiveServed, Served, find_served, stale_headers
from service.api.wire import JsonResponse
from service.api.work import WorkPool
from service.inference.plain import PlainForms, PlainLimits
from service.settings import Limits

SHORT_BEAMS = 64
"""Rows times beam width up to which a prediction runs on the event loop: a fraction of a millisecond."""

SHORT_CHILDREN = 8192
"""Children of nodes, scored on a level of all trees, up to which it does: a flat model has many at once."""

SHORT_ITEMS = 8192
"""Characters, features and names of labels up to which it does."""

MASKED_AN_ITEM = 64
"""Labels that are marked as allowed or not in the time that an item takes."""


class PredictRoutes(NamedTuple):
    """The routes, and what they work with."""

    live: LiveServed
    work: WorkPool
    metrics: Metrics
    limits: Limits

    def routes(self) -> list[RawRoute]:
        """Return the routes."""
        return [
            RawRoute("/v1/models/{model}/predict", self.predict, methods=["POST"]),
            RawRoute("/v1/models/{model}/versions/{version}/predict", self.predict, methods=["POST"]),
            RawRoute("/v1/models/{model}/aliases/{alias}/predict", self.predict, methods=["POST"]),
        ]

    async def predict(self, request: Request) -> Response:
        """Answer a predict request."""
        body = await read_body(request, self.limits)
        query = parse_predict(body, self.limits)
        began = asyncio.get_running_loop().time()
        served = await find_served(request, self.live)
        answer = answer_shortly(query, served)
        if answer is None:
            answer = await self._answer_in_thread(query, served, began)
        self.metrics.record_rows(served.name, len(query.instances))
        response = JsonResponse(answer)
        if query.options.threshold == TUNED:
            response.headers.update(stale_headers(served))
        return response

    async def _answer_in_thread(self, query: PredictQuery, served: Served, began: float) -> bytes:
        """Answer a request that is long or has a deadline, which counts from `began`, the event loop's time.

        When nobody waits for the answer any more, its search is stopped, and so its thread is free.
        """
        stop = np.zeros(1, np.uint8)
        deadline_ms = query.options.deadline_ms
        strike = None
        if deadline_ms is not None:
            strike = asyncio.get_running_loop().call_at(began + deadline_ms / 1000, stop.fill, 1)
        try:
            return await self.work.run(answer_query, query, served, stop)
        finally:
            stop.fill(1)
            if strike is not None:
                strike.cancel()


def answer_query(query: PredictQuery, served: Served, stop: NDArray[np.uint8] | None = None) -> bytes:
    """Return a request's answer as JSON, of the version that serves it; once `stop` is set, what is sure."""
    rows = to_rows(query.instances, served.featurizer)
    epoch = served.thresholds.epoch
    options = to_options(query.options, served, stop)
    found = served.predictor.predict(rows, options)
    explanations = explain_labels(found, rows, served) if query.options.explain else None
    unknown = unknown_rows(query.instances, rows)
    return _write(write_predictions(found, options, epoch, served, explanations, unknown), epoch, served)


def answer_shortly(query: PredictQuery, served: Served) -> bytes | None:
    """Return the same if it takes so short that a thread would only delay it, else None."""
    if not is_short(query, served):
        return None
    rows = to_rows(query.instances, served.featurizer)
    epoch = served.thresholds.epoch
    options = to_options(query.options, served)
    found = served.predictor.predict_shortly(rows, options)
    if found is None:
        return None
    unknown = unknown_rows(query.instances, rows)
    return _write(write_predictions(found, options, epoch, served, None, unknown), epoch, served)


def _write(predictions: Sequence[bytes], epoch: int, served: Served) -> bytes:
    return write_answer(served, epoch, b",".join(predictions))


def is_short(query: PredictQuery, served: Served) -> bool:
    """Return whether a request is read fast, and searched fast by a beam."""
    options = query.options
    if options.explain or options.deadline_ms is not None or options.label_weights is not None:
        return False
    if not is_small(len(query.instances), options.beam_width, served):
        return False
    n_items = sum(map(_size, query.instances))
    if options.allow_labels is not None or options.deny_labels is not None:
        n_items += len(options.allow_labels or ()) + len(options.deny_labels or ())
        n_items += served.labels.n_names // MASKED_AN_ITEM
    return n_items <= SHORT_ITEMS


def is_small(n_rows: int, beam_width: int, served: Served) -> bool:
    """Return whether so many rows and so wide a beam are searched that fast."""
    if n_rows * beam_width > SHORT_BEAMS:
        return False
    return n_rows * served.predictor.children_scored(beam_width) <= SHORT_CHILDREN


def _size(instance: Instance) -> int:
    if isinstance(instance, TextInstance):
        return len(instance.text)
    return len(instance.indices) if isinstance(instance, RawInstance) else len(instance.features)


def plain_forms(limits: Limits) -> PlainForms:
    """Return what requests are plain: those within the limits, and so short that no thread is needed."""
    labels_max = min(limits.answer_labels_max, SHORT_ITEMS)
    most = PlainLimits(limits.top_r_max, limits.beam_width_max, labels_max, SHORT_BEAMS, SHORT_CHILDREN)
    usual = Options()
    rows_max, values_max = min(SHORT_BEAMS, limits.instances_max), min(SHORT_ITEMS, limits.features_max)
    return PlainForms(most, rows_max, values_max, usual.top_r, usual.beam_width)
