"""Build the ASGI app: `create_app` creates and connects all objects of the service."""

import asyncio
import contextlib
import functools
import logging
import re
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from fastapi import FastAPI
from starlette.routing import Router

from xylem.admin import JobFigures, Jobs, Registry, Schedules
from xylem.api.door.admission import Admission
from xylem.api.door.answering import Answering, WholeRequests
from xylem.api.door.cors import Cors, cors_options
from xylem.api.door.metrics import (
    Metrics,
    read_in_flight,
    read_keys,
    read_live,
    read_queues,
    read_rows,
    read_streams,
    read_thresholds,
)
from xylem.api.door.neighbours import Neighbours, WorkerPlace
from xylem.api.door.problems import install_handlers
from xylem.api.door.request_log import RequestLog
from xylem.api.door.request_scope import RequestScope, refuse_unparsed
from xylem.api.door.streams import Streams
from xylem.api.door.work import WorkPool
from xylem.api.routes import (
    aliases,
    annif,
    feedback,
    health,
    jobs,
    keys,
    labels,
    models,
    oip,
    pages,
    predict,
    registry,
    thresholds,
)
from xylem.api.routes.openapi import openapi_document
from xylem.api.routes.requests import Services
from xylem.base import (
    AuditLog,
    KeyRing,
    Settings,
    load_extra,
    log,
    open_tracer,
    read_settings,
    redacted_url,
    settle,
)
from xylem.serving import (
    PREDICT,
    SCORES,
    TENSORS,
    Dialect,
    FeedbackDesk,
    LabelInfos,
    LiveModels,
    OnlineLearning,
    Shadows,
    serve_model,
    store_of,
    with_denied,
)

# Matches the paths whose bodies, if they are lines, are processed as they arrive.
#
# They are never held whole in memory, so they have no limit of bytes.
STREAMS = re.compile(r"/v1/models/[^/]+(/(versions|aliases)/[^/]+)?/(batch|feedback)")

# Matches the paths whose bodies are written to the disk as they arrive.
#
# They have limits of their own.
UPLOADS = re.compile(r"/v1/admin/(data/.+|models/[^/]+/archive)")

# Threads that wait for the database to show or change thresholds.
THRESHOLD_THREADS = 2

# Threads that wait for the database or the store for admins.
ADMIN_THREADS = 4

# Threads that read and write archives, piece by piece.
ARCHIVE_THREADS = 2

# The routers, in the order in which their routes are tried: frequent requests come first.
ROUTERS = (
    *(part.router for part in (predict, feedback, oip, annif, thresholds, labels, models, health)),
    pages.docs_router,
    pages.router,
    *(part.router for part in (jobs, registry, aliases, keys)),
    oip.about_router,
    oip.health_router,
    oip.index_router,
    oip.repository_router,
    thresholds.admin_router,
    feedback.admin_router,
    annif.learn_router,
)

# options of FastAPI. Its telemetry is off: it would look for its providers in the environment at
# each request
_OPTIONS: Any = {
    "openapi_url": None,
    "docs_url": None,
    "redoc_url": None,
    "redirect_slashes": False,
    "telemetry": {"tracing": False, "metrics": False, "logs": False},
}


def create_app(
    settings: Settings | None = None,
    *,
    opens_first: bool = False,
    opened: Connection | None = None,
    place: WorkerPlace | None = None,
) -> FastAPI:
    """Return the service as an ASGI app. Without `settings`, they are read from the environment.

    opens_first  whether the app starts to serve only after the store has been read
    opened       with `opens_first`: a connection whose other end must be closed, too, before the
                 app starts to serve
    place        which of a server's workers this process is; None: it is the only one

    The lifespan of the app starts and stops the threads and tasks that follow the store and the
    database. While `app.state.draining`, a threading.Event, is set, `/readyz` answers that the
    service is not ready.
    """
    settings = settings or read_settings()
    draining = threading.Event()
    tracer = open_tracer(settings, "serve")
    requests = RequestLog(Metrics(settings.metrics_models), settings.access_log, tracer)
    admission = Admission(settings.limits, STREAMS, UPLOADS, draining.is_set, settings.workers)
    parts = _services(settings, requests, admission)
    job_figures = JobFigures(parts.learning.database)
    parts.metrics.registry.register(job_figures)
    if place is not None:
        parts = parts._replace(
            neighbours=Neighbours(place, functools.partial(parts.metrics.page, worker=place.number))
        )

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        followers = parts.ring, job_figures, parts.learning
        for follower in followers:
            follower.start()
        if parts.neighbours is not None:
            await parts.neighbours.start()
        following = asyncio.create_task(parts.live.follow(settings.store_poll_seconds, _settle))
        with _on_hangup(parts.live.wake):
            if opens_first:
                await _until_open(parts.live, opened)
            yield
        following.cancel()
        if parts.neighbours is not None:
            parts.neighbours.close()
        parts.close()
        for follower in followers:
            await asyncio.to_thread(follower.close)
        parts.metrics.settle()
        if tracer is not None:
            await asyncio.to_thread(tracer.close)

    root_path = settings.root_path
    app = FastAPI(lifespan=lifespan, **_OPTIONS)
    app.openapi = functools.lru_cache(1)(  # type: ignore[method-assign]
        functools.partial(openapi_document, app, settings.limits, root_path)
    )
    app.state.draining = draining
    app.state.metrics = parts.metrics
    app.state.services = parts
    for router in ROUTERS:  # routers that are included try each route twice: 10 to 20 us a request
        app.router.routes.extend(router.routes)
    install_handlers(app)
    if (cors := cors_options(settings)) is not None:
        app.add_middleware(Cors, **cors)
    if settings.grpc_port is not None:
        app.add_middleware(load_extra("grpc").receives_calls, infer=Router(oip.router.routes))
    app.add_middleware(
        RequestScope, admission=admission, requests=requests, cors=cors, root_path=root_path
    )
    app.state.unparsed_requests = functools.partial(
        refuse_unparsed, requests, settings.limits.head_bytes_max, root_path
    )
    app.state.slow_readers = admission.answers
    app.state.whole_requests = WholeRequests(
        _routes_of_dialects(), parts.answering, admission, root_path
    )
    return app


def _routes_of_dialects() -> list[tuple[Dialect[Any], Any]]:
    """Return the routes whose whole requests are answered at once, each with its dialect."""
    dialects: dict[Any, Dialect[Any]] = {
        predict.predict: PREDICT,
        oip.infer: TENSORS,
        predict.score: SCORES,
    }
    routes: list[Any] = [*predict.router.routes, *oip.router.routes]
    return [(dialects[route.endpoint], route) for route in routes if route.endpoint in dialects]


def _services(settings: Settings, requests: RequestLog, admission: Admission) -> Services:
    limits = settings.limits
    metrics = requests.metrics
    store = store_of(settings.store)
    learning = OnlineLearning(settings)
    database = learning.database
    infos = LabelInfos(store)
    live = LiveModels(
        store,
        functools.partial(
            serve_model, learning=learning, limits=limits, infos=infos, stages=metrics.stages
        ),
        models_loaded=settings.models_loaded,
        preload=settings.preload,
        openings_max=limits.queue_max,
        seconds_max=limits.request_seconds_max,
        refresh=infos.refresh,
        deny=functools.partial(with_denied, limits=limits, stages=metrics.stages),
    )
    ring = KeyRing(database, settings)
    shadows = Shadows(limits, metrics.shadows.record)
    pool = functools.partial(
        WorkPool, queue_max=limits.queue_max, seconds_max=limits.request_seconds_max
    )
    services = Services(
        settings=settings,
        store=store,
        live=live,
        learning=learning,
        metrics=metrics,
        ring=ring,
        audit=AuditLog(database),
        registry=Registry(
            store, database, settings.store_remote and redacted_url(settings.store_remote)
        ),
        jobs=Jobs(database, settings),
        schedules=Schedules(database, settings),
        desk=FeedbackDesk(live.find, learning, limits, metrics.record_events),
        shadows=shadows,
        answering=Answering(live, ring, shadows, requests, limits),
        work=pool(limits.threads_max),
        threshold_work=pool(THRESHOLD_THREADS, calls="calls about thresholds"),
        admin_work=pool(ADMIN_THREADS, calls="calls of admins"),
        batch_threads=ThreadPoolExecutor(limits.threads_max, thread_name_prefix="xylem-batch"),
        archive_threads=ThreadPoolExecutor(ARCHIVE_THREADS, thread_name_prefix="xylem-archives"),
        followers=asyncio.Semaphore(limits.event_streams_max),
        batches=Streams(limits),
        feeds=Streams(limits),
        admission=admission,
    )
    metrics.open_versions = live.open_versions
    report = metrics.report
    report(read_in_flight, metrics, admission)
    report(read_live, live.status, lambda: services.ready, metrics.series_models)
    report(read_thresholds, learning.follower)
    report(read_rows, learning.rows)
    if settings.metrics_keys:
        report(read_keys, ring)
    report(read_streams, {"batch": services.batches, "feedback": services.feeds})
    report(
        read_queues,
        {
            "predictions": services.work,
            "thresholds": services.threshold_work,
            "admin": services.admin_work,
        },
    )
    return services


def _settle() -> None:
    settle()
    log(logging.INFO, "models_opened")


async def _until_open(live: LiveModels[Any], opened: Connection | None) -> None:
    """Wait until the store has been read, and the other end of a connection is closed."""
    await live.has_looked.wait()
    if opened is not None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(opened.fileno(), ended.set)
        await ended.wait()
        loop.remove_reader(opened.fileno())
        opened.close()


@contextlib.contextmanager
def _on_hangup(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` at each SIGHUP, also at one that was blocked until now.

    Does nothing outside the main thread, where an event loop cannot handle signals.
    """
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.getsignal(signal.SIGHUP)
    loop.add_signal_handler(signal.SIGHUP, look)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        # blocked: removal restores the default handler for a moment, which ends the process
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, previous_handler or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
