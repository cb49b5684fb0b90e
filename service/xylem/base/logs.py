"""Structured logs: one event a line, JSON on standard error, without payloads and secrets.

Events of the service do not go through logging: a record of the standard library costs ten times as
much, on every request. What libraries log goes through it and comes out in the same form.

Logging never raises. In a service it never blocks either: lines wait for a thread that writes them,
and lines that find no room in this queue are dropped and counted. Two other ways were rejected. If
the descriptor were set not to block, it would not block for the shell and other processes either,
which share it, and their writes would fail. Before a write a process can ask whether a pipe has
room, but another process may fill it meanwhile. Neither way helps where a disk hangs.
"""

import atexit
import datetime
import functools
import io
import json
import logging
import os
import re
import select
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import orjson

WAITING_MAX = 1024  # most writes that wait for the thread, each of at most LINES_TOGETHER lines
LINES_TOGETHER = 16  # about 5 kB of requests
GATHER_SECONDS = 0.01  # the delay of a line, so that several are written together
FLUSH_SECONDS = 2.0  # the longest wait for lines to be written when a process ends
MESSAGE_MAX = 8192  # most characters of a message of a library

# Not `sys.stderr`: that may be closed or replaced, and it keeps text that a full disk refuses, so
# that Python exits with 120.
_STDERR = 2

# JSON does not escape these: line ends, terminal commands, changes of the text direction
_UNSAFE = re.compile(r"[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")

_level = logging.INFO
# SimpleQueue, because a signal handler may use it while the queue is in use
_waiting: SimpleQueue[bytes | None] = SimpleQueue()
_writer: threading.Thread | None = None
_is_torn = False  # whether the last line was written only in part
_n_dropped = 0


class JsonHandler(logging.Handler):
    """Writes the log records of libraries, as events named `message`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        message = str(record.msg)
        with suppress(Exception):  # arguments that do not fit the format string
            message = record.getMessage()
        _write(
            record.levelno,
            "message",
            record.exc_info[1] if record.exc_info else None,
            {"logger": record.name, "message": message[:MESSAGE_MAX]},
        )


def configure(level: str) -> None:
    """Log only events and records of at least the level `level`."""
    global _level
    _level = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(handlers=[JsonHandler()], level=_level, force=True)


def write_in_background() -> None:
    """Let a thread write the log, and what goes to `sys.stderr`: warnings, tracebacks, prints."""
    global _writer
    _writer = threading.Thread(target=_write_waiting, name="log", daemon=True)
    _writer.start()
    atexit.register(_end, _writer)
    sys.stderr = _WaitingText()


def lines_dropped() -> int:
    """Return the number of lines that this process could not write.

    Too many lines waited, or the system refused them.
    """
    return _n_dropped


def log(level: int, event: str, *, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event with its fields, and the type and stack frames of `error`."""
    if level >= _level:
        _write(level, event, error, fields)


class Request(NamedTuple):
    """An answered request.

    ended    when it was answered, in seconds since 1970
    fields   the fields of its log line, as `encode_fields` returns them
    seconds  the time that the answer took
    """

    ended: float
    request_id: str
    fields: bytes
    seconds: float
    level: int = logging.INFO


def log_requests(requests: Iterable[Request]) -> None:
    """Log answered requests together.

    A write costs more than making a line, and as much for one line as for ten.
    """
    lines = [_request_line(request) for request in requests if request.level >= _level]
    for first in range(0, len(lines), LINES_TOGETHER):
        _put(b"".join(lines[first : first + LINES_TOGETHER]))


def encode_fields(**fields: object) -> bytes:
    """Return fields of a log line as JSON without the braces; similar requests can share it."""
    return _escaped(orjson.dumps(fields))[1:-1]


def _write(level: int, event: str, error: BaseException | None, fields: dict[str, Any]) -> None:
    now = datetime.datetime.now(datetime.UTC)  # orjson writes it six times as fast as isoformat
    line = {"time": now, "level": logging.getLevelName(level).lower(), "event": event, **fields}
    if error is not None:  # without its message, which may contain a payload
        frames = traceback.extract_tb(error.__traceback__)
        line["exception"] = f"{type(error).__module__}.{type(error).__qualname__}"
        line["frames"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    try:
        _put(_escaped(orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE)))
    except TypeError:  # a file name that is not UTF-8, or an integer of more than 64 bits
        _put(json.dumps({**line, "time": now.isoformat()}, default=str).encode() + b"\n")


def _escaped(line: bytes) -> bytes:
    """Return JSON in which the characters that are unsafe in a line are escaped."""
    return (
        line
        if line.isascii() and b"\x7f" not in line
        else _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", line.decode()).encode()
    )


def _put(lines: bytes) -> None:
    """Write lines, or queue them for the thread; drop them if too many wait."""
    if _writer is None:
        _write_lines(lines)
    elif _waiting.qsize() < WAITING_MAX:
        _waiting.put(lines)
    else:
        _drop(lines)


def _drop(lines: bytes) -> None:
    global _n_dropped
    n_lines = lines.count(b"\n")
    _n_dropped += n_lines  # no call in this statement, so no other thread runs between


def _write_lines(lines: bytes) -> None:
    """Write lines in blocks of at most PIPE_BUF bytes, which a pipe takes whole or not at all.

    So lines of several processes do not mix. Lines that the system refuses are dropped. If the last
    line was written only in part, a line end is written first.
    """
    global _is_torn
    text = b"\n" + lines if _is_torn else lines
    begin = 0
    try:
        while begin < len(text):
            end = text.rfind(b"\n", begin, begin + select.PIPE_BUF) + 1 or len(text)
            # wait, in case another process set the descriptor not to block
            select.select((), (_STDERR,), ())
            begin += os.write(_STDERR, text[begin:end])
        _is_torn = False
    except OSError:
        _is_torn = _is_torn or begin > 0
        _drop(text[begin:])


def _write_waiting() -> None:
    """Write the lines that wait, until None comes.

    The pause at the start lets lines gather: a thread that is woken for each request takes the
    interpreter from those that answer, which costs a short request a tenth of its time.
    """
    is_last = False
    while not is_last:
        gathered = [_waiting.get()]
        time.sleep(GATHER_SECONDS)
        with suppress(Empty):
            while gathered[-1] is not None and len(gathered) < WAITING_MAX:
                gathered.append(_waiting.get_nowait())
        is_last = gathered[-1] is None
        _write_lines(b"".join(filter(None, gathered)))


def _end(writer: threading.Thread) -> None:
    """Wait until the queue is written, but at most FLUSH_SECONDS: its reader may never read it."""
    _waiting.put(None)
    writer.join(FLUSH_SECONDS)


class _WaitingText(io.TextIOBase):
    def write(self, text: str) -> int:
        """Queue a text for the thread, as a log line."""
        _put(text.encode(errors="backslashreplace"))
        return len(text)


def _request_line(request: Request) -> bytes:
    """Return the line of an event named `request`; this takes a quarter of the time of `_write`."""
    second, microsecond = divmod(int(1e6 * request.ended), 1_000_000)
    return (
        b'{"time":"%b.%06d+00:00","level":"%b","event":"request","request_id":"%b",%b,"ms":%.3f}\n'
        % (
            _second(second),
            microsecond,
            b"info" if request.level == logging.INFO else b"debug",
            request.request_id.encode(),
            request.fields,
            1000 * request.seconds,
        )
    )


@functools.lru_cache(maxsize=2)
def _second(number: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(number)).encode()
