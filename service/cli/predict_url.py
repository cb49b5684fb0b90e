"""`xylem predict --url`: the same lines, answered by a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from service.cli.options import Reference
from service.cli.server_options import connect_server

if TYPE_CHECKING:
    from service.serving.lines import Answered, LineBlock
    from service.settings import Limits

_ERROR = b'"error":{'
"""What the answer to a bad line has, and no other: a quote within a text has a backslash."""


def answer_by_server(
    url: str,
    key: str | None,
    model: Reference,
    options: dict[str, Any],
    todo: Iterator[LineBlock],
    limits: Limits,
) -> Iterator[Answered]:
    """Yield the answers of a server to blocks of lines, in their order, as they come.

    Raises BadInput where the server refuses, BadParameter, Unavailable.
    """
    from service.serving.lines import Answered

    long_lines: list[int] = []
    number = int(model.version) if model.version.isdecimal() else None
    alias = model.version if number is None else None
    first = 1
    with connect_server(url, key) as client:
        asked = client.batch_blocks(model.name, _lines(todo, long_lines), number, alias, **options)
        for block in asked:
            lines = _with_long(block, first, long_lines, limits)
            n_bad = sum(_ERROR in line for line in lines)
            first += len(lines)
            yield Answered(b"".join(line + b"\n" for line in lines), len(lines) - n_bad, n_bad)


def _lines(todo: Iterator[LineBlock], long_lines: list[int]) -> Iterator[list[bytes]]:
    """Yield the lines of blocks; an empty one for each that is too long, whose number is kept."""
    for block in todo:
        long_lines += [number for number, line in enumerate(block.lines, block.first) if line is None]
        yield [line or b"" for line in block.lines]


def _with_long(lines: list[bytes], first: int, long_lines: list[int], limits: Limits) -> list[bytes]:
    """Return answers, those to lines that were too long to send as the server gives them."""
    from service.serving.lines import too_long
    from service.serving.problems import describe_error
    from service.serving.wire import dump

    while long_lines and long_lines[0] < first + len(lines):
        number = long_lines.pop(0)
        lines[number - first] = dump({"error": {**describe_error(too_long(limits)), "line": number}})
    return lines
