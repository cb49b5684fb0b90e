"""What a process sets for itself: its limit of open files, and garbage collection."""

import errno
import gc
import logging
import os
import resource

from xylem.base.logs import log

RESERVED_DESCRIPTORS = 64
"""Descriptors that the process itself needs: libraries, database, log, listening sockets."""


def raise_limit(connections: int) -> None:
    """Raise the limit of open files as far as this process may, and log it if it stays too low.

    connections   the number of connections that must be able to be open at a time
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):  # the system's own limit is lower
            pass
    required_limit = connections + RESERVED_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < required_limit:
        log(
            logging.WARNING,
            "descriptors_few",
            detail=f"expected a limit of {required_limit} open files, found {soft}: "
            "raise it (ulimit -n), or lower XYLEM_REQUESTS_MAX",
        )


def are_used_up() -> bool:
    """Return whether no further file or connection can be opened now.

    Costs two system calls.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False


_USUAL = gc.get_threshold()
# thresholds of the three generations for a start, at which Python makes objects that stay
_SELDOM = (20_000, 10, 10)


def collect_seldom() -> None:
    """Let the garbage collector run only after many new objects.

    What a process imports or compiles at its start stays in memory, and need not be looked at.
    """
    gc.set_threshold(*_SELDOM)


def settle() -> None:
    """Exempt all present objects from garbage collection; new ones are collected as usual."""
    gc.freeze()
    gc.set_threshold(*_USUAL)
