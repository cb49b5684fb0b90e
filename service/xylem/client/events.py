"""Server-sent events: the lines of a stream -> events. A parser without input of its own."""

from typing import Any, NamedTuple

import orjson

from xylem.errors import BadAnswer

EVENT_BYTES_MAX = 1 << 20
"""Of one event."""


class ServerEvent(NamedTuple):
    """An event: its name (`message` without one), its data, read if
    that is JSON, else a text, and its id.
    """

    name: str
    data: Any
    id: str | None = None


class EventParser:
    """Makes events of the bytes of a stream, in whatever pieces they come.

    Source: the HTML standard, "Server-sent events", "Parsing an event stream", for lines that end
    in LF, as the service's do. An event that the end of the stream cuts off is dropped.

    last_id  of the last event that is whole: what Last-Event-ID says, to go on after it
    """

    def __init__(self) -> None:
        self.last_id: str | None = None
        self._rest = b""

    def feed(self, part: bytes) -> list[ServerEvent]:
        """Take bytes; return the events that they end. Raises BadAnswer."""
        *blocks, self._rest = (self._rest + part).split(b"\n\n")
        if len(self._rest) > EVENT_BYTES_MAX:
            raise BadAnswer(
                f"expected events of at most {EVENT_BYTES_MAX} bytes, found a longer one"
            )
        events = [self._read(block.decode("utf-8", "replace")) for block in blocks]
        return [event for event in events if event is not None]

    def restart(self) -> None:
        """Forget a part of an event: another connection follows."""
        self._rest = b""

    def _read(self, block: str) -> ServerEvent | None:
        """Return the event of a block of lines; None where they have no data."""
        name = "message"
        lines = []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                lines.append(value)
            elif field == "event":
                name = value
            elif field == "id":
                self.last_id = value
        if not lines:
            return None
        text = "\n".join(lines)
        try:
            data: Any = orjson.loads(text)
        except orjson.JSONDecodeError:
            data = text
        return ServerEvent(name, data, self.last_id)
