"""What admins ask for: jobs, files, aliases, versions, keys. For callers that block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from xylem import job_calls, registry_calls
from xylem.caller import Caller
from xylem.events import ServerEvent
from xylem.job_calls import State
from xylem.registry_calls import JsonObject
from xylem.results import DataFile, Job
from xylem.streams import download, events_of


class Admin(Caller):
    """The calls that need a key of the scope `admin`."""

    def train(
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
        return self._call(job_calls.submit("training", given, idempotency_key))

    def tune(self, model: str, data: str, *, idempotency_key: str | None = None, **fields: Any) -> Job:
        """Submit a tuning of thresholds on a file of the data directory; `fields`: `method`, `version`."""
        given = {"model": model, "data": data, **fields}
        return self._call(job_calls.submit("threshold-tuning", given, idempotency_key))

    def batch_job(self, model: str, data: str, *, idempotency_key: str | None = None, **fields: Any) -> Job:
        """Submit a batch over a file of the data directory; `fields` as `top_r` and `threshold`."""
        given = {"model": model, "data": data, **fields}
        return self._call(job_calls.submit("batch", given, idempotency_key))

    def job(self, job_id: str) -> Job:
        """Look at a job."""
        return self._call(job_calls.job(job_id))

    def jobs(
        self,
        state: State | None = None,
        model: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """List jobs, the newest first; of a state, a model or a kind."""
        return self._call(job_calls.jobs(state, model, kind, limit))

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Look at a job until it has ended, however that is. Raises WaitTimeout after `timeout` seconds."""
        return self._run(job_calls.wait(job_id, timeout, self._retries, self._timeout))

    def cancel(self, job_id: str) -> Job:
        """Cancel a job."""
        return self._call(job_calls.cancel(job_id))

    def retry(self, job_id: str) -> Job:
        """Queue a job that has ended again."""
        return self._call(job_calls.retry(job_id))

    def log(self, job_id: str) -> str:
        """Return what a job has logged."""
        return self._call(job_calls.log(job_id))

    def events(self, job_id: str) -> Iterator[ServerEvent]:
        """Yield the events of a job until the server ends them; a connection that breaks is opened again."""
        return self._iterate(events_of(job_calls.events_path(job_id), self._retries, self._timeout))

    def download_result(self, job_id: str, to: str | PathLike[str]) -> int:
        """Write the result of a job to a file; return its bytes. What was cut off goes on where it ended."""
        path = job_calls.result_path(job_id)
        return self._run(download(path, Path(to), self._retries, self._timeout, is_fixed=True))

    def upload(self, name: str, data: str | PathLike[str] | bytes) -> DataFile:
        """Send a file, named by its path, or bytes, to the server's data directory."""
        return self._call(job_calls.upload(name, data if isinstance(data, bytes) else Path(data)))

    def data_files(self) -> list[DataFile]:
        """List the files of the server's data directory."""
        return self._call(job_calls.data_files())

    def delete_data(self, name: str) -> None:
        """Delete a file of the server's data directory."""
        return self._call(job_calls.delete_data(name))

    def promote(
        self, model: str, version: int | None = None, alias: str = "latest", reason: str | None = None
    ) -> JsonObject:
        """Make an alias name a version; without one, its canary."""
        return self._call(registry_calls.promote(model, version, alias, reason))

    def rollback(
        self, model: str, alias: str = "latest", to: int | None = None, reason: str | None = None
    ) -> JsonObject:
        """Make an alias name the version that it named before, or `to`; while it has a canary, end that."""
        return self._call(registry_calls.rollback(model, alias, to, reason))

    def put_canary(
        self, model: str, version: int, weight: float, alias: str = "latest", reason: str | None = None
    ) -> JsonObject:
        """Have a version answer a part of the requests to an alias: `weight`, above 0 and below 1."""
        return self._call(registry_calls.put_canary(model, version, weight, alias, reason))

    def end_canary(self, model: str, alias: str = "latest") -> JsonObject:
        """End the canary of an alias; its shadow stays."""
        return self._call(registry_calls.end_beside(model, alias, "canary"))

    def put_shadow(
        self, model: str, version: int, share: float = 1.0, alias: str = "latest", reason: str | None = None
    ) -> JsonObject:
        """Have a version answer a part of the requests to an alias besides; what it answers is counted."""
        return self._call(registry_calls.put_shadow(model, version, share, alias, reason))

    def end_shadow(self, model: str, alias: str = "latest") -> JsonObject:
        """End the shadow of an alias; its canary stays."""
        return self._call(registry_calls.end_beside(model, alias, "shadow"))

    def denied(self, model: str, alias: str = "latest") -> JsonObject:
        """Return the `labels` that answers of an alias never have, and which are `unknown` to its version."""
        return self._call(registry_calls.denied(model, alias))

    def put_denied(
        self, model: str, labels: Sequence[str], alias: str = "latest", reason: str | None = None
    ) -> JsonObject:
        """Have answers of an alias never have these labels, in place of those before."""
        return self._call(registry_calls.put_denied(model, labels, alias, reason))

    def end_denied(self, model: str, alias: str = "latest") -> JsonObject:
        """Have an alias deny no labels any more."""
        return self._call(registry_calls.end_beside(model, alias, "denied"))

    def history(
        self, model: str, alias: str | None = None, before: int | None = None, limit: int | None = None
    ) -> JsonObject:
        """Return what the aliases of a model named, when, and who changed them; pages end `before` an id."""
        return self._call(registry_calls.history(model, alias, before, limit))

    def delete_model(self, model: str, *, confirm: str) -> JsonObject:
        """Delete a model with all its versions and aliases; `confirm` must be its name once more."""
        return self._call(registry_calls.delete_model(model, confirm))

    def delete_version(self, model: str, version: int, *, with_aliases: bool = False) -> JsonObject:
        """Delete a version that no alias names, or, if asked to, with the aliases that name it."""
        return self._call(registry_calls.delete_version(model, version, with_aliases=with_aliases))

    def delete_alias(self, model: str, alias: str) -> JsonObject:
        """Remove an alias; its version stays."""
        return self._call(registry_calls.delete_alias(model, alias))

    def export_archive(self, model: str, to: str | PathLike[str], version: int | None = None) -> int:
        """Write a version, as an archive, to a file; return its bytes."""
        path = registry_calls.archive_path(model, version)
        return self._run(download(path, Path(to), self._retries, self._timeout, is_fixed=False))

    def import_archive(self, model: str, file: str | PathLike[str]) -> JsonObject:
        """Publish an exported archive as a new version of a model."""
        return self._call(registry_calls.import_archive(model, Path(file)))

    def audit(self, before: int | None = None, limit: int | None = None) -> JsonObject:
        """Return the log of what admins did; pages end `before` an id."""
        return self._call(registry_calls.audit(before, limit))

    def keys(self) -> JsonObject:
        """List the keys, which are not shown themselves."""
        return self._call(registry_calls.keys())

    def create_key(self, name: str, scopes: Sequence[str], **fields: Any) -> JsonObject:
        """Make a key of some scopes; the answer is the only one that shows it."""
        given = {"name": name, "scopes": list(scopes), **fields}
        return self._call(registry_calls.create_key(given))

    def rotate_key(
        self, key_id: str, overlap_seconds: float = 86_400.0, lifetime_seconds: float | None = None
    ) -> JsonObject:
        """Make the next key of the same name and scopes; the old one ends after the overlap.

        The answer is the only one that shows the new key, which lives as long as the old one was made for
        unless `lifetime_seconds` says otherwise.
        """
        return self._call(registry_calls.rotate_key(key_id, overlap_seconds, lifetime_seconds))

    def revoke_key(self, key_id: str) -> JsonObject:
        """Revoke a key."""
        return self._call(registry_calls.revoke_key(key_id))
