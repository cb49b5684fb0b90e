"""The jobs as callers use them: submit, get, list, cancel, retry, log, follow, result.

Thread-safe, for any number of processes; all calls block but `follow`.

HTTP routes and `xylem jobs` use only this module and `xylem.admin.jobs.data` of the package.
"""

import asyncio
import copy
import hashlib
import itertools
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeAlias

from sqlalchemy import Connection, Row, func, insert, select

from xylem.admin.jobs.data import DataRoot
from xylem.admin.jobs.errors import IdempotencyConflict, JobConflict, JobNotFound
from xylem.admin.jobs.files import RESULT, directory_of, read_log
from xylem.admin.jobs.job import (
    STATES,
    Job,
    begin_totals,
    change,
    end,
    feedback_models,
    find,
    forget_old,
    job_of,
    models_of,
    take_turns,
)
from xylem.base import (
    JOBS,
    RECIPES,
    BadFields,
    BadRequest,
    Database,
    LimitExceeded,
    Overloaded,
    Principal,
    Settings,
    Unavailable,
    now,
)
from xylem_store import Conflict, ModelNotFound

REQUEST_BYTES_MAX = 64 << 10  # the most bytes of a job's request, as JSON

IDEMPOTENCY_KEY_MAX = 255  # the most characters of an idempotency key; they are visible ASCII
_KEY = re.compile(rf"[!-~]{{1,{IDEMPOTENCY_KEY_MAX}}}")
_ID_BYTES = 12

# The kinds of jobs that publish a version.
PUBLISHING = ("training", "combine", "extend", "vocabulary", "learn")

LEARN = "learn"  # the kind of jobs that repeat a recipe

_ALL_KINDS = (
    *PUBLISHING,
    "threshold-tuning",
    "batch",
)  # the keys of `xylem.admin.jobs.kinds.KINDS`, which is slow to import

FOLLOW_SECONDS = 0.5  # the pause between two looks at a job that is followed

# A function that runs a blocking call in another thread; it takes a function and its arguments.
Look: TypeAlias = Callable[..., Awaitable[Job]]


class Jobs:
    """The jobs of a store and its database.

    database  the caller's, which closes it
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._store = settings.store
        self._follows = settings.store_remote is not None
        self._limits = settings.limits
        self.data = DataRoot(settings.data_dir, settings.limits.data_bytes_max)
        self._ray_address = settings.ray_address
        self._sender: Principal | None = None

    def seen_by(self, sender: Principal) -> Self:
        """Return the jobs as the owner of a key sees them.

        A job of which a model, or a file that it would read, does not exist for this sender is not
        there, and cannot be submitted.
        """
        view = copy.copy(self)
        if sender.models is not None:
            view._sender = sender
            view.data = self.data.below(sender.data_prefix)
        return view

    def sees(self, model: str, request: Mapping[str, Any]) -> bool:
        """Return whether all models of a checked request exist for whom these jobs are."""
        sender = self._sender
        return sender is None or all(map(sender.sees, models_of(model, request)))

    def submit(
        self,
        kind: str,
        body: object,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> Job:
        """Check a request and add a job for it, or return the job that came with this key before.

        kind             one of `xylem.admin.jobs.kinds.KINDS`
        body             the JSON value of the request
        idempotency_key  the same key and request give the same job
        traceparent      the span of the caller, which the job's span continues

        Raises BadFields with all faults, each with its place; IdempotencyConflict; Overloaded if
        too many jobs wait; LimitExceeded; BadRequest for an unknown kind, or a key with forbidden
        characters; DatabaseUnavailable.
        """
        request, model = self.check(kind, body)
        return self.add(kind, model, request, idempotency_key, traceparent)

    def check(self, kind: str, body: object) -> tuple[dict[str, Any], str]:
        """Return a request as it is stored, and the name of its model.

        Raises what `submit` raises for a request that is not valid, and ModelNotFound for a model
        that the sender does not see.
        """
        if kind in PUBLISHING and self._follows:
            raise Conflict(
                "expected a store to publish to, found one that follows XYLEM_STORE_REMOTE: "
                "train in another store, and push the version from there"
            )
        # imported only now, because trainers and readers come with them
        from xylem.admin.jobs.kinds import check_request
        from xylem.serving import store_of

        request, model = check_request(kind, body, self.data, self._limits)
        if not self.sees(model, request):
            raise ModelNotFound("model: expected models of the store, found one that it has not")
        n_bytes = len(_request_json(request).encode())
        if n_bytes > REQUEST_BYTES_MAX:
            raise LimitExceeded(
                f"expected a request of at most {REQUEST_BYTES_MAX} bytes, found {n_bytes}"
            )
        if request.get("executor") == "ray" and self._ray_address is None:
            fault = "expected local, as XYLEM_RAY_ADDRESS is not set, found ray"
            raise BadFields([BadRequest(fault).with_path("executor")])
        if kind == LEARN:
            with self._database.read() as connection:
                read_recipe(connection, model)
        store = store_of(self._store)
        for name in feedback_models(request):
            versions = store.versions(name)
            if not versions:
                fault = f"expected feedback to a model of the store, found {name!r}"
            elif store.manifest(name, versions[-1]).features["kind"] == "raw":
                fault = (
                    f"expected feedback of texts or named features, found {name}, a "
                    "model of sparse rows"
                )
            else:
                continue
            raise BadFields([BadRequest(fault).with_path("data")])
        return request, model

    def add(
        self,
        kind: str,
        model: str,
        request: Mapping[str, Any],
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> Job:
        """Add a job with a checked request, or return the job that came with this key before.

        traceparent  the span of the request that submits it

        Raises IdempotencyConflict for a key that came with another request, Overloaded if too many
        jobs wait (limit jobs_queued_max), BadRequest for a key with forbidden characters, and
        DatabaseUnavailable.
        """
        if idempotency_key is not None and not _KEY.fullmatch(idempotency_key):
            expected = f"1 to {IDEMPOTENCY_KEY_MAX} visible characters of ASCII"
            raise BadRequest(
                f"idempotency key: expected {expected}, found {len(idempotency_key)} characters, "
                "or forbidden ones"
            )
        request_json = _request_json(request)
        digest = hashlib.sha256(f"{kind}\n{request_json}".encode()).hexdigest()
        with self._database.write() as connection:
            take_turns(connection)
            earlier_row = (
                None
                if idempotency_key is None
                else connection.execute(
                    select(JOBS).where(JOBS.c.idempotency_key == idempotency_key)
                ).one_or_none()
            )
            if earlier_row is not None:
                if earlier_row.request_sha256 != digest:
                    raise IdempotencyConflict(
                        "expected the request that came with this idempotency key before, "
                        f"that of job {earlier_row.id}, found another"
                    )
                return job_of(earlier_row)
            self._check_room(connection)
            values: dict[str, Any] = {
                "id": secrets.token_hex(_ID_BYTES),
                "kind": kind,
                "model": model,
                "state": "queued",
                "request": request_json,
                "request_sha256": digest,
                "idempotency_key": idempotency_key,
                "created": now(connection),
                "attempts": 0,
                "cancel_asked": False,
                "revision": 1,
                "traceparent": traceparent,
            }
            connection.execute(insert(JOBS).values(values))
            begin_totals(connection, kind)
            return job_of(find(connection, values["id"]))

    def get(self, job_id: str) -> Job:
        """Return a job. Clients get it as `Job.as_json()`.

        Raises JobNotFound, DatabaseUnavailable.
        """
        with self._database.read() as connection:
            return job_of(self._find(connection, job_id))

    def _find(self, connection: Connection, job_id: str, *, lock: bool = False) -> Row[Any]:
        """Return the row of a job that the sender sees. Raises JobNotFound."""
        row = find(connection, job_id, lock=lock)
        if not self.sees(row.model, json.loads(row.request)):
            raise JobNotFound(f"expected the id of a job, found {job_id[:40]!r}")
        return row

    def list(
        self,
        state: str | None = None,
        model: str | None = None,
        kind: str | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Return at most `limit` jobs, the newest first; only those of this state, model and kind.

        None stands for any state, model or kind.

        Raises BadRequest for a state or kind that does not exist, and DatabaseUnavailable.
        """
        for name, value, choices in (("state", state, STATES), ("kind", kind, _ALL_KINDS)):
            if value is not None and value not in choices:
                raise BadRequest(
                    f"expected one of {', '.join(choices)}, found {value[:40]!r}"
                ).with_path(name)
        if model is not None and "\0" in model:  # which PostgreSQL refuses
            return []
        filters = {"state": state, "model": model, "kind": kind}
        query = select(JOBS).order_by(JOBS.c.number.desc())
        for name, value in filters.items():
            query = query if value is None else query.where(JOBS.c[name] == value)
        with self._database.read() as connection:
            jobs = map(job_of, connection.execute(query if self._sender else query.limit(limit)))
            return list(
                itertools.islice((job for job in jobs if self.sees(job.model, job.request)), limit)
            )

    def cancel(self, job_id: str) -> Job:
        """Cancel a job: at once if it waits; if it runs, its worker cancels it within seconds.

        Nothing happens to a job that is cancelled already, or is about to be. Raises JobConflict
        for a job that has succeeded or failed, JobNotFound and DatabaseUnavailable.
        """
        with self._database.write() as connection:
            row = self._find(connection, job_id, lock=True)
            if row.state in ("succeeded", "failed"):
                raise JobConflict(
                    f"job {row.id}: expected one that waits or runs, found it {row.state}"
                )
            if row.state == "queued":
                end(connection, row.id, "cancelled")
                forget_old(connection, self._limits.jobs_kept_max)
            elif row.state == "running" and not row.cancel_asked:
                change(connection, row.id, cancel_asked=True)
            return job_of(find(connection, job_id))

    def retry(self, job_id: str) -> Job:
        """Queue a job again that failed or was cancelled, with 0 attempts; return it.

        A version that it published stays, and is not published again. Raises JobConflict for a job
        that waits, runs or has succeeded, Overloaded, JobNotFound and DatabaseUnavailable.
        """
        with self._database.write() as connection:
            take_turns(connection)
            row = self._find(connection, job_id, lock=True)
            if row.state not in ("failed", "cancelled"):
                raise JobConflict(
                    f"job {row.id}: expected one that failed or was cancelled, found it {row.state}"
                )
            self._check_room(connection)
            change(
                connection,
                row.id,
                state="queued",
                attempts=0,
                cancel_asked=False,
                started=None,
                ended=None,
                error=None,
                error_code=None,
                progress=None,
            )
            return job_of(find(connection, job_id))

    def _check_room(self, connection: Connection) -> None:
        n_queued = connection.execute(
            select(func.count()).where(JOBS.c.state == "queued")
        ).scalar_one()
        if n_queued >= self._limits.jobs_queued_max:
            raise Overloaded(
                f"expected at most {self._limits.jobs_queued_max} jobs that wait "
                f"(limit jobs_queued_max), found {n_queued}"
            )

    def log_text(self, job_id: str) -> str:
        """Return the log of a job so far, at most `job_log_bytes_max` bytes. Raises JobNotFound."""
        self.get(job_id)
        return read_log(self._store, job_id).decode("utf-8", "replace")

    async def follow(
        self, job_id: str, since_revision: int = 0, look: Look = asyncio.to_thread
    ) -> AsyncIterator[Job | None]:
        """Yield the job at first, and whenever it has changed; yield None if it has not changed.

        The iterator ends when the job has ended, or is not known any more. If the database does not
        answer, it goes on, and yields the changes once the database answers again.

        since_revision  only later revisions are yielded (the Last-Event-ID of server-sent events)
        look            runs a blocking call in a thread

        For an event loop. Raises JobNotFound and DatabaseUnavailable only at the beginning. Limit
        the number of followers: each reads the database twice a second.
        """
        job = await look(self.get, job_id)
        while True:
            is_new = job.revision > since_revision
            if is_new:
                since_revision = job.revision
                yield job
            if job.has_ended:
                return
            if not is_new:
                yield None
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                job = await look(self.get, job_id)
            except JobNotFound:  # it has ended, and its row was removed
                return
            except Unavailable:
                continue

    def result_file(self, job_id: str) -> Path:
        """Return the file with the predictions of a batch, lines of JSON. It does not change.

        Raises JobConflict for a job that has not succeeded, or whose kind has no file; JobNotFound;
        DatabaseUnavailable.
        """
        job = self.get(job_id)
        if job.kind != "batch":
            raise JobConflict(
                f"job {job.id}: expected a batch, which has a file as result, found {job.kind}"
            )
        if job.state != "succeeded":
            raise JobConflict(
                f"job {job.id}: expected one that has succeeded, found it {job.state}"
            )
        path = directory_of(self._store, job.id) / RESULT
        if not path.is_file():
            raise JobConflict(
                f"job {job.id}: expected its result in the store, found that it was removed"
            )
        return path


def read_recipe(connection: Connection, model: str) -> Row[Any]:
    """Return the row of a model's recipe. Raises BadRequest if it has none."""
    row = connection.execute(select(RECIPES).where(RECIPES.c.model == model)).one_or_none()
    if row is None:
        raise BadRequest(
            f"{model}: expected a recipe, found none: xylem learn makes one, or PUT "
            f"/v1/admin/models/{model}/recipe"
        ).with_path("model")
    return row


def _request_json(request: Mapping[str, Any]) -> str:
    return json.dumps(request, sort_keys=True, separators=(",", ":"))
