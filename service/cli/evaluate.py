"""`xylem evaluate`: how good and how fast a version is on a labelled file."""

from __future__ import annotations

import os

from service.cli.console import print_facts, print_json, print_table, progress
from service.cli.options import DEFAULT_STORE, Data, Json, Model, StoreDir, Threads, parse_reference

_CUTS = (1, 3, 5)
_RANKINGS = ("P", "nDCG", "PSP", "PSnDCG")


def evaluate(
    model: Model,
    data: Data,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Measure a version on a labelled file: rankings and F-measures in percent, microseconds a row."""
    from model_store.store import Store
    from service.workflows import evaluate as measure

    name, reference = parse_reference(model)
    opened = Store(store).open(name, reference)
    with progress(json) as show:
        report = measure(opened, data, threads or os.cpu_count() or 1, show)
    if json:
        print_json(report)
        return
    title = f"{name}@{opened.manifest.version} on {data}, {report['rows']:,} rows; percent"
    rows = [
        (metric, *("unknown" if report[f"{metric}@{k}"] is None else report[f"{metric}@{k}"] for k in _CUTS))
        for metric in _RANKINGS
    ]
    print_table(title, ("", *(f"@{k}" for k in _CUTS)), rows)
    at = f"at threshold {report['threshold']}"
    print_facts(
        "",
        {
            "recall@5": report["R@5"],
            f"macro-F {at}": report["macro_f"],
            f"micro-F {at}": report["micro_f"],
            f"instance-F {at}": report["instance_f"],
            "a label never true nor predicted counts as": report["empty_label_convention"],
            "microseconds a row (batch, one thread)": report["us_per_row"],
        },
    )
