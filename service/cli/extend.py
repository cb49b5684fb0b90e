"""`xylem extend`: labels added to a version without training it again."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from service.cli.aliases import store_to_publish
from service.cli.console import mebibytes, print_facts, print_json, progress
from service.cli.options import (
    DEFAULT_STORE,
    FORMATS,
    Json,
    Model,
    StoreDir,
    Table,
    Threads,
    grouped,
    n_threads,
    parse_reference,
)
from service.cli.train import LabelNames, Valid
from service.db.of_store import opened_database

NewRows = Annotated[
    Path, typer.Option("--data", metavar="FILE", help=f"Rows with the new labels: {FORMATS}.")
]
OldRows = Annotated[
    list[Path] | None,
    typer.Option(
        "--rows",
        metavar="FILE",
        help="Rows that the version was trained on, unless it keeps them (train --keep-rows); may repeat.",
    ),
]


class Learnt(NamedTuple):
    """The rows that are learnt, and those that the result is measured on."""

    data: NewRows
    rows: OldRows = None
    valid: Valid = None
    label_names: LabelNames = None


@grouped
def extend(
    model: Model,
    learnt: Learnt,
    table: Table,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Publish a version with labels that it did not have, learnt from a few rows, without training it again.

    For versions of label-tree, ovr, and plt with the batch solver. New labels take ids after the old ones;
    what does not concern them stays to the bit, calibration and tuned thresholds too.
    """
    from service.thresholds.store.state import ThresholdDatabase
    from service.workflows.extend import ExtendRequest, carry_thresholds, extend_and_publish

    name, reference = parse_reference(model)
    rows = learnt.rows or []
    columns = table.columns(learnt.data, *rows, learnt.valid)
    request = ExtendRequest(learnt.data, rows, learnt.valid, learnt.label_names, columns, n_threads(threads))
    home = store_to_publish(store, "xylem extend")
    with progress(json) as show:
        report = extend_and_publish(home, name, reference, request, show)
    with opened_database(home.root, create=False) as database:
        tuned = database is not None and carry_thresholds(
            home, name, report.version, ThresholdDatabase(database)
        )
    for warning in report.warnings:
        typer.echo(f"xylem: warning: {warning}", err=True)
    if json:
        print_json({**report._asdict(), "thresholds": tuned})
        return
    print_facts(
        f"Published {name}@{report.version} in {store}",
        {
            "labels": f"{report.labels:,}, {report.added:,} of them new",
            "learnt from": f"{report.rows:,} rows, old and new",
            "classifiers trained": f"{report.classifiers:,} in {report.extend_seconds:.1f} s",
            "groups divided": report.divided,
            "thresholds": "as before" if tuned else "none",
            "model": mebibytes(report.model_bytes),
            **report.metrics,
        },
    )
