"""The open files of a server: their limit, and whether any can still be opened."""

import errno
import logging
import os
import resource

from xylem.base import log

# Descriptors that the process itself needs: libraries, database, log, listening sockets.
RESERVED_DESCRIPTORS = 64


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
