"""`xylem evaluate`: how good and how fast a version is on a labelled file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from service.base.errors import BadParameter
from service.cli.console import print_facts, print_json, print_line, print_table, progress
from service.cli.groups import grouped
from service.cli.options import (
    DEFAULT_STORE,
    ChunkCharacters,
    Data,
    EmptyLabels,
    Json,
    Model,
    StoreDir,
    Table,
    Threads,
    n_threads,
    parse_reference,
)
from service.db.of_store import opened_database

if TYPE_CHECKING:
    from model_store.version import Model as OpenedModel
    from service.thresholds.store.tuned import Tuned

PerLabel = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write how each label fares, a line a label: .csv, .tsv or .jsonl."),
]
ReportDir = Annotated[
    Path | None,
    typer.Option("--report", metavar="DIR", help="Draw all of it as a page, report.html in this directory."),
]
Trees = Annotated[
    int | None,
    typer.Option(metavar="T", help="Only the first T trees of an ensemble answer; all if left out."),
]


class Written(NamedTuple):
    """What is written besides what is printed."""

    per_label: PerLabel = None
    report: ReportDir = None


_CUTS = (1, 3, 5)
_RANKINGS = ("P", "nDCG", "PSP", "PSnDCG")


@grouped
def evaluate(
    model: Model,
    data: Data,
    table: Table,
    files: Written,
    empty_labels: EmptyLabels = "zero",
    trees: Trees = None,
    chunk_characters: ChunkCharacters = None,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Measure a version on a labelled file: rankings and F-measures in percent, microseconds a row.

    F-measures are at the tuned thresholds of the version, else at 0.5; a note says where that means nothing.
    Bands are the labels with so many training rows. With --trees, scores are means over the first trees, with
    --chunk-characters over the chunks of long texts.
    """
    from model_store.store import Store
    from service.evaluation.fmeasure import empty_convention
    from service.inference.chunks import check_chunk_characters
    from service.workflows.evaluate import evaluate_rows
    from service.workflows.evaluation_page import PageSubject, prepare_page, write_page
    from service.workflows.label_table import check_label_table, label_lines, write_label_table
    from service.workflows.labelled import read_labelled

    columns = table.columns(data)
    per_label, report = files
    name, reference = parse_reference(model)
    empty = empty_convention(empty_labels, "--empty-labels")
    opened = Store(store).open(name, reference)
    version = f"{name}@{opened.manifest.version}"
    if trees is not None:
        version += f", the first {trees} of {opened.manifest.n_trees} trees"
        opened = _first_trees(opened, trees)
    if chunk_characters is not None:
        check_chunk_characters(chunk_characters, "--chunk-characters")
        version += f", chunks of {chunk_characters:,} characters"
    if per_label is not None:
        check_label_table(per_label)
    if report is not None:
        prepare_page(report)
    tuned = tuned_of(store, name, opened.manifest.version)
    with progress(json) as show:
        found = evaluate_rows(
            opened,
            read_labelled(opened, data, show, columns, chunk_characters),
            n_threads(threads),
            show,
            thresholds=None if tuned is None else tuned.thresholds,
            empty=empty,
            sweep=report is not None,
        )
    beside = {"trees": trees, "chunk_characters": chunk_characters}
    beside = {name: value for name, value in beside.items() if value is not None}
    written: dict[str, str] = {}
    if per_label is not None:
        write_label_table(per_label, label_lines(opened.labels, found))
        written["per_label"] = str(per_label)
    if report is not None:
        subject = PageSubject(version, data.name, opened.labels)
        written["report"] = str(write_page(report, subject, found))
    if json:
        print_json({**found.report, **beside, **written})
        return
    _print_report(f"{version} on {data}", found.report)
    for file in written.values():
        print_line(f"{file} written")


def _first_trees(model: OpenedModel, n_trees: int) -> OpenedModel:
    """Return the model with its first trees only. Raises BadParameter where it has not so many."""
    from model_store.first_trees import first_trees

    most = model.manifest.n_trees
    if not 1 <= n_trees <= most:
        raise BadParameter(f"--trees: expected 1 to {most}, the trees of the model, found {n_trees}")
    return first_trees(model, n_trees)


def _print_report(title: str, report: dict[str, Any]) -> None:
    """Print a report as tables."""
    from service.workflows.evaluate import list_unknown

    rows = [
        (metric, *("unknown" if report[f"{metric}@{k}"] is None else report[f"{metric}@{k}"] for k in _CUTS))
        for metric in _RANKINGS
    ]
    print_table(f"{title}, {report['rows']:,} rows; percent", ("", *(f"@{k}" for k in _CUTS)), rows)
    if bands := report["bands"]:
        heads = ("training rows", *(key.replace("_f", "-F") for key in list(bands[0])[1:]))
        cells = [["-" if value is None else value for value in band.values()] for band in bands]
        print_table("By the training rows of the labels; percent", heads, cells)
    tuned = report["threshold"] == "tuned"
    at = "at tuned thresholds" if tuned else f"at threshold {report['threshold']}"
    error, unknown = report["calibration_error"], list_unknown(report)
    print_facts(
        "",
        {
            "recall@5": report["R@5"],
            f"macro-F {at}": report["macro_f"],
            f"micro-F {at}": report["micro_f"],
            f"instance-F {at}": report["instance_f"],
            "a label never true nor predicted counts as": report["empty_label_convention"],
            **({"labels that the model does not know, F 0": unknown} if unknown else {}),
            "expected calibration error, 0 to 1": "unknown" if error is None else f"{error:.3f}",
            "microseconds a row (batch, one thread)": report["us_per_row"],
            **(
                {
                    "log-loss, nats a label": report["log_loss"],
                    "perplexity": report["perplexity"],
                    "labels without a probability": report["without_probability"],
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
