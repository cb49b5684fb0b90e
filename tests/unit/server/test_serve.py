"""When a server lets jobs be worked on: not while it opens its models, if that does
not take long.
"""

import threading
from types import SimpleNamespace

from xylem.server.serve import _Server


def may_work(ready: bool, seconds: int, draining: bool = False) -> bool:
    """Whether a server does, so long after its start."""
    server, is_draining = _Server.__new__(_Server), threading.Event()
    if draining:
        is_draining.set()
    server._app = SimpleNamespace(  # type: ignore[assignment]
        state=SimpleNamespace(services=SimpleNamespace(ready=ready), draining=is_draining)
    )
    return server._may_work(seconds)


def test_jobs_wait_for_the_models() -> None:
    assert [may_work(False, seconds) for seconds in (0, 29, 30)] == [False, False, True]
    assert may_work(True, 0)
    assert not may_work(True, 60, draining=True)
    assert not may_work(False, 60, draining=True)
