"""Blocks of lines and their answers; values as JSON and as lines of NDJSON."""

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from xylem.base import BadInput, LimitExceeded, Limits
from xylem.serving.parse import parse_json


class LineBlock(NamedTuple):
    """Consecutive lines of a body.

    first   the number of its first line, counted from 1
    lines   the lines without their ends; None for one longer than the limit, whose bytes are
            dropped
    """

    first: int
    lines: list[bytes | None]


class Answered(NamedTuple):
    """The answer to a block of lines.

    lines   an answer line for each line of the block
    n_rows  how many lines were valid
    n_bad   how many were not
    """

    lines: bytes
    n_rows: int
    n_bad: int


def too_long(limits: Limits) -> LimitExceeded:
    """Return the error of a line that is longer than the limit."""
    return LimitExceeded(
        f"expected a line of at most {limits.line_bytes_max} bytes (limit line_bytes_max), "
        "found a longer one"
    )


def value_of(
    line: bytes | None, limits: Limits, parse: Callable[[bytes, Limits], Any] = parse_json
) -> Any | BadInput:
    """Return what `parse` makes of a line, or the BadInput that it raises."""
    if line is None:
        return too_long(limits)
    try:
        return parse(line, limits)
    except BadInput as error:
        return error.without_frames()


_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


def dump(value: object) -> bytes:
    """Return a value as JSON; it may have numbers and arrays of numpy."""
    return orjson.dumps(value, option=_OPTIONS)


def dump_line(value: object) -> bytes:
    """Return a value as a line of NDJSON."""
    return orjson.dumps(value, option=_OPTIONS | orjson.OPT_APPEND_NEWLINE)
