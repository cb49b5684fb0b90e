"""`xylem schedules`: jobs that are submitted automatically, for a store or a server."""

import json as json_library
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option, Typer

from xylem import admin, base
from xylem.cli.console import print_list, print_result
from xylem.cli.options import Json, grouped
from xylem.cli.places import Place, opened_place

app = Typer(
    help="Schedules: jobs that are submitted automatically; of the store, or with --url of a "
    "server.",
    no_args_is_help=True,
)


def local_schedules(database: "base.Database", settings: "base.Settings") -> "admin.Schedules":
    """Return the schedules of a database."""

    return admin.Schedules(database, settings)


@app.command()
@grouped
def create(
    context: Context,
    job: Annotated[Path, Option("--job", metavar="FILE", help="The body of a job, a JSON object.")],
    place: Place,
    kind: Annotated[str, Option(metavar="KIND", help="The kind of the job.")] = "training",
    cron: Annotated[
        str | None, Option(metavar="LINE", help="When, in UTC: minute hour day month weekday.")
    ] = None,
    rows: Annotated[
        int | None, Option(min=1, metavar="N", help="After every N rows of feedback.")
    ] = None,
    json: Json = False,
) -> None:
    """Submit a job again and again, at the times of --cron or after every --rows.

    Workers run the jobs.
    """
    try:
        base.refuse_special(job)
        body: Any = json_library.loads(job.read_bytes())
    except OSError as error:
        raise base.BadData(f"{job}: expected a readable file, found: {error.strerror}") from None
    except ValueError as error:
        raise base.BadData(f"{job}: expected JSON, found bytes that are not: {error}") from None
    with opened_place(context, place, local_schedules, create=True) as schedules:
        schedule = schedules.create_schedule(kind, body, cron, rows)
    print_result(json, f"schedule {schedule['id']}: {_when(schedule)}", **schedule)


@app.command("list")
@grouped
def list_schedules(context: Context, place: Place, json: Json = False) -> None:
    """List the schedules, the oldest first."""
    with opened_place(context, place, local_schedules) as schedules:
        schedule_facts = schedules.schedules()
    place_name = str(place.url or place.store)
    columns = ("id", "kind", "model", "alias", "when", "runs", "last_job")
    print_list(
        json,
        {"schedules": schedule_facts},
        (
            place_name,
            columns,
            [
                [str({**schedule, "when": _when(schedule)}[c] or "") for c in columns]
                for schedule in schedule_facts
            ],
        ),
        f"No schedules in {place_name}",
    )


@app.command()
@grouped
def delete(
    context: Context,
    schedule: Annotated[str, Argument(metavar="ID", help="Its id in `xylem schedules list`.")],
    place: Place,
    json: Json = False,
) -> None:
    """Remove a schedule; a job that it submitted goes on."""
    with opened_place(context, place, local_schedules) as schedules:
        removed = schedules.delete_schedule(schedule)
    print_result(json, f"schedule {schedule} is removed", **removed)


def _when(schedule: dict[str, Any]) -> str:
    return (
        f"{schedule['rows_come']} of {schedule['rows']} rows"
        if schedule["cron"] is None
        else f"{schedule['cron']}, next {schedule['next']}"
    )
