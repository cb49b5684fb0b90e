"""The parts of one app, as routes take them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, NamedTuple, TypeAlias, TypeVar, cast

from fastapi import Depends, Request

from xylem.admin import Jobs, Registry, Schedules
from xylem.api.door.admission import Admission
from xylem.api.door.answering import Answering
from xylem.api.door.metrics import Metrics
from xylem.api.door.neighbours import Neighbours
from xylem.api.door.streams import Streams
from xylem.api.door.work import WorkPool
from xylem.base import AuditLog, KeyRing, Limits, Overloaded, Principal, Settings
from xylem.serving import (
    FeedbackDesk,
    LiveServed,
    OnlineLearning,
    Shadows,
)
from xylem_store import PROGRESS, Store

T = TypeVar("T")

SHARED_PART = 4
"""The last fourth of the places of a door is for senders that have less than their share."""

CATCH_UP_SECONDS = 5.0
"""The longest time that an answer waits for this replica to serve a change."""

KERNELS_OF_A_MODEL = 40
"""About this many kernels are compiled or loaded for the first model; others add one or two."""


class Services(NamedTuple):
    """The parts of one app.

    work            threads for predictions that are too long for the event loop
    threshold_work  threads that wait for the database; nothing else waits for them
    admin_work      threads for requests of admins, most of which wait for the database
    followers       free places for requests that follow a job
    neighbours      the other workers of the server; None: there are none
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
    admission: Admission
    neighbours: Neighbours | None = None

    @property
    def limits(self) -> Limits:
        """Return the limits in force."""
        return self.settings.limits

    @property
    def draining(self) -> Callable[[], bool]:
        """Return the function that tells whether the server is about to stop."""
        return self.admission.draining

    def refuse_above_share(self, sender: Principal) -> None:
        """Raise Overloaded if a door is nearly full, and a sender has more than its share of it.

        The senders with requests in flight share the places of each door alike. Without this, the
        flood of one would take all of them, and the others would be refused.
        """
        doors = {
            "requests": (self.limits.requests_max, self.admission.n_free),
            "predictions": (self.work.n_places, self.work.n_places - self.work.pending),
        }
        for name, (n_places, n_free) in doors.items():
            if n_free < n_places // SHARED_PART and sender.meter.exceeds_share(n_places):
                raise Overloaded(
                    f"expected at most its share of {n_places} {name} at a time, found more"
                )

    async def change(self, call: Callable[..., T], *arguments: object) -> T:
        """Change the store with `call`, and return its result.

        It returns once this replica serves the change, or after CATCH_UP_SECONDS. Other replicas
        serve it after they read the store again.
        """
        outcome = await self.admin_work.run(call, *arguments)
        await self.live.catch_up(CATCH_UP_SECONDS)
        return outcome

    @property
    def ready(self) -> bool:
        """Return whether requests should be sent to this process."""
        return self.live.ready and not self.draining()

    @property
    def waits_for(self) -> str | None:
        """Return what has to happen before the models are open; None once the store was read.

        Models that cannot be opened are not waited for.
        """
        if self.live.has_completed_first_look:
            return None
        return (
            PROGRESS.waits_for(KERNELS_OF_A_MODEL)
            or self.learning.follower.waits_for
            or "the models, which are being opened"
        )

    def close(self) -> None:
        """Let the threads end."""
        for pool in (
            self.live,
            self.work,
            self.threshold_work,
            self.admin_work,
            self.desk,
            self.shadows,
        ):
            pool.close()
        for threads in (self.batch_threads, self.archive_threads):
            threads.shutdown(wait=False, cancel_futures=True)


async def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


Wired: TypeAlias = Annotated[Services, Depends(_services)]
