"""Batches are divided into parts, which are sent one after the other."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import orjson

from xylem.client.refusals import fault_of_stream, field_errors
from xylem.client.results import LineError, Prediction, read_as
from xylem.errors import BadAnswer, ConnectionFailed

# A request of a batch ends with the line that reaches one of these limits.
#
# A server accepts so much before its answer is read.
LINES_MAX = 1000
BYTES_MAX = 1 << 17

_LONG_LINES = 100
_LONG_BYTES = 1 << 14


class Part(NamedTuple):
    """The lines of one request of a batch.

    first    the number of lines of the batch before them
    is_long  whether many lines came at a time, and more may follow
    """

    body: bytes
    n_lines: int
    first: int
    is_long: bool

    def answers_in(self, answer: bytes) -> list[bytes]:
        """Return the answers to the lines, from the answer to the request.

        Raises ClientError for an answer that is cut off, or has too many lines.
        """
        *lines, remainder = answer.split(b"\n")
        fault = fault_of_stream(lines[-1]) if lines else None
        if fault is not None:
            raise fault
        if len(lines) > self.n_lines:
            raise BadAnswer(f"expected {self.n_lines} answers at most, found {len(lines)}")
        if remainder or len(lines) < self.n_lines:
            raise ConnectionFailed(
                f"expected {self.n_lines} answers, found the end after {len(lines)}"
            )
        return [self._renumbered(line) for line in lines] if self.first else lines

    def _renumbered(self, line: bytes) -> bytes:
        """Return an answer; the line number of an error counts from the beginning of the batch."""
        if b'"error"' not in line:
            return line
        try:
            fields = orjson.loads(line)
            fields["error"]["line"] += self.first
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return line
        return orjson.dumps(fields)


def divided(lines: Iterable[bytes], n_max: int, bytes_max: int) -> Iterator[list[bytes]]:
    """Yield lines in blocks.

    A block ends with the line by which it has `n_max` lines, or `bytes_max` bytes.
    """
    block: list[bytes] = []
    n_bytes = 0
    for line in lines:
        block.append(line)
        n_bytes += len(line)
        if len(block) == n_max or n_bytes >= bytes_max:
            yield block
            block = []
            n_bytes = 0
    if block:
        yield block


def parts_of(lines: Iterable[bytes], first: int) -> Iterator[Part]:
    """Yield the requests for these lines; `first` is the number of lines before them."""
    for block in divided(lines, LINES_MAX, BYTES_MAX):
        body = b"\n".join([*block, b""])
        yield Part(body, len(block), first, len(block) >= _LONG_LINES or len(body) >= _LONG_BYTES)
        first += len(block)


def item_of(line: bytes) -> Prediction | LineError:
    """Return the prediction or the error in a line of an answer. Raises BadAnswer."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise BadAnswer("expected lines of JSON, found another line") from None
    error = fields.get("error") if isinstance(fields, dict) else None
    if not isinstance(error, dict):
        return read_as(Prediction, line)
    number = error.get("line")
    return LineError(
        number if isinstance(number, int) else 0,
        str(error.get("code", "")),
        str(error.get("detail", "")),
        field_errors(error.get("errors")),
        fields.get("id"),
    )
