"""Answers that are not held in memory: server-sent events, and files, which go on where they were cut off."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO

from xylem.errors import BadAnswer
from xylem.events import EventParser
from xylem.retries import Attempts, Retries
from xylem.steps import (
    Close,
    Emit,
    Failure,
    Head,
    Next,
    Open,
    Reply,
    Request,
    Sleep,
    Steps,
    error_of,
    rest_of,
    wait_after,
)

_RANGE = re.compile(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18}|\*)")


def events_of(path: str, retries: Retries, seconds_max: float) -> Steps[None]:
    """Emit the ServerEvents of a path until the server ends them; after a failure go on after the last.

    Raises ProblemError, ConnectionFailed, BadAnswer.
    """
    parser, attempts = EventParser(), Attempts(retries)
    while True:
        headers = [("accept", "text/event-stream")]
        if parser.last_id:
            headers.append(("last-event-id", parser.last_id))
        request = Request("GET", path, headers=tuple(headers), repeatable=True)
        found = yield from _opened(request, (200,), seconds_max)
        if isinstance(found, Head):
            while (part := (yield Next())) and not isinstance(part, Failure):
                assert isinstance(part, bytes)
                for event in parser.feed(part):
                    attempts.restart()
                    yield Emit(event)
            yield Close()
            if not isinstance(part, Failure):
                return
            found = part
        wait = wait_after(found, request, attempts)
        if wait is None:
            raise error_of(found)
        yield Sleep(max(wait, min(parser.retry_ms or 0, 10_000) / 1000))
        parser.restart()


def _opened(request: Request, statuses: tuple[int, ...], seconds_max: float) -> Steps[Head | Reply | Failure]:
    """Send a request; return the head of an answer of these statuses, of another one all."""
    head = yield Open(request)
    if not isinstance(head, Head) or head.status in statuses:
        assert isinstance(head, Head | Failure)
        return head
    body = yield from rest_of(seconds_max)
    return body if isinstance(body, Failure) else Reply(head.status, head.headers, body)


def download(path: str, to: Path, retries: Retries, seconds_max: float, *, is_fixed: bool) -> Steps[int]:
    """Write what a path has to a file; return its bytes. Raises ProblemError, ConnectionFailed, BadAnswer.

    It is written to `to`.part, and renamed once it is whole. What breaks off goes on by Range, after a
    failure of the call too if what the path has never changes (`is_fixed`).
    """
    part = to.with_name(f"{to.name}.part")
    attempts, etag = Attempts(retries), ""
    with part.open("ab" if is_fixed else "wb") as out:
        while True:
            if not (is_fixed or etag):
                out.truncate(0)
            size = out.seek(0, os.SEEK_END)
            headers = [("range", f"bytes={size}-")] if size else []
            if size and etag:
                headers.append(("if-range", etag))
            request = Request("GET", path, headers=tuple(headers), repeatable=True)
            found = yield from _opened(request, (200, 206), seconds_max)
            if (
                isinstance(found, Reply)
                and found.status == 416
                and size
                and _bounds(found.headers)[1] == size
            ):
                break
            if isinstance(found, Head):
                etag = found.headers.get("etag", "")
                failure = yield from _write(found, size, out, attempts)
                if failure is None:
                    break
                found = failure
            wait = wait_after(found, request, attempts)
            if wait is None:
                raise error_of(found)
            yield Sleep(wait)
        out.flush()
        os.fsync(out.fileno())
        n_bytes = out.tell()
    part.replace(to)
    return n_bytes


def _write(head: Head, size: int, out: BinaryIO, attempts: Attempts) -> Steps[Failure | None]:
    """Append the body of the answer that is open; what it begins with must be byte `size`, or the first."""
    start, total = _bounds(head.headers)
    if head.status == 206 and start != size:
        raise BadAnswer(f"expected a part of the file from byte {size}, found one from {start}")
    if head.status == 200:
        out.truncate(0)
        out.seek(0)
        length = head.headers.get("content-length", "")
        total = int(length) if length.isascii() and length.isdigit() else None
    while (part := (yield Next())) and not isinstance(part, Failure):
        assert isinstance(part, bytes)
        out.write(part)
        attempts.restart()
    yield Close()
    if isinstance(part, Failure):
        return part
    if total is not None and out.tell() != total:
        return Failure(f"expected {total} bytes, found {out.tell()}")
    return None


def _bounds(headers: object) -> tuple[int | None, int | None]:
    """Return the first byte that Content-Range names, and the size of the whole; None: not known."""
    assert hasattr(headers, "get")
    found = _RANGE.fullmatch(headers.get("content-range", ""))
    first, total = found.groups() if found else (None, None)
    return (int(first) if first else None), (int(total) if total and total != "*" else None)
