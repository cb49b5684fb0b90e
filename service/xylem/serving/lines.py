"""Answers as JSON and lines of NDJSON; blocks of lines, and of the lines that answer them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from xylem.base import BadInput, LimitExceeded, Limits
from xylem.serving.parse import parse_json


class LineBlock(NamedTuple):
    """Consecutive lines of a body.

    first   the number of the first one, from 1
    lines   without their ends; None: one longer than the limit, its bytes not kept
    """

    first: int
    lines: list[bytes | None]


class Answered(NamedTuple):
    """The answers of a block: a line for each of its lines, and
    how many were used and how many bad.
    """

    lines: bytes
    n_rows: int
    n_bad: int


def too_long(limits: Limits) -> LimitExceeded:
    """Return what is wrong with a line whose bytes were not kept."""
    bytes_max = limits.line_bytes_max
    return LimitExceeded(
        f"expected a line of at most {bytes_max} bytes (limit line_bytes_max), found a longer"
    )


def value_of(
    line: bytes | None, limits: Limits, parse: Callable[[bytes, Limits], Any] = parse_json
) -> Any | BadInput:
    """Return what `parse` makes of a line, its JSON value if left
    out; a BadInput, not raised, if bad.
    """
    if line is None:
        return too_long(limits)
    try:
        return parse(line, limits)
    except BadInput as error:
        return error.without_frames()


_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


def dump(value: object) -> bytes:
    """Return the JSON of an answer; numbers may be numpy's."""
    return orjson.dumps(value, option=_OPTIONS)


def dump_line(value: object) -> bytes:
    """Return a value as a line of NDJSON."""
    return orjson.dumps(value, option=_OPTIONS | orjson.OPT_APPEND_NEWLINE)
