"""Server-sent events: the lines of a stream -> events. A parser without input of its own."""

import codecs
from typing import Any, NamedTuple

import orjson

from xylem.errors import BadAnswer

EVENT_BYTES_MAX = 1 << 20
"""Of one event, and of one line."""


class ServerEvent(NamedTuple):
    """An event: its name (`message` without one), its data, read if that is JSON, else a text, and its id."""

    name: str
    data: Any
    id: str | None = None


class EventParser:
    """Makes events of the bytes of a stream, in whatever pieces they come.

    Source: the HTML standard, "Server-sent events", "Parsing an event stream". Ends of lines are LF, CR or
    CRLF; an event that the end of the stream cuts off is dropped.
    """

    def __init__(self) -> None:
        self.last_id: str | None = None
        """Of the last event that is whole: what Last-Event-ID says, to go on after it."""
        self.retry_ms: int | None = None
        """How long the server asks to wait before the stream is opened again."""
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._rest = ""
        self._id: str | None = None
        self._name = ""
        self._data: list[str] = []
        self._n_data = 0

    def feed(self, part: bytes) -> list[ServerEvent]:
        """Take bytes; return the events that they end. Raises BadAnswer."""
        self._rest += self._decoder.decode(part)
        held = self._rest.endswith("\r")  # the LF of a CRLF may follow
        text = self._rest[:-1] if held else self._rest
        *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = rest + "\r" if held else rest
        if len(self._rest) > EVENT_BYTES_MAX:
            raise BadAnswer(f"expected events of at most {EVENT_BYTES_MAX} bytes, found a longer line")
        events = [self._take(line) for line in lines]
        return [event for event in events if event is not None]

    def restart(self) -> None:
        """Forget a part of an event: another connection follows."""
        self._decoder.reset()
        self._rest, self._name, self._id = "", "", self.last_id
        self._data.clear()
        self._n_data = 0

    def _take(self, line: str) -> ServerEvent | None:
        if not line:
            return self._end()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._n_data += len(value) + 1
            if self._n_data > EVENT_BYTES_MAX:
                raise BadAnswer(f"expected events of at most {EVENT_BYTES_MAX} bytes, found a longer one")
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value[:9])
        return None

    def _end(self) -> ServerEvent | None:
        name, lines = self._name or "message", "\n".join(self._data)
        is_event = bool(self._data)
        self.last_id = self._id
        self._name, self._n_data = "", 0
        self._data.clear()
        if not is_event:
            return None
        try:
            data: Any = orjson.loads(lines)
        except orjson.JSONDecodeError:
            data = lines
        return ServerEvent(name, data, self.last_id)
