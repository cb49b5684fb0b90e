"""`xylem predict --url`: the same lines, answered by a server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli.options import Reference
from service.errors import BadInput, BadParameter, Unavailable

if TYPE_CHECKING:
    from service.serving.lines import Answered, LineBlock
    from service.settings import Limits

KEY_VARIABLE = "XYLEM_KEY"
_KEY_BYTES_MAX = 4096
_ERROR = b'"error":{'
"""What the answer to a bad line has, and no other: a quote within a text has a backslash."""


def read_key(file: Path | None) -> str | None:
    """Return the key in a file, else that of the environment, else None. Raises BadParameter."""
    if file is None:
        return os.environ.get(KEY_VARIABLE) or None
    try:
        with file.open("rb") as opened:
            content = opened.read(_KEY_BYTES_MAX + 1)
    except OSError as error:
        raise BadParameter(f"--key-file: expected to read {file}, found: {error.strerror}") from None
    lines = content.split()
    if len(lines) != 1 or len(content) > _KEY_BYTES_MAX or not content.isascii():
        raise BadParameter(f"--key-file: expected a key and nothing else in {file}, found another content")
    return lines[0].decode()


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
    from xylem.client import Client
    from xylem.errors import ClientError, ProblemError

    long_lines: list[int] = []
    number = int(model.version) if model.version.isdecimal() else None
    alias = model.version if number is None else None
    first = 1
    try:
        with Client(url, key) as client:
            asked = client.batch_blocks(model.name, _lines(todo, long_lines), number, alias, **options)
            for block in asked:
                lines = _with_long(block, first, long_lines, limits)
                n_bad = sum(_ERROR in line for line in lines)
                first += len(lines)
                yield Answered(b"".join(line + b"\n" for line in lines), len(lines) - n_bad, n_bad)
    except ValueError as error:
        raise BadParameter(f"--{error}") from None
    except ProblemError as error:
        kind = BadInput if 400 <= error.status < 500 else Unavailable
        raise kind(f"{url}: {error}") from None
    except ClientError as error:
        raise Unavailable(f"{url}: {error}") from None


def _lines(todo: Iterator[LineBlock], long_lines: list[int]) -> Iterable[bytes]:
    """Yield the lines of blocks; an empty one for each that is too long, whose number is kept."""
    for block in todo:
        for number, line in enumerate(block.lines, block.first):
            if line is None:
                long_lines.append(number)
            yield line or b""


def _with_long(lines: list[bytes], first: int, long_lines: list[int], limits: Limits) -> list[bytes]:
    """Return answers, those to lines that were too long to send as the server gives them."""
    from service.serving.lines import too_long
    from service.serving.problems import describe_error
    from service.serving.wire import dump

    while long_lines and long_lines[0] < first + len(lines):
        number = long_lines.pop(0)
        lines[number - first] = dump({"error": {**describe_error(too_long(limits)), "line": number}})
    return lines
