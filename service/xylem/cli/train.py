"""`xylem train`: from a data file to a published version; `xylem estimate`: its size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from typer import Argument, Option, echo

import xylem_store
from xylem import datasets, thresholds, trainers, workflows
from xylem.base import file_path, n_threads, opened_database, ready_database
from xylem.cli.aliases import store_to_publish
from xylem.cli.console import mebibytes, print_facts, print_json, print_summary, progress
from xylem.cli.labels import read_vocabulary
from xylem.cli.options import (
    DEFAULT_STORE,
    TRAINER_NAMES,
    Data,
    Json,
    OptionsOf,
    ParameterItems,
    StoreDir,
    Table,
    Threads,
    Work,
    grouped,
)

if TYPE_CHECKING:
    from xylem.base import DirectOptions
else:
    DirectOptions = OptionsOf("xylem.base", "DirectOptions")


Valid = Annotated[
    Path | None,
    Option(
        "--valid", metavar="FILE", parser=file_path, help="Labelled rows to measure the result on."
    ),
]
NewModel = Annotated[str, Option("--model", metavar="NAME", help="The model to add a version to.")]
Stream = Annotated[
    bool,
    Option(
        "--stream",
        help="Read the file for each pass, not into memory. Trainers label-tree, ovr, plt with -p "
        "solver=sgd, huffman-tree, learned-tree, ldsm, and lomtree, which learns each row once.",
    ),
]
LabelNames = Annotated[
    Path | None,
    Option(metavar="FILE", help="For numeric data files: line i + 1 is the name of label i."),
]


_FROM_STDIN = (
    "Learning from standard input. At its end the model is published; after Ctrl-C it is not."
)


class NewVersion(NamedTuple):
    """The options for what is published: the model and its label info, and its figures."""

    model: NewModel
    valid: Valid = None
    label_info: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="A vocabulary with names of the labels, as for xylem models label-info.",
            rich_help_panel="Published version",
        ),
    ] = None


STEPS_DIR = "steps"  # the folder of a store for finished steps of unfinished trainings, by model


@grouped
def train(
    trainer: Annotated[
        str,
        Argument(
            metavar="TRAINER",
            help=f"One of {', '.join(TRAINER_NAMES)}, or an installed package's: see "
            "docs/trainers/.",
        ),
    ],
    data: Data,
    table: Table,
    new: NewVersion,
    options: DirectOptions,
    threads: Threads = None,
    parameters: ParameterItems = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Train on a data file and publish the result as a new version of a model, its `latest`.

    Nothing is published if the training fails or is interrupted. With --data - the trainer
    (lomtree) learns from JSON lines on standard input as they come; there Ctrl-C ends the input,
    and what was learnt is published.
    """

    request = workflows.TrainRequest(
        **dict(options),
        trainer=trainer,
        data=data,
        valid=new.valid,
        parameters=tuple(parameters or ()),
        columns=table.columns(data, new.valid),
        threads=n_threads(threads),
        latest=options.base is None,
        steps=store / STEPS_DIR / new.model if options.ray is not None or options.resume else None,
    )
    model_store = store_to_publish(store, f"xylem train {trainer}")
    info = None if new.label_info is None else read_vocabulary(new.label_info)
    with (
        _threshold_database(model_store, options.thresholds) as threshold_database,
        progress(json) as show,
    ):
        if data == datasets.STDIN and trainers.trainer(trainer).reads == "once":
            echo(_FROM_STDIN, err=True)
        report = workflows.train_and_publish(
            model_store, new.model, request, show, threshold_database, info
        )
    if options.base is not None:
        make_latest(model_store, report)
    print_report(report, store, json)


def print_report(report: workflows.TrainReport, store: Path, json: bool) -> None:
    """Print what was published, with the warnings about it."""
    for warning in report.warnings or ():
        echo(f"xylem: warning: {warning}", err=True)
    print_summary(
        json,
        {name: value for name, value in report._asdict().items() if value is not None},
        f"Published {report.model}@{report.version} in {store}",
        _facts_of(report),
    )


def make_latest(store: xylem_store.Store, report: workflows.TrainReport) -> None:
    """Give a version the thresholds of the version that it continues; then let `latest` name it.

    The thresholds are copied if they fit. Until then the new version is published but has no alias,
    as with jobs, so that no request is answered without the thresholds.
    """
    with opened_database(store.root) as database:
        workflows.carry_thresholds(
            store, report.model, report.version, thresholds.ThresholdDatabase(database)
        )
    store.promote(report.model, report.version)


@contextmanager
def _threshold_database(
    store: xylem_store.Store, method: str | None
) -> Iterator[thresholds.ThresholdDatabase | None]:
    """Yield the database for thresholds, None if no method tunes them.

    It must be usable before the training begins.
    """
    if method is None:
        yield None
        return
    store.prepare()  # the database may be beside it
    with ready_database(store.root) as database:
        yield thresholds.ThresholdDatabase(database)


def _facts_of(report: workflows.TrainReport) -> dict[str, object]:
    facts: dict[str, object] = {
        "trainer": report.trainer,
        "training": f"{report.train_seconds:.1f} s",
        "peak memory": mebibytes(report.peak_memory_bytes),
        "model": mebibytes(report.model_bytes),
    }
    if grown := report.grown:
        facts.update({name.replace("_", " "): f"{count:,}" for name, count in grown.items()})
    for name, choice, least in (
        ("features", report.features, "words alone"),  # of features.kind=auto
        ("fields", report.fields, "weight 1"),  # of --text-column NAME=auto
    ):
        if choice is None:
            continue
        facts[name] = (
            f"{choice['chosen']}, by {choice['held_out']} rows held out of {choice['rows']}, "
            f"{choice['gained']:+.2f} over {least}"
        )
        for trial in choice["tried"]:
            facts[f"tried {trial['features']}"] = (
                f"precision {trial['precision']:.2f}, {trial['us_per_row']:.0f} us a row"
            )
    if report.metrics:
        facts.update(report.metrics)
    else:
        facts["metrics"] = "none: give --valid FILE, or use xylem evaluate"
    if errors := report.calibration_error:
        facts["expected calibration error"] = (
            f"{errors['before']:.3f}, calibrated {errors['after']:.3f}"
        )
    if tuning := report.thresholds:
        facts["thresholds"] = (
            f"of {tuning['rows']:,} rows, macro-F {tuning['validation_macro_f']:.2f} there"
        )
    if rerank_report := report.rerank:
        base_figures, reranked_figures = (
            "/".join(f"{value:.2f}" for value in rerank_report[stage].values())
            for stage in ("alone", "ranked")
        )
        gain = (
            f"P@1/3/5 of {rerank_report['rows']:,} held-out rows {base_figures}, "
            f"ranked anew {reranked_figures}"
        )
        facts["re-ranking"] = f"{'kept' if rerank_report['kept'] else 'not kept'}: {gain}"
    if report.note:
        facts["F-measures"] = f"none: {report.note}"
    return facts


# Trainers whose estimate is a forecast from one tree; for others it is an upper bound.
FORECAST = ("fastxml", "pfastrexml")


@grouped
def estimate(
    data: Data,
    table: Table,
    work: Work,
    parameters: ParameterItems = None,
    trainer: Annotated[
        str, Option("--trainer", metavar="TRAINER", help=f"One of {', '.join(TRAINER_NAMES)}.")
    ] = "label-tree",
    label_names: LabelNames = None,
    stream: Stream = False,
    ray: Annotated[
        bool, Option("--ray", help="Estimate the memory of cluster nodes too: train --ray.")
    ] = False,
    json: Json = False,
) -> None:
    """Print an upper bound of a model's weights before training; compare it with one-vs-rest.

    For the comparison a weight counts 12 bytes, one of flat one-vs-rest 8. The stored size depends
    on the type of weights (train --weights), and includes biases, the shapes of trees and
    embeddings. Most models leave out small weights, so a version is far smaller. Names of labels
    and features, and the memory of training, are not counted.
    """

    request = workflows.TrainRequest(
        trainer=trainer,
        data=data,
        parameters=tuple(parameters or ()),
        label_names=label_names,
        columns=table.columns(data),
        seed=work.seed,
        threads=n_threads(work.threads),
        stream=stream,
        ray="auto" if ray else None,
    )
    with progress(json) as show:
        size = workflows.estimate_size(request, show)
    if json:
        print_json(size)
        return
    bound = "about" if trainer in FORECAST else "at most"
    facts = {
        "weights": f"{bound} {size['nonzeros_bound']:,}",
        **{
            f"stored, {kind}": f"{bound} {mebibytes(n)}" for kind, n in size["stored_bytes"].items()
        },
        "at 12 bytes each": f"{bound} {mebibytes(size['bytes_bound'])}",
        "of flat one-vs-rest": f"{100 * size['ratio_to_ovr']:.1f} %",
    }
    for depth, alpha in enumerate(size["alpha_per_depth"], 1):
        facts[f"features kept, depth {depth}"] = f"{100 * alpha:.1f} %"
    if needs := size.get("ray"):
        facts["a node's object store"] = mebibytes(needs["node_bytes"])
    if blocks := size.get("blocks"):
        facts["blocks, on all nodes or on disk"] = mebibytes(blocks["held_bytes"])
    if needs := size.get("ray") or size.get("blocks"):
        facts["a worker, besides"] = f"at most {mebibytes(needs['worker_bytes'])}"
        facts["where the command runs"] = f"{mebibytes(needs['driver_bytes'])}, and the weights"
    print_facts(f"{trainer} on {data}", facts)
