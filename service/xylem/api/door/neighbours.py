"""The workers of a server exchange their figures, so that one scrape has the figures of all.

Each worker listens on a socket with an abstract name: there is no file, and nothing to clean up.
Both ends check the user of the other end (SO_PEERCRED): only processes of the same user get
figures.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from typing import NamedTuple

from xylem.base import log

# How long a worker waits for another one.
SECONDS_MAX = 1.0

# The most bytes of a worker's figures.
PAGE_BYTES_MAX = 32 << 20

_BACKLOG = 16  # connections that wait: one for each scrape of another worker
_PLAIN = b"p"
_OPENMETRICS = b"o"
_CREDENTIALS = struct.Struct("3i")
# the length of a page, which is sent before it. So a page that is cut off, because its worker died,
# is not taken for a short one
_LENGTH = struct.Struct(">Q")


class WorkerPlace(NamedTuple):
    """The place of a process among the workers of a server.

    name       the common part of the names of the workers' sockets, which nobody can guess
    number     from 0; a worker that is started again has the number of the one that died
    n_workers  how many workers the server has
    """

    name: str
    number: int
    n_workers: int

    def socket_name(self, number: int) -> str:
        """Return the name of the socket of a worker."""
        return f"\0xylem-{self.name}-{number}"


class Neighbours:
    """Exchanges figures with the other workers: asks them, and answers them. Event loop only.

    own_page  returns the figures of this worker; called with whether in OpenMetrics's format
    """

    def __init__(self, place: WorkerPlace, own_page: Callable[[bool], Awaitable[bytes]]) -> None:
        self._place = place
        self._own_page = own_page
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to answer the other workers.

        If the socket cannot be opened, that is logged, and this worker does not answer the others.
        """
        try:
            self._server = await asyncio.start_unix_server(
                self._tell, self._place.socket_name(self._place.number), backlog=_BACKLOG
            )
        except OSError as error:  # a worker without shared figures is better than no worker
            log(logging.ERROR, "figures_not_shared", error=error)

    def close(self) -> None:
        """Stop answering the other workers."""
        if self._server is not None:
            self._server.close()

    async def pages(self, *, is_openmetrics: bool) -> list[bytes | None]:
        """Return the figures of each worker, by number; None for one that did not answer."""

        async def page(number: int) -> bytes | None:
            if number == self._place.number:
                return await self._own_page(is_openmetrics)
            try:
                async with asyncio.timeout(SECONDS_MAX):
                    return await self._ask(number, _OPENMETRICS if is_openmetrics else _PLAIN)
            except (OSError, EOFError, TimeoutError):
                return None

        return await asyncio.gather(*map(page, range(self._place.n_workers)))

    async def _ask(self, number: int, kind: bytes) -> bytes | None:
        """Return the figures of another worker. Raises OSError and EOFError.

        Returns None if they are too long, or the other end is a process of another user.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # on one machine it connects at once, or the other's backlog is full
            connection.setblocking(False)
            connection.connect(self._place.socket_name(number))
        except OSError:
            connection.close()
            raise
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        with closing(writer):
            if not _is_ours(writer):
                return None
            writer.write(kind)
            (n_bytes,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            return await reader.readexactly(n_bytes) if n_bytes <= PAGE_BYTES_MAX else None

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a worker that asks for the figures of this one."""
        with closing(writer), suppress(OSError, TimeoutError):
            if _is_ours(writer):
                async with asyncio.timeout(SECONDS_MAX):
                    kind = await reader.read(1)
                    page = await self._own_page(kind == _OPENMETRICS)
                    writer.write(_LENGTH.pack(len(page)) + page)
                    await writer.drain()


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    """Return whether the other end of a connection is a process of the same user."""
    _, user, _ = _CREDENTIALS.unpack(
        writer.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
        )
    )
    return bool(user == os.getuid())


_HELP = b"# HELP "
_END = b"# EOF\n"


def join_pages(pages: list[bytes | None]) -> bytes:
    """Return the figures of several workers as one page.

    The comments of each metric, HELP and TYPE, appear once; the lines of all workers follow them.
    For a worker that did not answer, `xylem_worker_up` is 0.
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
            families.setdefault(text.partition(b" ")[0], []).append(_HELP + text + b"\n")
    joined: list[bytes] = []
    for parts in families.values():
        lines = b"".join(parts).splitlines(keepends=True)
        joined += dict.fromkeys(line for line in lines if line.startswith(b"#"))
        joined += (line for line in lines if not line.startswith(b"#"))
    return b"".join(joined) + (_END if is_openmetrics else b"")
