"""Server-sent events: a parser of the bytes of a stream, without input of its own."""

from typing import Any, NamedTuple

import orjson

from xylem.errors import BadAnswer

EVENT_BYTES_MAX = 1 << 20  # the most bytes of an event


class ServerEvent(NamedTuple):
    """A server-sent event.

    name  `message` if the event has no name
    data  parsed if it is JSON, else a text
    id    None if no event had one
    """

    name: str
    data: Any
    id: str | None = None


class EventParser:
    """Parses the bytes of a stream, in pieces of any size, into events.

    Source: the HTML standard, "Server-sent events", "Parsing an event stream", for lines that end
    in LF, as the service's do. An event that is cut off by the end of the stream is dropped.

    last_id  the last id so far: the value of Last-Event-ID to go on after it
    """

    def __init__(self) -> None:
        self.last_id: str | None = None
        self._incomplete = b""

    def feed(self, part: bytes) -> list[ServerEvent]:
        """Take bytes; return the events that are complete now. Raises BadAnswer."""
        *blocks, self._incomplete = (self._incomplete + part).split(b"\n\n")
        if len(self._incomplete) > EVENT_BYTES_MAX:
            raise BadAnswer(
                f"expected events of at most {EVENT_BYTES_MAX} bytes, found a longer one"
            )
        return list(
            filter(None, (self._read(block.decode("utf-8", "replace")) for block in blocks))
        )

    def restart(self) -> None:
        """Forget an incomplete event, because a new connection follows."""
        self._incomplete = b""

    def _read(self, block: str) -> ServerEvent | None:
        """Return the event of a block of lines; None if the block has no data."""
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
