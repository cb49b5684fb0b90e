"""Structured logs: one event a line, JSON on standard error, without payloads and secrets.

Our own events do not go through logging: a record of the standard library costs ten times as much,
on every request. What libraries log goes through it and comes out in the same form.

Logging never raises. In a service it never blocks either: lines wait for a thread that writes them,
and those that find no room are dropped and counted. A descriptor that does not block would not do:
it is shared with the shell and other processes, whose writes would fail. To ask whether a pipe has
room would not: another process may fill it meanwhile. Neither would help where a disk hangs.
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

WAITING_MAX = 1024  # writes that wait for the thread; a write is of LINES_TOGETHER at most
LINES_TOGETHER = 16  # some 5 kB of requests
GATHER_SECONDS = 0.01  # lines come so much later
FLUSH_SECONDS = 2.0  # a process that ends waits for so long until its lines are written
MESSAGE_MAX = 8192  # characters of what a library logs

# not `sys.stderr`, which may be closed or replaced, and keeps what a full disk
# refuses: Python then exits with 120
_STDERR = 2

# JSON has these as they are: ends of lines, commands of terminals, changes of the direction of text
_UNSAFE = re.compile(r"[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")

_level = logging.INFO
# which a handler of signals may use, amid a use of it
_waiting: SimpleQueue[bytes | None] = SimpleQueue()
_writer: threading.Thread | None = None
_is_torn = False
_n_dropped = 0


class JsonHandler(logging.Handler):
    """Writes the records of libraries as events named `message`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        error = record.exc_info[1] if record.exc_info else None
        message = str(record.msg)
        with suppress(Exception):  # arguments that do not fit the text
            message = record.getMessage()
        _write(
            record.levelno,
            "message",
            error,
            {"logger": record.name, "message": message[:MESSAGE_MAX]},
        )


def configure(level: str) -> None:
    """Log events and records of at least `level`."""
    global _level
    _level = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(handlers=[JsonHandler()], level=_level, force=True)


def write_in_background() -> None:
    """Have a thread write what is logged, and what goes to
    `sys.stderr`: warnings, tracebacks, prints.
    """
    global _writer
    _writer = threading.Thread(target=_write_waiting, name="log", daemon=True)
    _writer.start()
    atexit.register(_end, _writer)
    sys.stderr = _WaitingText()


def lines_dropped() -> int:
    """Return how many lines this process could not write: too many
    waited, or the system refused them.
    """
    return _n_dropped


def log(level: int, event: str, *, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event with its fields, and the type and frames of `error`."""
    if level >= _level:
        _write(level, event, error, fields)


class Request(NamedTuple):
    """An answered request; `ended` in seconds since 1970, `said` what `encode_fields` returns."""

    ended: float
    request_id: str
    fields: bytes
    seconds: float
    level: int = logging.INFO


def log_requests(requests: Iterable[Request]) -> None:
    """Log answered requests, all at once: a write costs more than a
    line, and as much for one as for ten.
    """
    lines = [_request_line(request) for request in requests if request.level >= _level]
    for first in range(0, len(lines), LINES_TOGETHER):
        _put(b"".join(lines[first : first + LINES_TOGETHER]))


def encode_fields(**fields: object) -> bytes:
    """Return fields of a log line as JSON without braces: the same for requests that are alike."""
    return _escaped(orjson.dumps(fields))[1:-1]


def _write(level: int, event: str, error: BaseException | None, fields: dict[str, Any]) -> None:
    now = datetime.datetime.now(datetime.UTC)  # which orjson writes six times as fast as isoformat
    line = {"time": now, "level": logging.getLevelName(level).lower(), "event": event, **fields}
    if error is not None:  # not its message, which may hold a payload
        frames = traceback.extract_tb(error.__traceback__)
        line["exception"] = f"{type(error).__module__}.{type(error).__qualname__}"
        line["frames"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    try:
        _put(_escaped(orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE)))
    except TypeError:  # a file's name that is no UTF-8, a number of more than 64 bits
        _put(json.dumps({**line, "time": now.isoformat()}, default=str).encode() + b"\n")


def _escaped(line: bytes) -> bytes:
    """Return JSON with what is unsafe in a line escaped."""
    if line.isascii() and b"\x7f" not in line:
        return line
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", line.decode()).encode()


def _put(lines: bytes) -> None:
    """Write lines, or have them written; drop them where too many wait."""
    if _writer is None:
        _write_lines(lines)
    elif _waiting.qsize() < WAITING_MAX:
        _waiting.put(lines)
    else:
        _drop(lines)


def _drop(lines: bytes) -> None:
    global _n_dropped
    n_lines = lines.count(b"\n")
    _n_dropped += n_lines  # nothing is called meanwhile, so no other thread comes between


def _write_lines(lines: bytes) -> None:
    """Write lines, together as many as a pipe takes whole or not at
    all: those of processes do not mix.

    What the system refuses is dropped. A new line begins after one that was torn.
    """
    global _is_torn
    text = b"\n" + lines if _is_torn else lines
    begin = 0
    try:
        while begin < len(text):
            end = text.rfind(b"\n", begin, begin + select.PIPE_BUF) + 1 or len(text)
            # for a descriptor that another process made not to block
            select.select((), (_STDERR,), ())
            begin += os.write(_STDERR, text[begin:end])
        _is_torn = False
    except OSError:
        _is_torn = _is_torn or begin > 0
        _drop(text[begin:])


def _write_waiting() -> None:
    """Write what waits, until None comes.

    To pause first lets lines gather: a thread that is woken for each request takes the interpreter
    from those that answer, which costs a short request a tenth of its time.
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
    """Write what waits, for a while: its reader may never read."""
    _waiting.put(None)
    writer.join(FLUSH_SECONDS)


class _WaitingText(io.TextIOBase):
    def write(self, text: str) -> int:
        """Have the thread write a text, as it writes log lines."""
        _put(text.encode(errors="backslashreplace"))
        return len(text)


def _request_line(request: Request) -> bytes:
    """Return the line of an event named `request`, at a quarter of the cost of any other."""
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
