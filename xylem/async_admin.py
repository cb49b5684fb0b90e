"""What admins ask for: jobs, files, aliases, versions, keys. For asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from xylem import job_calls, registry_calls
from xylem.caller import AsyncCaller
from xylem.events import ServerEvent
from xylem.job_calls import State
from xylem.registry_calls import JsonObject
from xylem.results import DataFile, Job
from xylem.streams import download, events_of


class AsyncAdmin(AsyncCaller):
    """The calls that need a key of the scope `admin`."""

    async def train(
        self,
        model: str,
        trainer: str,
        data: str,
        *,
        valid: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        weights: str | None = None,
        seed: int | None = None,
        thresholds: Mapping[str, Any] | None = None,
        promotion: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Job:
        """Submit a training of a new version; `data` and `valid` name files of the server's data directory.

        `fields`: `split`, the share of the rows to measure on instead of `valid`, `label_names`, `calibrate`,
        and of tables `text_column` (a list), `label_column` and `label_separator`.

        A key for idempotency is made if none is given: a submission that is sent again is the same job.
        """
        given = {
            **fields,
            "model": model,
            "trainer": trainer,
            "data": data,
            "valid": valid,
            "parameters": parameters,
            "weights": weights,
            "seed": seed,
            "thresholds": thresholds,
            "promotion": promotion,
        }
        return await self._call(job_calls.submit("training", given, idempotency_key))

    async def tune(self, model: str, data: str, *, idempotency_key: str | None = None, **fields: Any) -> Job:
        """Submit a tuning of thresholds on a file of the data directory; `fields`: `method`, `version`."""
        given = {"model": model, "data": data, **fields}
        return await self._call(job_calls.submit("threshold-tuning", given, idempotency_key))

    async def batch_job(
        self, model: str, data: str, *, idempotency_key: str | None = None, **fields: Any
    ) -> Job:
        """Submit a batch over a file of the data directory; `fields` as `top_r` and `threshold`."""
        given = {"model": model, "data": data, **fields}
        return await self._call(job_calls.submit("batch", given, idempotency_key))

    async def job(self, job_id: str) -> Job:
        """Look at a job."""
        return await self._call(job_calls.job(job_id))

    async def jobs(
        self,
        state: State | None = None,
        model: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """List jobs, the newest first; of a state, a model or a kind."""
        return await self._call(job_calls.jobs(state, model, kind, limit))

    async def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Look at a job until it has ended, however that is. Raises WaitTimeout after `timeout` seconds."""
        return await self._run(job_calls.wait(job_id, timeout, self._retries, self._timeout))

    async def cancel(self, job_id: str) -> Job:
        """Cancel a job."""
        return await self._call(job_calls.cancel(job_id))

    async def retry(self, job_id: str) -> Job:
        """Queue a job that has ended again."""
        return await self._call(job_calls.retry(job_id))

    async def log(self, job_id: str) -> str:
        """Return what a job has logged."""
        return await self._call(job_calls.log(job_id))

    def events(self, job_id: str) -> AsyncIterator[ServerEvent]:
        """Yield the events of a job until the server ends them; a connection that breaks is opened again."""
        return self._iterate(events_of(job_calls.events_path(job_id), self._retries, self._timeout))

    async def download_result(self, job_id: str, to: str | PathLike[str]) -> int:
        """Write the result of a job to a file; return its bytes. What was cut off goes on where it ended."""
        path = job_calls.result_path(job_id)
        return await self._run(download(path, Path(to), self._retries, self._timeout, is_fixed=True))

    async def upload(self, name: str, data: str | PathLike[str] | bytes) -> DataFile:
        """Send a file, named by its path, or bytes, to the server's data directory."""
        return await self._call(job_calls.upload(name, data if isinstance(data, bytes) else Path(data)))

    async def data_files(self) -> list[DataFile]:
        """List the files of the server's data directory."""
        return await self._call(job_calls.data_files())

    async def delete_data(self, name: str) -> None:
        """Delete a file of the server's data directory."""
        return await self._call(job_calls.delete_data(name))

    async def promote(
        self, model: str, version: int | None = None, alias: str = "latest", reason: str | None = None
    ) -> JsonObject:
        """Make an alias name a version; without one, its canary."""
        return await self._call(registry_calls.promote(model, version, alias, reason))

    async def rollback(
        self, model: str, alias: str = "latest", to: int | None = None, reason: str | None = None
    ) -> JsonObject:
        """Make an alias name the version that it named before, or `to`; while it has a canary, end that."""
        return await self._call(registry_calls.rollback(model, alias, to, reason))

    async def put_canary(
        self, model: str, version: int, weight: float, alias: str = "latest", reason: str | None = None
    ) -> JsonObject:
        """Have a version answer a part of the requests to an alias: `weight`, above 0 and below 1."""
        return await self._call(registry_calls.put_canary(model, version, weight, alias, reason))

    async def end_canary(self, model: str, alias: str = "latest") -> JsonObject:
        """End the canary of an alias; its shadow stays."""
        return await self._call(registry_calls.end_beside(model, alias, "canary"))

    async def put_shadow(
        self, model: str, version: int, share: float = 1.0, alias: str = "latest", reason: str | None = None
    ) -> JsonObject:
        """Have a version answer a part of the requests to an alias besides; what it answers is counted."""
        return await self._call(registry_calls.put_shadow(model, version, share, alias, reason))

    async def end_shadow(self, model: str, alias: str = "latest") -> JsonObject:
        """End the shadow of an alias; its canary stays."""
        return await self._call(registry_calls.end_beside(model, alias, "shadow"))

    async def denied(self, model: str, alias: str = "latest") -> JsonObject:
        """Return the `labels` that answers of an alias never have, and which are `unknown` to its version."""
        return await self._call(registry_calls.denied(model, alias))

    async def put_denied(
        self, model: str, labels: Sequence[str], alias: str = "latest", reason: str | None = None
    ) -> JsonObject:
        """Have answers of an alias never have these labels, in place of those before."""
        return await self._call(registry_calls.put_denied(model, labels, alias, reason))

    async def end_denied(self, model: str, alias: str = "latest") -> JsonObject:
        """Have an alias deny no labels any more."""
        return await self._call(registry_calls.end_beside(model, alias, "denied"))

    async def history(
        self, model: str, alias: str | None = None, before: int | None = None, limit: int | None = None
    ) -> JsonObject:
        """Return what the aliases of a model named, when, and who changed them; pages end `before` an id."""
        return await self._call(registry_calls.history(model, alias, before, limit))

    async def delete_model(self, model: str, *, confirm: str) -> JsonObject:
        """Delete a model with all its versions and aliases; `confirm` must be its name once more."""
        return await self._call(registry_calls.delete_model(model, confirm))

    async def delete_version(self, model: str, version: int, *, with_aliases: bool = False) -> JsonObject:
        """Delete a version that no alias names, or, if asked to, with the aliases that name it."""
        return await self._call(registry_calls.delete_version(model, version, with_aliases=with_aliases))

    async def delete_alias(self, model: str, alias: str) -> JsonObject:
        """Remove an alias; its version stays."""
        return await self._call(registry_calls.delete_alias(model, alias))

    async def export_archive(self, model: str, to: str | PathLike[str], version: int | None = None) -> int:
        """Write a version, as an archive, to a file; return its bytes."""
        path = registry_calls.archive_path(model, version)
        return await self._run(download(path, Path(to), self._retries, self._timeout, is_fixed=False))

    async def import_archive(self, model: str, file: str | PathLike[str]) -> JsonObject:
        """Publish an exported archive as a new version of a model."""
        return await self._call(registry_calls.import_archive(model, Path(file)))

    async def audit(self, before: int | None = None, limit: int | None = None) -> JsonObject:
        """Return the log of what admins did; pages end `before` an id."""
        return await self._call(registry_calls.audit(before, limit))

    async def keys(self) -> JsonObject:
        """List the keys, which are not shown themselves."""
        return await self._call(registry_calls.keys())

    async def create_key(self, name: str, scopes: Sequence[str], **fields: Any) -> JsonObject:
        """Make a key of some scopes; the answer is the only one that shows it."""
        given = {"name": name, "scopes": list(scopes), **fields}
        return await self._call(registry_calls.create_key(given))

    async def rotate_key(
        self, key_id: str, overlap_seconds: float = 86_400.0, lifetime_seconds: float | None = None
    ) -> JsonObject:
        """Make the next key of the same name and scopes; the old one ends after the overlap.

        The answer is the only one that shows the new key, which lives as long as the old one was made for
        unless `lifetime_seconds` says otherwise.
        """
        return await self._call(registry_calls.rotate_key(key_id, overlap_seconds, lifetime_seconds))

    async def revoke_key(self, key_id: str) -> JsonObject:
        """Revoke a key."""
        return await self._call(registry_calls.revoke_key(key_id))
