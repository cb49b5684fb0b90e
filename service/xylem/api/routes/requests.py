"""The services that routes use (`services: Wired`), and steps that many routes have in common.

The steps are to read a body, to find the version, and to answer in a dialect.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
from fastapi import Depends, Request, Response

from xylem.admin import Jobs, Registry, Schedules
from xylem.api.door.admission import Admission, read_body
from xylem.api.door.answering import Answering, headers_for
from xylem.api.door.heads import HEADERS_KEY, header_or_query_of, reference_of
from xylem.api.door.metrics import Metrics
from xylem.api.door.neighbours import Neighbours
from xylem.api.door.request_timings import ANSWERED_BY, AnsweredBy, timings_of
from xylem.api.door.responses import RawResponse
from xylem.api.door.streams import Streams
from xylem.api.door.work import WorkPool
from xylem.api.routes.operations import OPENAPI, query_parameters, takes_json
from xylem.base import READ, AuditLog, KeyRing, Limits, Overloaded, Principal, Settings
from xylem.serving import (
    LONG_BYTES,
    Body,
    ChosenVersion,
    Dialect,
    FeedbackDesk,
    LiveServed,
    Longer,
    OnlineLearning,
    RequestModel,
    ServedVersion,
    Shadows,
    parse_body,
    parse_query,
)
from xylem_store import PROGRESS, Store, is_version

T = TypeVar("T")

# The last fourth of the places of a door is for senders that have less than their share.
SHARED_PART = 4

# The longest time that an answer waits for this replica to serve a change.
CATCH_UP_SECONDS = 5.0

# About this many kernels are compiled or loaded for the first model; others add one or two.
KERNELS_OF_A_MODEL = 40


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
                    f"expected at most the sender's share of the {n_places} {name} at a time, "
                    "found more"
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


def who(request: Request) -> Principal:
    """Return the owner of a request's key, which must have been checked before."""
    return cast(Principal, request.state.principal)


M = TypeVar("M", bound=RequestModel)


def json_body(model: type[M], example: object = None) -> Any:
    """Return a dependency that reads a request's body as JSON, with the limits of the settings.

    FastAPI would read it without these limits, and without a limit of time. An AuditedRoute
    describes the body in the OpenAPI document.
    """

    async def read(request: Request, services: Wired) -> M:
        return await services.admin_work.read(
            parse_body, await read_body(request), model, services.limits
        )

    setattr(read, OPENAPI, takes_json(model, example))
    return Depends(read)


def query_of(model: type[M]) -> Any:
    """Return a dependency that reads a request's query string, as `json_body` reads a body."""

    async def read(request: Request, services: Wired) -> M:
        return parse_query(request.scope["query_string"], model, services.limits)

    setattr(read, OPENAPI, query_parameters(model))
    return Depends(read)


async def find_served(request: Request, live: LiveServed) -> ServedVersion:
    """Return the served version that a request's path names: by number, by alias, else `latest`.

    Raises ModelNotFound, VersionNotFound, AliasNotFound, Unavailable and ModelUnavailable.
    """
    return await find_version(request, live, *reference_of(request.path_params))


async def find_version(
    request: Request, live: LiveServed, model: str, ref: str, seconds: float | None = None
) -> ServedVersion:
    """Return a served version by its number or alias, and record that it answers the request.

    seconds  how long the request waits for it to be opened, if less than others do
    """
    served = await live.find(model, ref, seconds)
    _note(request, served, None if is_version(ref) else ref)
    return served


async def choose_served(
    request: Request, live: LiveServed, model: str, ref: str, seconds: float | None = None
) -> ChosenVersion[ServedVersion]:
    """Return the version that answers a prediction, and the shadow, if any.

    For an alias with a canary, the request's canary key or id decides which version answers.
    `seconds` is as in `find_version`, whose errors are raised.
    """
    served = await find_version(request, live, model, ref, seconds)
    split = None if is_version(ref) else live.splits.get((model, ref))
    if split is None:
        return ChosenVersion(served)
    chosen = split.choose(
        served, request.scope[HEADERS_KEY].canary_key or request.scope["request_id"].encode()
    )
    _note(request, chosen.served, ref)
    return chosen


def _note(request: Request, served: ServedVersion, alias: str | None) -> None:
    request.scope[ANSWERED_BY] = AnsweredBy(served.name, served.version, alias)


async def reply_in(
    dialect: Dialect[Any],
    request: Request,
    services: Services,
    model: str | None = None,
    ref: str = "",
) -> Response:
    """Return the answer to a request in a dialect.

    model, ref  the model, and the version's number or alias; None: those in the path
    """
    body = Body(
        await read_body(request, dialect.media), 0, header_or_query_of(dialect, request.scope)
    )
    loop = asyncio.get_running_loop()
    began = loop.time()
    if model is None:
        model, ref = reference_of(request.path_params)
    timings = timings_of(request.scope)
    services.live.version_of(model, ref)  # an unknown model is refused before the body is read
    if len(body.message) > LONG_BYTES or services.live.resident(model, ref) is None:
        query = await services.work.run(dialect.read, body, services.limits)
        timings.end(READ)
        deadline_ms = dialect.deadline_ms(query)
        chosen = await choose_served(
            request, services.live, model, ref, None if deadline_ms is None else deadline_ms / 1000
        )
        reply = dialect.answer_read(query, chosen.served, services.limits, timings)
    else:
        chosen = await choose_served(request, services.live, model, ref)
        reply = dialect.answer(body, chosen.served, services.limits, timings)
    # the search in a thread stops when nobody waits for it any more, or at its deadline
    if isinstance(reply, Longer):
        timings.begin()
        stop = np.zeros(1, np.uint8)
        timer = (
            None
            if reply.deadline_ms is None
            else loop.call_at(began + reply.deadline_ms / 1000, stop.fill, 1)
        )
        try:
            reply = await services.work.run(reply.answer, stop)
        finally:
            stop.fill(1)
            if timer is not None:
                timer.cancel()
    services.answering.finish(dialect, chosen, body, reply, who(request), 0, timings)
    return RawResponse(b"".join(reply.parts), headers_for(reply, chosen.served))
