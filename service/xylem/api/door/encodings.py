"""Content codings: bodies of requests are unpacked as they come, and long answers are packed.

gzip (RFC 1952) is the only coding, for bodies and for answers. zlib unpacks and packs; the answers
of routes are packed by Starlette.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipResponder
from starlette.types import ASGIApp, Message, Receive

from xylem.api.door.problems import BodyTooLarge, BrokenEncoding, UnsupportedEncoding

# Answers of at least this many bytes are packed.
PACKED_FROM = 1000

_LEVEL = 1  # of 1 to 9, the fastest: 9 takes five times as long for 10% fewer bytes of JSON
_GZIP = 16 + zlib.MAX_WBITS

# A body is unpacked in pieces of at most this size; between two, other requests are answered.
PIECE_BYTES = 1 << 16

_THREAD_BYTES = 1 << 16  # a longer piece of an answer is packed in a thread


def codings_of(headers: Iterable[tuple[bytes, bytes]]) -> tuple[bool, bool]:
    """Return whether a request's body is packed, and whether its answer may be.

    headers  the headers of the request

    Raises UnsupportedEncoding for another content coding than gzip.
    """
    is_packed = accepts_gzip = False
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            if is_packed or value.strip().lower() not in (b"gzip", b"x-gzip"):
                codings = "several" if is_packed else ascii(value.decode("latin-1"))[:100]
                raise UnsupportedEncoding(
                    f"Content-Encoding: expected gzip or none, found {codings}"
                )
            is_packed = True
        elif name == b"accept-encoding":
            accepts_gzip = accepts_gzip or takes_gzip(value)
    return is_packed, accepts_gzip


def takes_gzip(value: bytes) -> bool:
    """Return whether a header Accept-Encoding names gzip, weighted above 0 (RFC 9110, 12.5.3)."""
    for part in value.lower().split(b","):
        coding, _, weight = part.partition(b";")
        if coding.strip() in (b"gzip", b"x-gzip"):
            return weight.replace(b" ", b"").rstrip(b"0.") not in (b"q=", b"q")
    return False


def packed(body: bytes) -> bytes:
    """Return a whole answer, packed."""
    return zlib.compress(body, _LEVEL, _GZIP)


class Unpacking:
    """An ASGI `receive` that unpacks a request's body piece by piece.

    A body that is held whole stays packed until all of it has arrived, because it may unpack to a
    thousand times its size.

    bytes_max  the most bytes that the body may have when it is unpacked; None: the body is never
               held whole, and has no limit
    hold       called with the number of bytes of each piece of a body that is held whole
    """

    def __init__(
        self, receive: Receive, bytes_max: int | None, hold: Callable[[int], None]
    ) -> None:
        self._receive = receive
        self._bytes_max = bytes_max
        self._hold = hold
        self._n_bytes = 0
        self._packed: bytes | bytearray = b""
        self._is_full = self._is_last = False
        self._zlib = zlib.decompressobj(_GZIP)

    async def __call__(self) -> Message:
        """Return the next ASGI message.

        Raises BrokenEncoding, and BodyTooLarge at the first byte beyond the limit.
        """
        if self._packed or self._is_full:
            await asyncio.sleep(0)
        else:
            message = await self._receive()
            received = bytearray(message.get("body", b""))
            while self._bytes_max is not None and message.get("more_body", False):
                message = await self._receive()
                received += message.get("body", b"")
            if message["type"] != "http.request":
                return message
            self._packed, self._is_last = received, not message.get("more_body", False)
        body = self._next_piece()
        self._n_bytes += len(body)
        if self._bytes_max is not None:
            if self._n_bytes > self._bytes_max:
                raise BodyTooLarge(
                    f"expected at most {self._bytes_max} bytes (limit body_bytes_max) when the "
                    "body is unpacked, found more"
                )
            self._hold(len(body))
        has_more = bool(self._packed) or self._is_full or not self._is_last
        if not has_more and not self._zlib.eof:
            raise BrokenEncoding(
                "Content-Encoding: expected whole gzip data, found that its end is missing"
            )
        return {"type": "http.request", "body": body, "more_body": has_more}

    def _next_piece(self) -> bytes:
        """Unpack and return one piece of the bytes that were received. Raises BrokenEncoding."""
        if self._zlib.eof:  # gzip data may have several members, in a row
            self._packed = self._packed.lstrip(b"\0")  # padding, as Python and gzip take it
            if not self._packed:
                return b""
            self._zlib = zlib.decompressobj(_GZIP)
        try:
            piece = self._zlib.decompress(self._packed, PIECE_BYTES)
        except zlib.error as error:
            raise BrokenEncoding(
                f"Content-Encoding: expected gzip data, found damage: {error}"
            ) from None
        self._packed = self._zlib.unused_data if self._zlib.eof else self._zlib.unconsumed_tail
        self._is_full = len(piece) == PIECE_BYTES and not self._zlib.eof
        return piece


class PackedAnswer(GZipResponder):
    """An ASGI app that packs answers of at least PACKED_FROM bytes, and streams piece by piece."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, PACKED_FROM, _LEVEL, thread_minimum_size=_THREAD_BYTES)
        self._has_parts = False

    async def send_with_compression(self, message: Message) -> None:
        """Send a message; files of which clients may request ranges are sent unpacked."""
        if message["type"] == "http.response.start":
            self._has_parts = "accept-ranges" in Headers(raw=message["headers"])
        if self._has_parts:
            await self.send(message)
        else:
            await super().send_with_compression(message)
