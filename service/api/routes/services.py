"""What routes work with, and how they get it: `services: Wired` as a parameter."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, NamedTuple, TypeAlias

from fastapi import Depends, Request

from model_store.store import Store
from service.api.door.auth import AdminKey
from service.api.door.metrics import Metrics
from service.api.door.streams import Streams
from service.api.door.work import WorkPool
from service.serving.feedback import FeedbackDesk
from service.serving.learning import OnlineLearning
from service.serving.served import LiveServed
from service.serving.tuning import Tune
from service.settings import Limits, Settings


class Services(NamedTuple):
    """The parts of one app.

    work               threads for predictions that are too long for the event loop
    threshold_work     threads that wait for the database: nothing else waits for them
    tune_work          a thread that tunes
    batch_threads      threads for blocks of batches
    batches, feeds     the streams of batches, and of feedback
    tune               tunes a version; returns what `xylem thresholds --json` says. Blocking
    draining           whether the server is about to stop
    """

    settings: Settings
    store: Store
    live: LiveServed
    learning: OnlineLearning
    metrics: Metrics
    admin: AdminKey
    desk: FeedbackDesk
    work: WorkPool
    threshold_work: WorkPool
    tune_work: WorkPool
    batch_threads: ThreadPoolExecutor
    batches: Streams
    feeds: Streams
    tune: Tune
    draining: Callable[[], bool]

    @property
    def limits(self) -> Limits:
        """Return the limits in force."""
        return self.settings.limits

    @property
    def ready(self) -> bool:
        """Return whether requests should be sent here."""
        return self.live.ready and not self.draining()

    def close(self) -> None:
        """Let the threads end."""
        for pool in (self.live, self.work, self.threshold_work, self.tune_work, self.desk):
            pool.close()
        self.batch_threads.shutdown(wait=False, cancel_futures=True)


async def _services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


Wired: TypeAlias = Annotated[Services, Depends(_services)]
