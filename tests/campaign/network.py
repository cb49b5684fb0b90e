"""A network between a service and its PostgreSQL: it can stand still, be slow, cut and refuse."""

import contextlib
import selectors
import socket
import threading
import time
from pathlib import Path
from typing import Self

_READ_BYTES = 1 << 14


class Network:
    """Leads connections from a port on loopback to a socket of the file system, as `state` says.

    States: "flows", "stands" (nothing passes, nothing closes), "slow" (each part waits 50 ms), "halves"
    (half of the next part passes, then the connection breaks), "refuses" (connections are closed at once).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.state = "flows"
        self._ends = threading.Event()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections that are open."""
        for pair in list(self._pairs):
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._ends.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                if self.state == "refuses":
                    raise ConnectionRefusedError
                server.connect(str(self._path))
            except OSError:
                client.close()
                server.close()
                continue
            threading.Thread(target=self._lead, args=(client, server), daemon=True).start()

    def _lead(self, client: socket.socket, server: socket.socket) -> None:
        pair = (client, server)
        self._pairs.add(pair)
        other = {client: server, server: client}
        try:
            with selectors.DefaultSelector() as ready, client, server:
                for end in pair:
                    ready.register(end, selectors.EVENT_READ)
                while not self._ends.is_set():
                    for key, _ in ready.select(0.5):
                        source = key.fileobj
                        assert isinstance(source, socket.socket)
                        data = source.recv(_READ_BYTES)
                        if not data or not self._passes(data, other[source]):
                            return
        except OSError:
            pass
        finally:
            self._pairs.discard(pair)

    def _passes(self, data: bytes, target: socket.socket) -> bool:
        """Send what came as the state says; whether the connection stays."""
        while self.state == "stands" and not self._ends.is_set():
            time.sleep(0.02)
        if self.state == "slow":
            time.sleep(0.05)
        if self.state in ("halves", "refuses"):
            target.sendall(data[: len(data) // 2])
            return False
        target.sendall(data)
        return True
