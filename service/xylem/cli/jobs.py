"""`xylem jobs`: the jobs in the database of a store, or those of a server."""

from dataclasses import asdict
from types import SimpleNamespace
from typing import Annotated, Any

from typer import Argument, Context, Option, Typer, echo

from xylem import admin, base
from xylem.cli.console import flat, print_json, print_list, print_summary
from xylem.cli.options import Json, grouped
from xylem.cli.places import Place, opened_place

app = Typer(
    help="Jobs: training, threshold tuning and batches; of the store, or with --url of a server.",
    no_args_is_help=True,
)

Id = Annotated[str, Argument(metavar="ID", help="The id of a job, as `xylem jobs list` shows it.")]


def _local(database: "base.Database", settings: "base.Settings") -> Any:
    """Return the functions for the jobs of a database, by the client's names for them."""

    store_jobs = admin.Jobs(database, settings)
    return SimpleNamespace(
        jobs=store_jobs.list,
        job=store_jobs.get,
        log=store_jobs.log_text,
        cancel=store_jobs.cancel,
        retry=store_jobs.retry,
    )


def _facts(job: Any) -> dict[str, Any]:
    """Return a job, of a database or of the client, in its form over HTTP.

    That form is `xylem.api.schemas.jobs.JobAnswer`.
    """
    facts: dict[str, Any] = job.as_json() if hasattr(job, "as_json") else asdict(job)
    return facts


@app.command("list")
@grouped
def list_jobs(
    context: Context,
    place: Place,
    state: Annotated[
        str | None,
        Option(
            metavar="STATE",
            help="Only jobs that are queued, running, succeeded, failed or cancelled.",
        ),
    ] = None,
    model: Annotated[
        str | None, Option("--model", metavar="NAME", help="Only jobs of this model.")
    ] = None,
    kind: Annotated[
        str | None,
        Option(
            "--kind",
            metavar="KIND",
            help="Only those of a kind: training, combine, extend, vocabulary, "
            "threshold-tuning or batch.",
        ),
    ] = None,
    limit: Annotated[int, Option(min=1, max=1000, help="Show the newest N jobs.")] = 100,
    json: Json = False,
) -> None:
    """List the jobs, the newest first."""
    with opened_place(context, place, _local) as jobs:
        job_facts = [_facts(job) for job in jobs.jobs(state, model, kind, limit)]
    place_name = str(place.url or place.store)
    columns = ("id", "kind", "model", "state", "created", "progress")
    print_list(
        json,
        {"jobs": job_facts},
        (
            place_name,
            columns,
            [
                [*(job[name] for name in columns[:-1]), job["error"] or _far(job["progress"])]
                for job in job_facts
            ],
        ),
        f"No such jobs in {place_name}",
    )


def _add(name: str, method: str, help_text: str) -> None:
    """Add a command that calls a method with the id of a job, and shows the job that it returns.

    name    of the command
    method  of the client, which the functions for a database have too
    """

    def command(context: Context, job: Id, place: Place, json: Json = False) -> None:
        with opened_place(context, place, _local) as jobs:
            facts = _facts(getattr(jobs, method)(job))
        print_summary(
            json,
            facts,
            facts["id"],
            flat({name: value for name, value in facts.items() if value is not None}),
        )

    app.command(name, help=help_text)(grouped(command))


@app.command("log")
@grouped
def show_log(context: Context, job: Id, place: Place, json: Json = False) -> None:
    """Print the log of a job so far, as lines of JSON."""
    with opened_place(context, place, _local) as jobs:
        text = jobs.log(job)
    if json:
        print_json({"id": job, "log": text})
    else:
        echo(text, nl=False)


def _far(progress: dict[str, Any] | None) -> str:
    if progress is None:
        return ""
    total = progress["total"]
    share = f" {progress['done'] / total:.0%}" if total else ""
    return f"{progress['phase']}{share}"


_add("show", "job", "Show a job: its request, its progress and its result.")
_add("cancel", "cancel", "Cancel a job: one that waits ends at once, one that runs within seconds.")
_add("retry", "retry", "Queue a job again that failed or was cancelled.")
