"""What routes work with, and how they get it: `services: Wired` as a parameter."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, NamedTuple, TypeAlias, TypeVar

from fastapi import Depends, Request

from model_store.compiled.progress import PROGRESS
from model_store.store import Store
from service.access.audit import AuditLog
from service.access.ring import KeyRing
from service.api.door.answering import Answering
from service.api.door.metrics import Metrics
from service.api.door.neighbours import Neighbours
from service.api.door.streams import Streams
from service.api.door.work import WorkPool
from service.base.settings import Limits, Settings
from service.jobs.jobs import Jobs
from service.jobs.schedules import Schedules
from service.registry.registry import Registry
from service.serving.feedback import FeedbackDesk
from service.serving.learning import OnlineLearning
from service.serving.served import LiveServed
from service.serving.shadows import Shadows

T = TypeVar("T")

CATCH_UP_SECONDS = 5.0
"""So long an answer waits for this replica to serve what has changed."""


KERNELS_OF_A_MODEL = 45
"""About so many kernels are compiled or loaded until the first model answers; others add one or two."""


class Services(NamedTuple):
    """The parts of one app.

    work               threads for predictions that are too long for the event loop
    threshold_work     threads that wait for the database: nothing else waits for them
    admin_work         threads for what admins ask, most of which waits for the database
    followers          free places for those who follow a job
    neighbours         the other workers of the server; None: there are none
    """

    settings: Settings
    store: Store
    live: LiveServed
    learning: OnlineLearning
    metrics: Metrics
    ring: KeyRing
    audit: AuditLog
    registry: Registry
    jobs: Jobs
    schedules: Schedules
    desk: FeedbackDesk
    shadows: Shadows
    answering: Answering
    work: WorkPool
    threshold_work: WorkPool
    admin_work: WorkPool
    batch_threads: ThreadPoolExecutor
    archive_threads: ThreadPoolExecutor
    followers: asyncio.Semaphore
    batches: Streams
    feeds: Streams
    draining: Callable[[], bool]
    neighbours: Neighbours | None = None

    @property
    def limits(self) -> Limits:
        """Return the limits in force."""
        return self.settings.limits

    async def change(self, call: Callable[..., T], *arguments: object) -> T:
        """Return what a change of the store returns, once this replica serves it, or CATCH_UP_SECONDS later.

        The others see it at their next look at the store.
        """
        made = await self.admin_work.run(call, *arguments)
        await self.live.catch_up(CATCH_UP_SECONDS)
        return made

    @property
    def ready(self) -> bool:
        """Return whether requests should be sent here."""
        return self.live.ready and not self.draining()

    @property
    def waits_for(self) -> str | None:
        """Return which kernels are compiled before all models are open; None: none has to be."""
        return None if self.live.looked else PROGRESS.waits_for(KERNELS_OF_A_MODEL)

    def close(self) -> None:
        """Let the threads end."""
        for pool in (self.live, self.work, self.threshold_work, self.admin_work, self.desk, self.shadows):
            pool.close()
        for threads in (self.batch_threads, self.archive_threads):
            threads.shutdown(wait=False, cancel_futures=True)


async def _services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


Wired: TypeAlias = Annotated[Services, Depends(_services)]
