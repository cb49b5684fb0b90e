"""Replies of routes whose requests are in a dialect: at once, or from a thread, until the deadline comes."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from fastapi import Request, Response

from service.api.door.admission import read_body
from service.api.door.answering import headers_for
from service.api.door.heads import reference_of, said_of
from service.api.door.responses import RawResponse
from service.api.door.stage_notes import notes_of
from service.api.door.work import WorkPool
from service.api.routes.services import Services
from service.api.routes.versions import choose_served
from service.serving.dialect import Body, Dialect, Longer, Reply
from service.serving.parse import LONG_BYTES
from service.stages import READ


async def reply_in(
    dialect: Dialect[Any], request: Request, services: Services, model: str | None = None, ref: str = ""
) -> Response:
    """Return the answer to a request in a dialect.

    model, ref   the model, and the version's number or alias; None: as the path says
    """
    body = Body(await read_body(request, services.limits, dialect.media), 0, said_of(dialect, request.scope))
    began = asyncio.get_running_loop().time()
    if model is None:
        model, ref = reference_of(request.path_params)
    chosen = await choose_served(request, services.live, model, ref)
    notes, query = notes_of(request.scope), None
    if len(body.message) > LONG_BYTES:
        query = await services.work.run(dialect.read, body, services.limits)
        notes.end(READ)
    reply = services.answering.answer(dialect, chosen, body, notes, query)
    if isinstance(reply, Longer):
        notes.begin()
        reply = await _in_thread(services.work, began, reply)
        services.answering.finish(dialect, chosen, body, reply)
    return RawResponse(b"".join(reply.parts), headers_for(reply, chosen.served))


async def _in_thread(work: WorkPool, began: float, longer: Longer) -> Reply:
    """Return the answer from a thread, whose search ends when nobody waits for it, or at its deadline.

    began   when the deadline begins to count, by the event loop's time
    """
    stop = np.zeros(1, np.uint8)
    strike = None
    if longer.deadline_ms is not None:
        strike = asyncio.get_running_loop().call_at(began + longer.deadline_ms / 1000, stop.fill, 1)
    try:
        return await work.run(longer.answer, stop)
    finally:
        stop.fill(1)
        if strike is not None:
            strike.cancel()
