"""The first steps of a process, before slow imports: handle SIGTERM, set variables."""

import os
import re
import signal

from xylem.base.processors import n_processors

# the exit status that shells report for a process that SIGTERM ended
TERMINATED = 128 + signal.SIGTERM

# Variables of other libraries that would break the service, by their effects: kernels that are
# not compiled, or for which the cache has no key; metrics in files that workers share; spans and
# propagators beside the service's own; a number of processes that uvicorn reads, although the
# service starts them itself.
_REMOVED = re.compile(
    r"NUMBA_(?!BOUNDSCHECK\Z).*|(?i:prometheus_multiproc_dir)|FASTAPI_.*|WEB_CONCURRENCY"
    r"|OTEL_PROPAGATORS|OTEL_PYTHON_(CONTEXT|(TRACER|METER|LOGGER)_PROVIDER)"
)


def prepare() -> None:
    """Handle SIGTERM and set the variables of libraries, as the first step of a command.

    Never call it in a caller's process: `import xylem` changes nothing.

    The variables hold for this process, and for all processes that it starts. Without them,
    libraries start a thread for each processor of the machine: they ignore the quota.

    SIGTERM ends the first process of a container as it ends any other: by default the system drops
    a signal that this process has no handler for. The handler does not raise an exception, which
    could be lost where Python swallows it. Nothing is cleaned up, as with SIGKILL: whatever writes
    to a store leaves it as it was, or with the whole result. Servers and workers replace the
    handler once they can stop in good order.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))
    for name in filter(_REMOVED.fullmatch, list(os.environ)):
        del os.environ[name]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(n_processors()))
