"""`xylem evaluate`: how good and how fast a version is on a labelled file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli.console import print_facts, print_json, print_table, progress
from service.cli.database import opened_database
from service.cli.options import (
    DEFAULT_STORE,
    Data,
    EmptyLabels,
    Json,
    Model,
    StoreDir,
    Threads,
    parse_reference,
    takes_columns,
)
from service.columns import DEFAULT_COLUMNS, TableColumns, refuse_without_table
from service.errors import BadParameter

if TYPE_CHECKING:
    from service.thresholds.store.tuned import Tuned

_CUTS = (1, 3, 5)
_RANKINGS = ("P", "nDCG", "PSP", "PSnDCG")


@takes_columns
def evaluate(
    model: Model,
    data: Data,
    empty_labels: EmptyLabels = "one",
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
    columns: TableColumns = DEFAULT_COLUMNS,
) -> None:
    """Measure a version on a labelled file: rankings and F-measures in percent, microseconds a row.

    F-measures are at the tuned thresholds of the version, else at 0.5; a note says where that means nothing.
    """
    from model_store.store import Store
    from service.workflows.evaluate import evaluate as measure

    refuse_without_table(columns, data)
    name, reference = parse_reference(model)
    if empty_labels not in ("one", "zero"):
        raise BadParameter(f"--empty-labels: expected one or zero, found {empty_labels!r}")
    empty: Any = empty_labels
    opened = Store(store).open(name, reference)
    tuned = tuned_of(store, name, opened.manifest.version)
    with progress(json) as show:
        report = measure(
            opened,
            data,
            threads or os.cpu_count() or 1,
            show,
            thresholds=None if tuned is None else tuned.thresholds,
            empty=empty,
            columns=columns,
        )
    if json:
        print_json(report)
        return
    title = f"{name}@{opened.manifest.version} on {data}, {report['rows']:,} rows; percent"
    rows = [
        (metric, *("unknown" if report[f"{metric}@{k}"] is None else report[f"{metric}@{k}"] for k in _CUTS))
        for metric in _RANKINGS
    ]
    print_table(title, ("", *(f"@{k}" for k in _CUTS)), rows)
    at = "at tuned thresholds" if tuned else f"at threshold {report['threshold']}"
    print_facts(
        "",
        {
            "recall@5": report["R@5"],
            f"macro-F {at}": report["macro_f"],
            f"micro-F {at}": report["micro_f"],
            f"instance-F {at}": report["instance_f"],
            "a label never true nor predicted counts as": report["empty_label_convention"],
            "microseconds a row (batch, one thread)": report["us_per_row"],
            **(
                {
                    "log-loss, nats a label": report["log_loss"],
                    "perplexity": report["perplexity"],
                    "labels without a probability": report["unknown_labels"],
                }
                if "log_loss" in report
                else {}
            ),
            **({"note": report["note"]} if "note" in report else {}),
        },
    )


def tuned_of(store: Path, name: str, version: int) -> Tuned | None:
    """Return the thresholds that are kept with a version, None if there are none."""
    from service.thresholds.store.state import ThresholdDatabase

    with opened_database(store, create=False) as database:
        return None if database is None else ThresholdDatabase(database).load(name, version)
