"""What a process sets for itself: its limit of file descriptors, and how often it collects garbage."""

import errno
import gc
import logging
import os
import resource
import threading
from collections.abc import Callable

from service.base.logs import log


class Repeating:
    """Calls `action`, which must not raise, in a thread of its own, so many seconds after each call.

    stopping  set once it is told to stop; an action that takes long looks at it
    """

    def __init__(self, name: str, action: Callable[[], object], seconds: float, *, at_once: bool) -> None:
        """Take what is done, and whether it is done at the start already or after the first pause."""
        self._action = action
        self._seconds = seconds
        self._at_once = at_once
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float | None = None) -> None:
        """Stop, and wait for the call under way, at most so long. Blocking."""
        self.stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        if self._at_once:
            self._action()
        while not self.stopping.wait(self._seconds):
            self._action()


OWN = 64
"""Descriptors that the process needs itself: libraries, the database, the log, sockets that listen."""


def raise_limit(connections: int) -> None:
    """Raise the limit of open files as far as this process may, and log it if it is too low even so.

    connections   as many are to be open at a time, at least
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):  # a system that has a lower limit of its own
            pass
    needed = connections + OWN
    if soft != resource.RLIM_INFINITY and soft < needed:
        log(
            logging.WARNING,
            "descriptors_few",
            detail=f"expected a limit of {needed} open files, found {soft}: raise it (ulimit -n), or lower "
            "XYLEM_REQUESTS_MAX",
        )


def are_used_up() -> bool:
    """Return whether no further file or connection can be opened now. Cost: two calls of the system."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False


_USUAL = gc.get_threshold()


def collect_seldom() -> None:
    """Let the collector begin after many objects: what a process begins with, or compiles, stays."""
    gc.set_threshold(20_000, 10, 10)


def settle() -> None:
    """Never look again at what there is now, and at what comes as usual."""
    gc.freeze()
    gc.set_threshold(*_USUAL)
