"""One process at a time compiles a kernel.

numba changes a kernel's index without a lock. Two that compiled it for different types at once did the work
twice, and could file one's code under the other's types.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

_LOCK_SECONDS = 300.0
"""How long a process waits for another one that compiles the same kernel; then it compiles for itself."""

_LOCK_POLL_SECONDS = 0.02

_held: set[str] = set()
"""The kernels that this process is compiling; guarded by numba's lock of the compiler."""


@contextlib.contextmanager
def alone(path: str) -> Iterator[None]:
    """Hold the lock file at `path`, and nothing where it cannot be had: it saves work, no more.

    The lock ends with the process. A kernel waits only for those that it calls: no two wait for each other.
    """
    if path in _held:
        yield
        return
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:  # a cache that can only be read
        yield
        return
    _held.add(path)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_LOCK_POLL_SECONDS)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        _held.remove(path)
        os.close(fd)
