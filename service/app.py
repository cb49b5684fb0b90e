"""create_app: the one place where the service's objects are built and joined."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import re
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from model_store.store import Store
from service.api.door import handlers
from service.api.door.admission import Admission
from service.api.door.auth import AdminKey
from service.api.door.metrics import Metrics
from service.api.door.request_scope import RequestScope
from service.api.door.routing import Direct
from service.api.door.whole_request import WholeRequests
from service.api.door.work import WorkPool
from service.api.routes.batch import BatchRoutes
from service.api.routes.docs import DocsRoutes
from service.api.routes.feedback import FeedbackRoutes
from service.api.routes.health import HealthRoutes
from service.api.routes.models import ModelRoutes
from service.api.routes.openapi import openapi_document
from service.api.routes.predict import PredictRoutes
from service.api.routes.thresholds import ThresholdRoutes
from service.api.routes.tuning import Tune, TuneQuery, TuneRoutes
from service.errors import TimedOut
from service.logs import log
from service.serving.learning import OnlineLearning
from service.serving.live import LiveModels
from service.serving.opening import serve_model
from service.settings import Settings, read_settings

STREAMS = re.compile(r"/v1/models/[^/]+(/(versions|aliases)/[^/]+)?/(batch|feedback)")
"""Paths whose bodies, if they are lines, are never held whole, and so have no limit of bytes."""

THRESHOLD_THREADS = 2
"""Threads that wait for the database to show or change thresholds."""


def create_app(settings: Settings | None = None, *, opens_first: bool = False) -> FastAPI:
    """Return the service as an ASGI app; without `settings`, those of the environment.

    Its lifespan follows the store; with `opens_first` it starts when the store has been read.
    `app.state.draining`, a threading.Event, makes `/readyz` say no.
    """
    settings = settings or read_settings()
    limits = settings.limits
    draining = threading.Event()
    store = Store(settings.store)
    learning = OnlineLearning(settings)
    live = LiveModels(
        store,
        functools.partial(serve_model, learning=learning, limits=limits),
        models_max=limits.models_max,
        versions_max=limits.versions_max,
        seconds_max=limits.request_seconds_max,
    )
    metrics = Metrics()
    work = WorkPool(limits.threads_max, limits.queue_max, limits.request_seconds_max)
    threshold_work = WorkPool(
        THRESHOLD_THREADS, limits.queue_max, limits.request_seconds_max, "calls about thresholds"
    )
    feedback = FeedbackRoutes(live, learning, metrics, limits)
    batch = BatchRoutes(live, metrics, limits)
    stopping = threading.Event()
    tuning = TuneRoutes(live, learning, settings, _tuner(store, learning, limits.tune_seconds_max, stopping))
    health = HealthRoutes(live, metrics, draining.is_set)
    metrics.watch_thresholds(learning.follower)
    metrics.watch(live.status, lambda: health.ready)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        learning.start()
        following = asyncio.create_task(live.follow(settings.store_poll_seconds, _settle))
        with _on_hangup(live.wake):
            if opens_first:
                await live.has_looked.wait()
            yield
        stopping.set()
        following.cancel()
        for part in (live, work, threshold_work, batch, feedback, tuning):
            part.close()
        await asyncio.to_thread(learning.close)
        metrics.settle()

    app = Service(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan)
    app.state.draining = draining
    app.state.metrics = metrics
    handlers.install(app)
    routes = []
    predict = PredictRoutes(live, work, metrics, limits)
    for part in (
        predict,
        batch,
        feedback,
        ThresholdRoutes(live, learning, AdminKey(settings.admin_key), limits, threshold_work),
        tuning,
        health,
        ModelRoutes(live, store),
        DocsRoutes(openapi_document(limits)),
    ):
        routes += part.routes()
    app.router.routes += routes
    admission, direct = Admission(limits, STREAMS), Direct(routes, app.framework)
    app.request_scope = scope = RequestScope(direct, admission, metrics, settings.access_log, draining.is_set)
    paths = frozenset(route.path for route in predict.routes())
    wholes = WholeRequests(direct, paths, live, admission, metrics, scope, limits, draining.is_set)
    app.state.whole_requests = wholes
    return app


class Service(FastAPI):
    """The app. Requests go to its request scope; those that no route of ours takes come to the framework."""

    request_scope: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or follow the server's start and stop."""
        await (self.request_scope if scope["type"] == "http" else self.framework)(scope, receive, send)

    async def framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Do as any FastAPI app does."""
        await super().__call__(scope, receive, send)


def _tuner(store: Store, learning: OnlineLearning, seconds_max: float, stopping: threading.Event) -> Tune:
    """Return what tunes a version on a file; it gives up after a while, and when the service stops."""

    def tune(query: TuneQuery) -> dict[str, Any]:
        from service.workflows.tune import (  # readers of files: not before they are needed
            request_of,
            tune_and_keep,
        )

        give_up_at = time.monotonic() + seconds_max

        def on_progress(phase: str, *_: int) -> None:
            if stopping.is_set() or time.monotonic() > give_up_at:
                raise TimedOut(f"expected to tune within {seconds_max:g} seconds, found it not done: {phase}")

        model, version, method, data, test, empty, kappa, start, shadow = query
        request = request_of(None if method is None else [method], data, test, empty, kappa, start)
        opened = store.open(model, str(version))
        return tune_and_keep(opened, learning.database, request, shadow=shadow, on_progress=on_progress)

    return tune


def _settle() -> None:
    """Say that the store has been read, and keep the collector from walking what stays for good."""
    gc.collect()
    gc.freeze()
    log(logging.INFO, "models_opened")


@contextlib.contextmanager
def _on_hangup(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` at SIGHUP, also at one that was blocked until now, where the loop may listen to signals."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGHUP)
    loop.add_signal_handler(signal.SIGHUP, look)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # for a moment, removal sets the default
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
