"""When a server lets jobs be worked on: not while it opens its models, if that does not take long."""

import threading
from types import SimpleNamespace

import pytest

from service.server.serve import _Server


@pytest.mark.parametrize(
    ("ready", "seconds", "draining", "may"),
    [
        (False, 0, False, False),
        (False, 29, False, False),
        (False, 30, False, True),
        (True, 0, False, True),
        (True, 60, True, False),
        (False, 60, True, False),
    ],
)
def test_jobs_wait_for_the_models(ready: bool, seconds: int, draining: bool, may: bool) -> None:
    server = _Server.__new__(_Server)
    state = SimpleNamespace(services=SimpleNamespace(ready=ready), draining=threading.Event())
    if draining:
        state.draining.set()
    server._app = SimpleNamespace(state=state)  # type: ignore[assignment]
    assert server._may_work(seconds) is may
