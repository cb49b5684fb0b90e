"""The first steps of a process of ours, before it imports anything
that takes time: SIGTERM, variables.
"""

import os
import re
import signal

from xylem.base.processors import n_processors

# the exit status of a process that SIGTERM ends, as shells count it
TERMINATED = 128 + signal.SIGTERM

_REMOVED = re.compile(
    r"NUMBA_(?!BOUNDSCHECK\Z).*|(?i:prometheus_multiproc_dir)|FASTAPI_.*|WEB_CONCURRENCY"
    r"|OTEL_PROPAGATORS|OTEL_PYTHON_(CONTEXT|(TRACER|METER|LOGGER)_PROVIDER)"
)
"""Variables of libraries that would break what we do with these: kernels that are not compiled, or
for which the cache has no key; figures in files that workers share; spans and propagators beside
ours; a number of processes that uvicorn reads, although we start them.
"""


def prepare() -> None:
    """Do what a command of ours does first. Never in a caller's
    process: `import xylem` changes nothing.

    The variables are as we need them here, and in all processes that this one starts. Libraries
    would start a thread for each processor of the machine: they know no quota.

    SIGTERM ends the first process of a container as any other: there the system drops a signal that
    has no handler. It does not raise an exception, which could be lost where Python swallows it.
    Nothing is cleared up, as with SIGKILL: what writes to a store leaves it as it was, or with the
    whole result. Servers and workers replace the handler when they can stop in good order.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))
    for name in filter(_REMOVED.fullmatch, list(os.environ)):
        del os.environ[name]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(n_processors()))
