"""Figures of jobs for Prometheus: which wait, run and have ended; and a worker's `/metrics`.

All are read from the database, so every process reports the same figures.
"""

import contextlib
import json
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Row, and_, case, func, select

from xylem.admin.jobs.job import ENDED
from xylem.base import (
    JOB_TOTALS,
    JOBS,
    AccessScope,
    Database,
    DatabaseUnavailable,
    KeyRing,
    ProcessFigures,
    Repeating,
    Settings,
    XylemError,
    listen,
    log,
    now,
    url_of,
)
from xylem.serving import PROBLEMS, code_of, describe_error

READ_SECONDS = 2.0  # the pause between two reads of the figures of a server

# The longest wait for the next bytes of a request to a worker, which answers one at a time.
REQUEST_SECONDS = 5.0

_QUEUED = "queued"
_RUNNING = "running"


# Figures that were read from the database.
#
# A tuple of three: the time, by the database's clock; for the jobs that have not ended, rows (kind,
# state, n, since), where `since` is the time from which the oldest has waited or run; and for the
# jobs that have ended, rows (kind, state, n, seconds).
_Figures: TypeAlias = tuple[float, Sequence[Row[Any]], Sequence[Row[Any]]]


class JobFigures(Collector):
    """The figures of jobs as they were last read. Thread-safe.

    There are none while the database does not answer. Use `start` and `close` to have them read
    regularly, or `read`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last_figures: _Figures | None = None
        following = Repeating("job-figures", self.read, READ_SECONDS, at_once=True)
        self.start = following.start
        self.close = following.stop

    def read(self) -> bool:
        """Read the figures now; return whether there are any. Blocking.

        A database that does not answer is not reported here: other parts report it.
        """
        figures = None
        with contextlib.suppress(DatabaseUnavailable), self._database.read() as connection:
            figures = _figures(connection)
        self._last_figures = figures
        return figures is not None

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        labels = ("kind", "state")
        jobs = GaugeMetricFamily("xylem_jobs", "Jobs that wait or run.", labels=labels)
        oldest = GaugeMetricFamily(
            "xylem_job_oldest_seconds",
            "How long the oldest job of this kind and state has waited or run.",
            labels=labels,
        )
        ended = CounterMetricFamily(
            "xylem_jobs_ended", "Jobs that have ended, by their final state.", labels=labels
        )
        seconds = CounterMetricFamily(
            "xylem_job_seconds", "Time that ended jobs ran.", labels=labels
        )
        if self._last_figures is not None:
            read_at, present, past = self._last_figures
            row_of = {(row.kind, row.state): row for row in present}
            for kind in sorted({row.kind for row in past}):
                for state in (_QUEUED, _RUNNING):
                    row = row_of.get((kind, state))
                    jobs.add_metric((kind, state), 0 if row is None else row.n)
                    oldest.add_metric(
                        (kind, state), 0 if row is None else max(read_at - row.since, 0.0)
                    )
            for row in past:
                ended.add_metric((row.kind, row.state), row.n)
                seconds.add_metric((row.kind, row.state), row.seconds)
        yield from (jobs, oldest, ended, seconds)


def _figures(connection: Connection) -> _Figures:
    """Read the figures. A job whose worker has died counts as one that waits."""
    read_at = now(connection)
    is_running = and_(JOBS.c.state == _RUNNING, JOBS.c.lease_until >= read_at)
    state = case((is_running, _RUNNING), else_=_QUEUED).label("state")
    since = case((is_running, JOBS.c.started), else_=JOBS.c.created).label("since")
    live_jobs = select(JOBS.c.kind, state, since).where(JOBS.c.state.not_in(ENDED)).subquery()
    figures = func.count().label("n"), func.min(live_jobs.c.since).label("since")
    grouped = select(live_jobs.c.kind, live_jobs.c.state, *figures).group_by(
        live_jobs.c.kind, live_jobs.c.state
    )
    rows = connection.execute(grouped).all()
    ended = connection.execute(
        select(JOB_TOTALS).order_by(JOB_TOTALS.c.kind, JOB_TOTALS.c.state)
    ).all()
    return read_at, rows, ended


class FiguresPage:
    """Answers `GET /metrics` and `GET /livez` of a worker, in a thread.

    If the settings do not open the scope `metrics`, a request needs a key with that scope.
    """

    def __init__(self, database: Database, settings: Settings, port: int) -> None:
        """Listen on the host of the settings. Raises Unavailable.

        database  the caller's, which closes it
        port      0: a free port
        """
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(ProcessFigures())
        self._figures = JobFigures(database)
        registry.register(self._figures)
        self._page = make_wsgi_app(registry)
        self._ring = KeyRing(database, settings, on_first_key=None)
        listener = listen(settings.host, port)
        self._server = WSGIServer(
            listener.getsockname()[:2], _QuietHandler, bind_and_activate=False
        )
        self._server.socket.close()  # its own socket, which has only one address family
        self._server.socket = listener
        self._server.server_name, self._server.server_port = listener.getsockname()[:2]
        self._server.setup_environ()
        self._server.set_app(self._answer)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="figures", daemon=True
        )
        self._thread.start()
        self.port = self._server.server_port
        log(logging.INFO, "listening", url=f"{url_of(self._server.server_name, self.port)}/metrics")

    def close(self) -> None:
        """Stop answering. Blocks until the present answer is sent."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        status = 404
        problem = {
            "detail": f"expected GET /metrics or /livez, found {environ['PATH_INFO'][:200]!r}"
        }
        if environ["PATH_INFO"] == "/livez":  # as of servers: without a key, or the database
            start_response("200 OK", [("Content-Type", "application/json")])
            return [b'{"status":"alive"}']
        if environ["PATH_INFO"] == "/metrics":
            try:
                self._check(environ.get("HTTP_AUTHORIZATION"))
                self._figures.read()
                page: Iterable[bytes] = self._page(environ, start_response)
                return page
            except XylemError as error:
                status = PROBLEMS[code_of(error)].status
                problem = describe_error(error)
        start_response(
            f"{status} {HTTPStatus(status).phrase}", [("Content-Type", "application/problem+json")]
        )
        return [json.dumps({"status": status, **problem}).encode()]

    def _check(self, authorization: str | None) -> None:
        """Check the header Authorization of a request for figures.

        Raises AccessRefused if its key does not open the scope `metrics`, and DatabaseUnavailable.
        """
        if not self._ring.is_open(AccessScope.METRICS, None):
            # without an answer of the database, the keys that were read last are valid for a while
            with contextlib.suppress(DatabaseUnavailable):
                self._ring.refresh()
            self._ring.sender_of(
                None if authorization is None else authorization.encode("latin-1"),
                AccessScope.METRICS,
                None,
            )


class _QuietHandler(WSGIRequestHandler):
    """Reads a request within REQUEST_SECONDS, and logs nothing."""

    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""
