"""A batch: instances in, predictions out, in their order; over a new connection where one breaks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any, TypeAlias

import orjson

from xylem.calls import Instance, dumped, instance_of
from xylem.duplex import Broken, Duplex
from xylem.errors import BadAnswer, ClientError, ProblemError, field_errors
from xylem.results import LineError, Prediction, read_as
from xylem.retries import RETRIED, Attempts, Retries, retry_after
from xylem.steps import Reply, error_of
from xylem.target import Target
from xylem.window import Window

PathOf: TypeAlias = Callable[[int | None], str]
"""The path of a batch: that of a version once it is known, so that all answers are of one."""


def line_of(instance: Instance) -> bytes:
    """Return an instance as a line of a batch, without its end. Raises TypeError."""
    # a copy: what orjson returns keeps the kilobytes that it was written into, and thousands of lines wait
    return memoryview(dumped(instance_of(instance))).tobytes()


def item_of(line: bytes) -> Prediction | LineError:
    """Return what a line of an answer says. Raises BadAnswer."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise BadAnswer("expected lines of JSON, found another line") from None
    error = fields.get("error") if isinstance(fields, dict) else None
    if not isinstance(error, dict):
        return read_as(Prediction, line)
    found: dict[str, Any] = error
    number = found.get("line")
    faults = field_errors(found.get("errors"))
    return LineError(
        number if isinstance(number, int) else 0,
        str(found.get("code", "")),
        str(found.get("detail", "")),
        faults,
        fields.get("id"),
    )


async def batch(
    target: Target, path_of: PathOf, lines: AsyncIterable[bytes], retries: Retries, seconds_max: float
) -> AsyncGenerator[list[bytes], None]:
    """Yield the answers to lines, in their order, in blocks as they come.

    Lines without an answer are kept, a bounded number, and sent again when the connection breaks or the
    server says: not now. Raises ProblemError, ConnectionFailed, BadAnswer, and, after the answers to the
    lines before, what `lines` raises.
    """
    window, attempts, version = Window(), Attempts(retries), None
    filling = asyncio.create_task(window.fill(lines))
    try:
        while await window.has_more():
            duplex = Duplex(target, path_of(version), window, seconds_max)
            first, error = window.n_answered, None
            answers = duplex.answers()
            try:
                async with contextlib.aclosing(answers):
                    async for block in answers:
                        attempts.restart()
                        yield block if not first else [_renumbered(line, first) for line in block]
            except Broken as broken:
                error, wait = _after(broken, attempts)
            told = duplex.headers.get("xylem-version", "")
            version = int(told) if version is None and told.isdigit() else version
            if error is not None:
                if wait is None:
                    raise error
                window.send_again()
                await asyncio.sleep(wait)
        if window.fault is not None:
            raise window.fault
    finally:
        filling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await filling


def _after(broken: Broken, attempts: Attempts) -> tuple[ClientError, float | None]:
    """Return the error that ended an exchange, and how long to wait before the next; None: there is none."""
    found = broken.found
    if isinstance(found, ProblemError):
        return found, attempts.next_wait()
    if isinstance(found, Reply):
        may_help = found.status in RETRIED
        return error_of(found), attempts.next_wait(retry_after(found.headers)) if may_help else None
    return error_of(found), attempts.next_wait()


def _renumbered(line: bytes, first: int) -> bytes:
    """Return an answer; the line that an error names is counted from the beginning of the input."""
    if b'"error"' not in line:
        return line
    try:
        fields = orjson.loads(line)
        fields["error"]["line"] += first
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return line
    return orjson.dumps(fields)


async def lines_of(instances: Iterable[Instance] | AsyncIterable[Instance]) -> AsyncIterator[bytes]:
    """Yield the lines of instances."""
    if isinstance(instances, AsyncIterable):
        async for instance in instances:
            yield line_of(instance)
    else:
        for instance in instances:
            yield line_of(instance)
