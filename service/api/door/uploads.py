"""Bodies of any length, in pieces, from clients that may be slow but not still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from starlette.requests import Request

from service.api.door.problems import BodyTimeout
from service.base.settings import Limits

PIECE_BYTES = 1 << 20
"""Pieces are joined up to about this size: what is done with each costs a thread."""


async def pieces(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """Yield the body of a request.

    Raises BodyTimeout when `body_seconds_max` bring less than `batch_bytes_min`, and ClientDisconnect when it
    is cut off.
    """
    parts: list[bytes] = []
    n_bytes = window_bytes = 0
    seconds, least = limits.body_seconds_max, limits.batch_bytes_min
    window_ends = time.monotonic() + seconds
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + seconds):
                part = await anext(stream, None)
        except TimeoutError:
            raise _too_slow(least, seconds) from None
        if part is None:
            break
        parts.append(part)
        n_bytes, window_bytes = n_bytes + len(part), window_bytes + len(part)
        now = time.monotonic()
        if window_bytes >= least:
            window_bytes, window_ends = 0, now + seconds
        elif now > window_ends:
            raise _too_slow(least, seconds)
        if n_bytes >= PIECE_BYTES:
            yield b"".join(parts)
            parts, n_bytes = [], 0
            window_ends = time.monotonic() + seconds  # what is done with a piece is not the client's time
    if parts:
        yield b"".join(parts)


def _too_slow(least: int, seconds: float) -> BodyTimeout:
    return BodyTimeout(f"expected at least {least} bytes of the body in {seconds:g} seconds, found fewer")
