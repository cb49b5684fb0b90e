"""Structured logs: one event a line, JSON on standard error, without payloads and secrets."""

from __future__ import annotations

import datetime
import logging
import sys
import traceback
from typing import Any

import orjson

_LOGGER = logging.getLogger("xylem")


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: `time`, `level`, `event` and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line: dict[str, Any] = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
        }
        fields = getattr(record, "fields", None)
        if fields is None:
            line |= {"event": "message", "logger": record.name, "message": record.getMessage()}
        else:
            line |= {"event": record.getMessage(), **fields}
        if record.exc_info and record.exc_info[1] is not None:
            line |= describe_exception(record.exc_info[1])
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Return the type of an error and where it came from; not its message, which may hold a payload."""
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "frames": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }


def configure(level: str) -> None:
    """Send every logger's records of at least `level` to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


def log(level: int, event: str, *, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event with its fields, and the type and frames of `error`."""
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, event, extra={"fields": fields}, exc_info=error)
