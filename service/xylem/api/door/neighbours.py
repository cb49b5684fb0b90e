"""The worker processes of a server ask each other for their figures,
so that one scrape has those of all.

Each listens on a socket of the machine's abstract names: nothing on a disk, nothing to clean up.
Both ends look at who the other is (SO_PEERCRED): figures go to processes of the same user only.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from xylem.base import log

SECONDS_MAX = 1.0
"""So long a worker is waited for."""

PAGE_BYTES_MAX = 32 << 20
"""The most bytes of a worker's figures."""

_PLAIN = b"p"
_OPENMETRICS = b"o"
_CREDENTIALS = struct.Struct("3i")
_LENGTH = struct.Struct(">Q")
"""Of a page, before it: a worker that dies while it answers must not
pass for one that has little to tell.
"""


class WorkerPlace(NamedTuple):
    """Which of a server's workers a process is.

    name     what the sockets of these workers are called, a part that nobody guesses
    number   from 0; a worker that is started again has the number of the one that died
    """

    name: str
    number: int
    n_workers: int

    def socket_name(self, number: int) -> str:
        """Return the name of a worker's socket."""
        return f"\0xylem-{self.name}-{number}"


class Neighbours:
    """One worker, as the others ask it, and the others, as it asks them. Event loop only."""

    def __init__(self, place: WorkerPlace, own_page: Callable[[bool], Awaitable[bytes]]) -> None:
        self._place = place
        self._own_page = own_page
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Answer the others from now on. Without a socket, which is logged, they find it silent."""
        name = self._place.socket_name(self._place.number)
        try:
            self._server = await asyncio.start_unix_server(self._tell, name, backlog=16)
        except OSError as error:  # no figure is worth a worker
            log(logging.ERROR, "figures_not_shared", error=error)

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()

    async def pages(self, *, is_openmetrics: bool) -> list[bytes | None]:
        """Return the figures of each worker, in the order of
        their numbers; None: it did not answer.
        """
        own_number = self._place.number

        async def page(number: int) -> bytes | None:
            if number == own_number:
                return await self._own_page(is_openmetrics)
            try:
                async with asyncio.timeout(SECONDS_MAX):
                    return await self._ask(number, _OPENMETRICS if is_openmetrics else _PLAIN)
            except (OSError, EOFError, TimeoutError):
                return None

        return await asyncio.gather(*map(page, range(self._place.n_workers)))

    async def _ask(self, number: int, kind: bytes) -> bytes | None:
        """Return a worker's figures; None: too many, or another
        user's. Raises OSError and EOFError.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # on one machine it is connected at once, or there is no room
            connection.setblocking(False)
            connection.connect(self._place.socket_name(number))
        except OSError:
            connection.close()
            raise
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        try:
            if not _is_ours(writer):
                return None
            writer.write(kind)
            (n_bytes,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            return await reader.readexactly(n_bytes) if n_bytes <= PAGE_BYTES_MAX else None
        finally:
            writer.close()

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one who asks."""
        try:
            if _is_ours(writer):
                async with asyncio.timeout(SECONDS_MAX):
                    kind = await reader.read(1)
                    page = await self._own_page(kind == _OPENMETRICS)
                    writer.write(_LENGTH.pack(len(page)) + page)
                    await writer.drain()
        except (OSError, TimeoutError):
            pass
        finally:
            writer.close()


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    """Return whether the other end of a connection is a process of our user."""
    sock = writer.get_extra_info("socket")
    _, user, _ = _CREDENTIALS.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return bool(user == os.getuid())


_HELP = b"# HELP "
_END = b"# EOF\n"


def join_pages(pages: list[bytes | None]) -> bytes:
    """Return the figures of several workers as one page: what is
    said of each, once, and all its lines.

    Of a worker that did not answer, `xylem_worker_up` says so.
    """
    families: dict[bytes, list[bytes]] = {}
    is_openmetrics = False
    for number, page in enumerate(pages):
        if page is None:
            families.setdefault(b"xylem_worker_up", []).append(
                b'xylem_worker_up{worker="%d"} 0.0\n' % number
            )
            continue
        is_openmetrics = page.endswith(_END)
        for part in page.removesuffix(_END).split(b"\n" + _HELP):
            text = part.removeprefix(_HELP).removesuffix(b"\n")
            name = text.partition(b" ")[0]
            families.setdefault(name, []).append(_HELP + text + b"\n")
    joined: list[bytes] = []
    for parts in families.values():
        lines = b"".join(parts).splitlines(keepends=True)
        joined += dict.fromkeys(line for line in lines if line.startswith(b"#"))
        joined += (line for line in lines if not line.startswith(b"#"))
    return b"".join(joined) + (_END if is_openmetrics else b"")
