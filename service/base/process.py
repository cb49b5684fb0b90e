"""What a process sets for itself: its limit of file descriptors, and how often it collects garbage."""

import errno
import gc
import logging
import os
import resource

from service.base.logs import log

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
