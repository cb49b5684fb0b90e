"""`xylem jobs`: the jobs in the database of a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.console import print_facts, print_json, print_line, print_table
from service.cli.database import opened_database
from service.cli.options import DEFAULT_STORE, Json, StoreDir
from service.errors import JobNotFound

if TYPE_CHECKING:
    from service.jobs.job import Job
    from service.jobs.jobs import Jobs

app = typer.Typer(help="Jobs: training, threshold tuning and batches.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="A job.")]
State = Annotated[
    str | None, typer.Option(help="Only those queued, running, succeeded, failed or cancelled.")
]
ModelName = Annotated[str | None, typer.Option("--model", metavar="NAME", help="Only those of a model.")]
KindName = Annotated[
    str | None, typer.Option("--kind", metavar="KIND", help="Only training, threshold-tuning or batch.")
]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many, the newest.")]


@contextmanager
def _opened(store: Path) -> Iterator[Jobs | None]:
    """Yield the jobs of a store's database, None where there is no database yet.

    The one place that knows where jobs are: a server would be asked from here.
    """
    from service.jobs.jobs import Jobs
    from service.settings import read_settings

    with opened_database(store, create=False) as database:
        yield None if database is None else Jobs(database, read_settings(store=store))


def _there(jobs: Jobs | None, job_id: str, store: Path) -> Jobs:
    if jobs is None:
        raise JobNotFound(f"{store}: expected the id of a job, found {job_id[:40]!r}, and no jobs at all")
    return jobs


@app.command("list")
def list_jobs(
    state: State = None,
    model: ModelName = None,
    kind: KindName = None,
    limit: Limit = 100,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """List the jobs, the newest first."""
    with _opened(store) as jobs:
        found = [] if jobs is None else jobs.list(state, model, kind, limit)
    if json:
        print_json({"jobs": [job.as_json() for job in found]})
    elif found:
        print_table(
            str(store), ("id", "kind", "model", "state", "created", "progress"), list(map(_row, found))
        )
    else:
        print_line(f"No such jobs in {store}")


@app.command()
def show(job: Id, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Show a job: what was asked for, how far it is, and what came of it."""
    with _opened(store) as jobs:
        found = _there(jobs, job, store).get(job)
    _report(found, json)


@app.command("log")
def show_log(job: Id, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Print the log of a job, lines of JSON."""
    with _opened(store) as jobs:
        text = _there(jobs, job, store).log_text(job)
    if json:
        print_json({"id": job, "log": text})
    else:
        typer.echo(text, nl=False)


@app.command()
def cancel(job: Id, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Cancel a job: at once if it waits, else its worker stops it within seconds."""
    with _opened(store) as jobs:
        found = _there(jobs, job, store).cancel(job)
    _report(found, json)


@app.command()
def retry(job: Id, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Let a job that failed or was cancelled wait again."""
    with _opened(store) as jobs:
        found = _there(jobs, job, store).retry(job)
    _report(found, json)


def _report(job: Job, json: bool) -> None:
    if json:
        print_json(job.as_json())
        return
    flat: dict[str, object] = {}
    for key, value in job.as_json().items():
        if isinstance(value, dict):
            flat.update({f"{key} {name}": _shown(item) for name, item in value.items()})
        elif value is not None:
            flat[key] = value
    print_facts(job.id, flat)


def _row(job: Job) -> tuple[str, ...]:
    said: dict[str, Any] = job.as_json()
    far = job.error or ("" if job.progress is None else _far(job))
    return job.id, job.kind, job.model, job.state, said["created"], far


def _far(job: Job) -> str:
    assert job.progress is not None
    phase, done, total, *_ = job.progress
    return f"{phase} {done / total:.0%}" if total else phase


def _shown(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
