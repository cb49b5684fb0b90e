"""`xylem extend`: labels added to a version without training it again."""

from pathlib import Path
from typing import Annotated, NamedTuple

from typer import Option

from service.base.files import file_path
from service.cli.aliases import store_to_publish
from service.cli.console import progress
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
from service.cli.train import LabelNames, Valid, make_latest, print_report


class Learnt(NamedTuple):
    """The rows that are learnt, and those that the result is measured on."""

    data: Annotated[
        Path, Option("--data", metavar="FILE", parser=file_path, help=f"Rows with the new labels: {FORMATS}.")
    ]
    rows: Annotated[
        list[Path] | None,
        Option(
            "--rows",
            metavar="FILE",
            parser=file_path,
            help="The version's training rows, if it does not store them (train --keep-rows); may repeat.",
        ),
    ] = None
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

    For versions of label-tree, ovr, plt with the batch solver, and softmax trees. New labels get ids after
    the old ones. Nothing else changes: calibration and tuned thresholds stay.
    """
    from service.workflows.extend import extend_and_publish
    from service.workflows.train import TrainRequest

    rows = learnt.rows or []
    request = TrainRequest(
        "",
        learnt.data,
        learnt.valid,
        label_names=learnt.label_names,
        columns=table.columns(learnt.data, *rows, learnt.valid),
        threads=n_threads(threads),
        latest=False,
        base=parse_reference(model),
        rows=rows,
    )
    home = store_to_publish(store, "xylem extend")
    with progress(json) as show:
        report = extend_and_publish(home, parse_reference(model).name, request, show)
    make_latest(home, report)
    print_report(report, store, json)
