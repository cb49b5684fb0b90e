"""Searches in a thread that end when nobody waits for them any more, or when their deadline comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from service.api.door.work import WorkPool

T = TypeVar("T")


async def run_until_deadline(
    work: WorkPool, began: float, deadline_ms: int | None, function: Callable[..., T], *arguments: object
) -> T:
    """Return what the call returns in a thread; its last argument is the flag that ends its search.

    began        when the deadline begins to count, by the event loop's time
    deadline_ms  milliseconds; None: there is no deadline

    Raises what the call and `WorkPool.run` raise.
    """
    stop = np.zeros(1, np.uint8)
    strike = None
    if deadline_ms is not None:
        strike = asyncio.get_running_loop().call_at(began + deadline_ms / 1000, stop.fill, 1)
    try:
        return await work.run(function, *arguments, stop)
    finally:
        stop.fill(1)
        if strike is not None:
            strike.cancel()
