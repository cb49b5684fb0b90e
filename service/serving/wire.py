"""Answers -> bytes: JSON, and lines of NDJSON."""

from __future__ import annotations

import orjson

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


def dump(value: object) -> bytes:
    """Return the JSON of an answer; numbers may be numpy's."""
    return orjson.dumps(value, option=_OPTIONS)


def dump_line(value: object) -> bytes:
    """Return a value as a line of NDJSON."""
    return orjson.dumps(value, option=_OPTIONS | orjson.OPT_APPEND_NEWLINE)
