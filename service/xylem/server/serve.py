"""Run the service: one process, or several that share a socket and are restarted when they die.

SIGTERM: `/readyz` answers that the service is not ready; requests are still accepted for a while;
then those in flight are completed, and the process ends with status 0.
SIGHUP: every process looks at the store at once.
SIGINT: like SIGTERM, but stops accepting requests at once.
"""

import asyncio
import contextlib
import logging
import math
import multiprocessing
import os
import secrets
import select
import signal
import socket
import sys
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

import uvicorn

from xylem.admin import JobWorkers, RemoteFollower, RemoteStore
from xylem.api import WorkerPlace, bounded_protocol, create_app
from xylem.base import (
    Settings,
    Unavailable,
    are_on,
    collect_seldom,
    configure,
    describe_access,
    listen,
    load_extra,
    log,
    redacted_url,
    url_of,
    write_in_background,
)
from xylem.server.descriptors import are_used_up, raise_limit
from xylem.serving import store_of

# The pause before a dead worker is started again, so that one that cannot run costs little.
RESTART_SECONDS = 1.0

# How long a thread may keep the interpreter from other threads.
#
# While batches are answered or feedback is written, the event loop waits this long at each read and
# write. Python's default is fifty times as long, a good part of a block's total time. A thread that
# releases the interpreter for a few microseconds before this time is over gets it back at once; it
# does not wait until another thread has had it. The writer of feedback releases the interpreter in
# this way at each statement, about every 0.1 ms.
SWITCH_SECONDS = 0.0001

# workers are killed if they have not ended this long after the time that requests are given
GRACE_SECONDS = 5.0

# The most bytes of an answer that the system buffers before it can send them.
#
# All further bytes are kept, and counted, in this process. By default the system buffers megabytes,
# which count towards the memory limit of a control group too.
UNSENT_BYTES_MAX = 128 << 10

# how long jobs wait for the models to be opened, so that they do not compete for processors
_OPENING_SECONDS = 30

_TICKS_A_SECOND = 10  # uvicorn calls on_tick this often


def run(settings: Settings) -> None:
    """Serve with these settings until told to stop.

    Raises Unavailable for a port in use, BadParameter for environment variables of OpenTelemetry
    that are not valid, and for gRPC without its library.
    """
    if settings.grpc_port is not None:
        load_extra("grpc")  # raises here once, not in each worker
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the event loop handles it
    configure(settings.log_level)
    write_in_background()
    are_on(settings)  # raises for wrong settings of traces: here once, not in each worker
    raise_limit(settings.limits.requests_max)
    listener = listen(settings.host, settings.port)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
    if settings.grpc_port is not None:
        reserved = reserve(settings.host, settings.grpc_port)  # for as long as this function runs
        grpc_port = reserved.getsockname()[1]
        settings = settings.model_copy(update={"grpc_port": grpc_port})
        log(logging.INFO, "listening_grpc", host=settings.host, port=grpc_port)
    log(logging.INFO, "access", **describe_access(settings))
    log(
        logging.INFO,
        "listening",
        url=url_of(*listener.getsockname()[:2]),
        workers=settings.workers,
        jobs=settings.jobs,
        pid=os.getpid(),
    )
    jobs = JobWorkers(settings)
    follower = follow_remote(settings)
    try:
        if settings.workers == 1:
            _Server(settings, jobs=jobs).run([listener])
        else:
            _Supervisor(settings, listener, jobs).run()
    finally:
        if follower is not None:
            follower.stop(GRACE_SECONDS)
        jobs.stop()
        jobs.join()
    log(logging.INFO, "stopped", pid=os.getpid())


def reserve(host: str, port: int) -> socket.socket:
    """Return a socket that keeps a port for the processes that bind it with SO_REUSEPORT.

    gRPC opens its own sockets. It would share a port with another server that is there already.
    Raises Unavailable for a port in use.
    """
    with listen(host, port) as listener:
        address = listener.getsockname()
        reserved = socket.socket(listener.family)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(address)
    return reserved


def follow_remote(settings: Settings) -> RemoteFollower | None:
    """Bring the store up to date with the object store, and begin to follow it. None without one.

    Models that are in the store already are served even if the object store does not answer. Raises
    Unavailable if there are none: a replica that is started again later is better than one that
    serves no model.
    """
    if settings.store_remote is None:
        return None
    store = store_of(settings.store)
    store.prepare()
    follower = RemoteFollower(
        RemoteStore(settings.store_remote),
        store,
        poll_seconds=settings.store_remote_poll_seconds,
        keep=settings.store_remote_keep,
    )
    if not follower.look() and not store.models():
        raise Unavailable(
            f"{redacted_url(settings.store_remote)}: expected to fetch models, found none: see the "
            "log"
        )
    follower.start()
    return follower


class _Server(uvicorn.Server):
    """uvicorn's server, which reports that it is not ready before it stops accepting connections.

    parent       the process that this one stops with; None: it runs on its own
    opened       None for a worker that accepts connections at once; another worker accepts them
                 when it has opened the models and this connection has ended
    opening      a connection that this process closes when it has opened the models, because others
                 wait for it; None: nobody waits
    jobs         the workers of jobs, if this process looks after them
    """

    def __init__(
        self,
        settings: Settings,
        parent: int | None = None,
        *,
        opened: Connection | None = None,
        opening: Connection | None = None,
        jobs: JobWorkers | None = None,
        place: WorkerPlace | None = None,
    ) -> None:
        self._app = create_app(settings, opens_first=opened is not None, opened=opened, place=place)
        self._opening = opening
        self._inference: Any = None
        if settings.grpc_port is not None:
            self._inference = load_extra("grpc").InferenceServer(self._app, settings)
        self._drain_seconds = settings.drain_seconds
        self._parent = parent
        self._jobs = jobs
        self._stop_at = math.inf
        self._is_out_of_descriptors = False
        sys.setswitchinterval(SWITCH_SECONDS)
        super().__init__(
            uvicorn.Config(
                self._app,
                http=bounded_protocol(
                    settings.limits,
                    self._app.state.slow_readers,
                    self._app.state.unparsed_requests,
                    self._app.state.whole_requests,
                    self._app.state.metrics.count_aborted,
                ),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=math.ceil(settings.keep_alive_seconds),
                timeout_graceful_shutdown=math.ceil(settings.shutdown_seconds),
            )
        )
        logger = logging.getLogger("uvicorn.error")
        logger.setLevel(logging.WARNING)
        # requests are cancelled at the end of a shutdown: not worth an error in the log
        logger.addFilter(
            lambda r: not (r.exc_info and isinstance(r.exc_info[1], asyncio.CancelledError))
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop. A second signal, or SIGINT, stops accepting at once."""
        if sig == signal.SIGINT and self._parent is not None:
            return  # the terminal sends it to the whole group; the parent decides
        if sig == signal.SIGTERM and not self._app.state.draining.is_set():
            self._drain()
        else:
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self._app.state.draining.set()
            self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and answer requests."""
        await super().startup(sockets)
        if self._inference is not None:
            await self._inference.start()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop accepting connections now. Called ten times a second."""
        if self._parent not in (None, os.getppid()) and not self._app.state.draining.is_set():
            log(logging.ERROR, "parent_died", pid=os.getpid())
            self._drain()
        if self._opening is not None and self._app.state.services.ready:
            self._opening.close()
            self._opening = None
        if self._inference is not None:
            await self._inference.report_health()
        self.should_exit = self.should_exit or time.monotonic() >= self._stop_at
        if counter % _TICKS_A_SECOND == 0:
            was_out_of_descriptors = self._is_out_of_descriptors
            self._is_out_of_descriptors = are_used_up()
            # log it, because the event loop closes connections silently
            if self._is_out_of_descriptors and not was_out_of_descriptors:
                log(
                    logging.ERROR,
                    "descriptors_used_up",
                    detail=(
                        "expected a file descriptor for the next connection, found none: "
                        "raise ulimit -n"
                    ),
                )
            if self._jobs is not None and self._may_work(counter // _TICKS_A_SECOND):
                self._jobs.tend()
        return await super().on_tick(counter)

    def _may_work(self, seconds: int) -> bool:
        """Return whether jobs may run, this number of seconds after the start.

        They wait until the models are open, but no longer than _OPENING_SECONDS.
        """
        return (
            self._app.state.services.ready or seconds >= _OPENING_SECONDS
        ) and not self._app.state.draining.is_set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, and end the application. A second SIGINT does not wait for requests in flight."""
        if self._inference is not None:
            # uvicorn waits for it as for requests in flight, and no longer
            ending = asyncio.create_task(self._inference.stop())
            self.server_state.tasks.add(ending)
            ending.add_done_callback(self.server_state.tasks.discard)
        await super().shutdown(sockets)
        # otherwise uvicorn would not end the app, and would log that its task is cancelled
        if self.force_exit:
            await self.lifespan.shutdown()

    def _drain(self) -> None:
        self._app.state.draining.set()
        if self._jobs is not None:
            self._jobs.stop()
        self._stop_at = time.monotonic() + self._drain_seconds


class _Supervisor:
    """Starts workers on one socket, passes signals on, and starts a worker again when it dies."""

    def __init__(self, settings: Settings, listener: socket.socket, jobs: JobWorkers) -> None:
        self._settings = settings
        self._jobs = jobs
        self._listener = listener
        self._spawn = multiprocessing.get_context("spawn")
        self._workers: dict[int, BaseProcess] = {}
        self._name = secrets.token_hex(16)
        # The pipe ends when the first worker has opened its models, or has died.
        self._opened, self._opening = multiprocessing.Pipe(duplex=False)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        arrivals, wake = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # the wake-up descriptor gets its number
        arrived = b""
        while not {signal.SIGTERM, signal.SIGINT} & set(arrived):
            if signal.SIGHUP in arrived:
                self._send(signal.SIGHUP)
            for place, worker in list(self._workers.items()):
                if not worker.is_alive():
                    log(logging.ERROR, "worker_died", pid=worker.pid, status=worker.exitcode)
                    del self._workers[place]
            for place in range(self._settings.workers):
                if place not in self._workers:
                    try:
                        self._workers[place] = self._start(place)
                    # no process or memory is available now: other workers serve on
                    except OSError as error:
                        log(logging.ERROR, "worker_failed", detail=error.strerror)
            self._jobs.tend()
            readable, _, _ = select.select([arrivals], [], [], RESTART_SECONDS)
            arrived = arrivals.recv(4096) if readable else b""
        self._stop()

    def _start(self, number: int) -> BaseProcess:
        """Return a new worker with that number, in which SIGHUP is blocked until it is handled.

        The first worker accepts connections at once, because somebody must answer that the service
        lives, and is not ready. If another worker lives, and answers, a new one accepts nothing
        before its own models and those of the first worker are open: so when one worker says that
        the service is ready, each of them is.

        SIGHUP is blocked, not handled: a handler does not outlive the worker's exec, after which
        the default action would end the worker. A blocked signal stays blocked, and waits.
        """
        place = WorkerPlace(self._name, number, self._settings.workers)
        follows = bool(self._workers)
        opened = self._opened if follows else None
        opening = None if follows or self._opening.closed else self._opening
        worker = self._spawn.Process(
            target=_work, args=(self._settings, self._listener, os.getpid(), opened, opening, place)
        )
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        try:
            worker.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        self._opening.close()  # the first worker has the only other copy
        log(logging.INFO, "worker_started", pid=worker.pid)
        return worker

    def _stop(self) -> None:
        self._jobs.stop()
        self._send(signal.SIGTERM)
        seconds = self._settings.drain_seconds + self._settings.shutdown_seconds + GRACE_SECONDS
        deadline = time.monotonic() + seconds
        for worker in self._workers.values():
            worker.join(max(0.0, deadline - time.monotonic()))
            if worker.is_alive():
                log(logging.ERROR, "worker_killed", pid=worker.pid)
                worker.kill()
                worker.join()

    def _send(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            if worker.pid is not None and worker.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, number)


def _work(
    settings: Settings,
    listener: socket.socket,
    parent: int,
    opened: Connection | None,
    opening: Connection | None,
    place: WorkerPlace,
) -> None:
    """Serve in a worker process, which is started with SIGHUP blocked."""
    signal.signal(signal.SIGHUP, lambda *_: None)  # SIG_IGN would drop a signal that waits
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    configure(settings.log_level)
    write_in_background()
    collect_seldom()
    _Server(settings, parent, opened=opened, opening=opening, place=place).run([listener])
