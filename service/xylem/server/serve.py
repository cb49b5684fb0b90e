"""Run the service: one process, or several that share a socket and are restarted when they die.

SIGTERM: `/readyz` says no, for a while requests are still accepted, then those in flight are
completed, then the process ends with status 0. SIGHUP: every process looks at the store at once.
SIGINT: as SIGTERM, at once.
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

import uvicorn

from xylem.admin import JobWorkers, RemoteFollower, RemoteStore
from xylem.api import WorkerPlace, bounded_protocol, create_app
from xylem.base import (
    Settings,
    Unavailable,
    are_on,
    are_used_up,
    collect_seldom,
    configure,
    describe_access,
    listen,
    log,
    raise_limit,
    redacted_url,
    url_of,
    write_in_background,
)
from xylem.serving import store_of

RESTART_SECONDS = 1.0
"""A worker that died is started again after this pause, so that one that cannot live
costs little.
"""

SWITCH_SECONDS = 0.0001
"""How long a thread may keep the interpreter from others: the event loop waits for it at each read
and write while batches are answered or feedback is written. Python's default, fifty times as long,
is a good part of a block's whole time. Who lets the interpreter go sooner than this, for a few
microseconds, is not made to wait until another has it: the writer of feedback does that at each
statement, about every 0.1 ms.
"""

# given to workers to end beyond what the settings give to requests; then they are killed
GRACE_SECONDS = 5.0
UNSENT_BYTES_MAX = 128 << 10
"""Bytes of an answer that the system takes before it can send them; the rest is held, and counted,
here. By default it takes megabytes, which a memory limit of a control group counts too.
"""

_OPENING_SECONDS = 30
"""For so long jobs wait for the models to be opened: their process
would compete with that for processors.
"""

_TICKS_A_SECOND = 10  # of uvicorn's


def run(settings: Settings) -> None:
    """Serve as the settings say until told to stop.

    Raises Unavailable for a port in use, BadParameter for variables of OpenTelemetry that are not
    understood.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the event loop listens to it
    configure(settings.log_level)
    write_in_background()
    are_on(settings)  # what is wrong with traces is told once, and not by each worker that it ends
    raise_limit(settings.limits.requests_max)
    listener = listen(settings.host, settings.port)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
    url = url_of(*listener.getsockname()[:2])
    log(logging.INFO, "access", **describe_access(settings))
    log(
        logging.INFO,
        "listening",
        url=url,
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


def follow_remote(settings: Settings) -> RemoteFollower | None:
    """Bring the store up to date with the object store, if there is one, and begin to follow it.

    What is in the store already is served also when the object store does not answer. Raises
    Unavailable when nothing is: a replica that is started again later is better than one that knows
    no model.
    """
    if settings.store_remote is None:
        return None
    store = store_of(settings.store)
    store.prepare()
    seconds = settings.store_remote_poll_seconds
    keep = settings.store_remote_keep
    follower = RemoteFollower(
        RemoteStore(settings.store_remote), store, poll_seconds=seconds, keep=keep
    )
    if not follower.look() and not store.models():
        url = redacted_url(settings.store_remote)
        raise Unavailable(f"{url}: expected to fetch models, found none: see the log")
    follower.start()
    return follower


class _Server(uvicorn.Server):
    """uvicorn's server, which says that it is not ready before it stops to accept.

    parent       the process without which this one stops too; None: it is on its own
    opened       None for a worker that accepts connections at once; else it accepts them when it
                 has opened the models and this connection has ended
    opening      what this process closes when it has opened the models: others wait for it
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
        self._drain_seconds = settings.drain_seconds
        self._parent = parent
        self._jobs = jobs
        self._stop_at = math.inf
        self._is_out = False
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
        # a request that is given up at the end is nothing to tell of
        logger.addFilter(
            lambda r: not (r.exc_info and isinstance(r.exc_info[1], asyncio.CancelledError))
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; at the second signal, or SIGINT, stop accepting at once."""
        if sig == signal.SIGINT and self._parent is not None:
            return  # the terminal sends it to the whole group; the parent says what to do
        if sig == signal.SIGTERM and not self._app.state.draining.is_set():
            self._drain()
        else:
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self._app.state.draining.set()
            self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop accepting now. Called ten times a second."""
        if self._parent not in (None, os.getppid()) and not self._app.state.draining.is_set():
            log(logging.ERROR, "parent_died", pid=os.getpid())
            self._drain()
        if self._opening is not None and self._app.state.services.ready:
            self._opening.close()
            self._opening = None
        self.should_exit = self.should_exit or time.monotonic() >= self._stop_at
        if counter % _TICKS_A_SECOND == 0:
            was_out = self._is_out
            self._is_out = are_used_up()
            if self._is_out and not was_out:  # the loop closes connections without a word
                detail = (
                    "expected a file descriptor for the next connection, found none: "
                    "raise ulimit -n"
                )
                log(logging.ERROR, "descriptors_used_up", detail=detail)
            if self._jobs is not None and self._may_work(counter // _TICKS_A_SECOND):
                self._jobs.tend()
        return await super().on_tick(counter)

    def _may_work(self, seconds: int) -> bool:
        """Return whether jobs may be worked on after so many seconds: the models are
        opened first.
        """
        is_settled = self._app.state.services.ready or seconds >= _OPENING_SECONDS
        return is_settled and not self._app.state.draining.is_set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, at a second SIGINT without waiting for what is in flight, and let the app end."""
        await super().shutdown(sockets)
        # then uvicorn leaves the app where it is, and logs how its task is cancelled
        if self.force_exit:
            await self.lifespan.shutdown()

    def _drain(self) -> None:
        self._app.state.draining.set()
        if self._jobs is not None:
            self._jobs.stop()
        self._stop_at = time.monotonic() + self._drain_seconds


class _Supervisor:
    """Starts workers on one socket, hands signals on, and starts a worker again when it dies."""

    def __init__(self, settings: Settings, listener: socket.socket, jobs: JobWorkers) -> None:
        self._settings = settings
        self._jobs = jobs
        self._listener = listener
        self._spawn = multiprocessing.get_context("spawn")
        self._workers: dict[int, BaseProcess] = {}
        self._name = secrets.token_hex(16)
        # It ends when the first worker has opened its models, or has died.
        self._opened, self._opening = multiprocessing.Pipe(duplex=False)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        arrivals, wake = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # its number is written to the descriptor
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
                    except (
                        OSError
                    ) as error:  # no process or memory is to be had now: the others serve on
                        log(logging.ERROR, "worker_failed", detail=error.strerror)
            self._jobs.tend()
            readable, _, _ = select.select([arrivals], [], [], RESTART_SECONDS)
            arrived = arrivals.recv(4096) if readable else b""
        self._stop()

    def _start(self, number: int) -> BaseProcess:
        """Return a new worker of that number, from which SIGHUP is kept
        until its event loop listens to it.

        The first one accepts at once: somebody must say that the service lives, and is not ready.
        While another one lives, which answers, it accepts nothing before its models are open, and
        those of the first: when one worker says that the service is ready, each of them is. A
        handler does not outlive the worker's exec, which would leave the signal's default: to end
        it. A blocked signal stays blocked, and waits.
        """
        place = WorkerPlace(self._name, number, self._settings.workers)
        follows = bool(self._workers)
        opened = self._opened if follows else None
        opening = None if follows or self._opening.closed else self._opening
        arguments = (self._settings, self._listener, os.getpid(), opened, opening, place)
        worker = self._spawn.Process(target=_work, args=arguments)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        try:
            worker.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        self._opening.close()  # the pipe ends with the first worker's copy
        log(logging.INFO, "worker_started", pid=worker.pid)
        return worker

    def _stop(self) -> None:
        """End the workers, by force those that do not."""
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
    """Serve in a worker process, started with SIGHUP blocked."""
    signal.signal(signal.SIGHUP, lambda *_: None)  # to ignore it would forget one that waits
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    configure(settings.log_level)
    write_in_background()
    collect_seldom()
    server = _Server(settings, parent, opened=opened, opening=opening, place=place)
    server.run([listener])
