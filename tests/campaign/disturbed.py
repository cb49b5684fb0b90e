"""What servers stand on, disturbed: a slow disk, a clock that jumps, a
network to PostgreSQL that breaks.
"""

import mmap
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

SOURCE = Path(__file__).with_name("disturb.c")
_FORMAT = "dd"
_READ_BYTES = 1 << 14


def why_not() -> str | None:
    """Why servers cannot be disturbed here, if so."""
    return None if shutil.which("cc") else "there is no C compiler"


class Disturbance:
    """What disk and clock do of servers that are started with
    `environment`, which loads a library in C.
    """

    def __init__(self, directory: Path) -> None:
        library = directory / "disturb.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lm"]
        subprocess.run(command, check=True)
        control = directory / "disturb"
        control.write_bytes(bytes(struct.calcsize(_FORMAT)))
        descriptor = os.open(control, os.O_RDWR)
        self._control = mmap.mmap(descriptor, struct.calcsize(_FORMAT))
        os.close(descriptor)
        self.environment = {"LD_PRELOAD": str(library), "DISTURB": str(control)}

    def set(self, disk_seconds: float = 0.0, clock_seconds: float = 0.0) -> None:
        """Have each write to a disk wait, and the clock of the day
        be off; without arguments, neither.
        """
        self._control[:] = struct.pack(_FORMAT, disk_seconds, clock_seconds)


class Network:
    """Leads connections from a port on loopback to a socket of the file system, as `state` says.

    States: "flows", "stands" (nothing passes, nothing closes), "slow" (each part waits 50 ms),
    "halves" (half of the next part passes, then the connection breaks), "refuses" (connections are
    closed at once).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.state = "flows"
        self._ends = threading.Event()
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections that are open."""
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
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
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._lead, args=ends, daemon=True).start()

    def _lead(self, source: socket.socket, target: socket.socket) -> None:
        """Pass on what comes from one end, until one of them closes or the connection
        is to break.
        """
        self._open.add(source)
        with source, suppress(OSError):
            while (data := source.recv(_READ_BYTES)) and self._passes(data, target):
                pass
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)

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
