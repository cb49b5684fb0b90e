"""`xylem extend`, `calibrate`, `import-vectorizer`: a new version made from another one."""

from pathlib import Path
from typing import Annotated, NamedTuple

from typer import Option

from xylem import workflows
from xylem.base import file_path, load_extra, n_threads
from xylem.cli.aliases import store_to_publish
from xylem.cli.console import print_facts, print_json, print_result, print_table, progress
from xylem.cli.options import (
    DEFAULT_STORE,
    FORMATS,
    Data,
    Json,
    Model,
    StoreDir,
    Table,
    Threads,
    grouped,
    parse_reference,
)
from xylem.cli.train import LabelNames, Valid, make_latest, print_report


class LearntRows(NamedTuple):
    """The options for the rows that are learnt, and those to measure the result on."""

    data: Annotated[
        Path,
        Option(
            "--data", metavar="FILE", parser=file_path, help=f"Rows with the new labels: {FORMATS}."
        ),
    ]
    rows: Annotated[
        list[Path] | None,
        Option(
            "--rows",
            metavar="FILE",
            parser=file_path,
            help="The version's training rows, if it does not store them (train "
            "--keep-rows); may repeat.",
        ),
    ] = None
    valid: Valid = None
    label_names: LabelNames = None


@grouped
def extend(
    model: Model,
    learnt_rows: LearntRows,
    table: Table,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Publish a version with new labels, learnt from a few rows, without training it again.

    For versions of label-tree, ovr, plt with the batch solver, and softmax trees. New labels get
    ids after the old ones. Nothing else changes: calibration and tuned thresholds stay.
    """

    rows = learnt_rows.rows or []
    request = workflows.TrainRequest(
        trainer="",
        data=learnt_rows.data,
        valid=learnt_rows.valid,
        label_names=learnt_rows.label_names,
        columns=table.columns(learnt_rows.data, *rows, learnt_rows.valid),
        threads=n_threads(threads),
        latest=False,
        base=model,
        rows=rows,
    )
    model_store = store_to_publish(store, "xylem extend")
    with progress(json) as show:
        report = workflows.extend_and_publish(
            model_store, parse_reference(model).name, request, show
        )
    make_latest(model_store, report)
    print_report(report, store, json)


@grouped
def calibrate(
    model: Model,
    data: Data,
    table: Table,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Publish a version again with probabilities as scores: of labels scored 0.7, 70% are true.

    The map from scores to probabilities is fitted to a labelled file that the version was not
    trained on. It rises, so rankings stay the same. The tables show how often predictions are true
    at each score, before and after. For the table after, each half of the rows is measured with a
    map that was fitted to the other half.
    """

    columns = table.columns(data)
    name, reference = parse_reference(model)
    with progress(json) as show:
        facts = workflows.calibrate_and_publish(
            store_to_publish(store, "xylem calibrate"),
            name,
            reference,
            data,
            columns,
            n_threads(threads),
            show,
        )
    if json:
        print_json(facts)
        return
    for stage, bins in facts["reliability"].items():
        print_table(
            f"{stage.capitalize()}: the first labels of each row",
            ("scores", "predictions", "mean score", "true"),
            [
                (
                    f"{score_bin['low']:.2f} - {score_bin['high']:.2f}",
                    f"{score_bin['n']:,}",
                    f"{score_bin['mean_score']:.3f}",
                    f"{score_bin['share_true']:.3f}",
                )
                for score_bin in bins
            ],
        )
    errors = facts["calibration_error"]
    print_facts(
        f"Published {name}@{facts['version']} in {store}",
        {
            "the same trees as": f"{name}@{facts['parent']}",
            "fitted to": f"{facts['predictions']:,} predictions for {facts['rows']:,} rows "
            f"of {data}",
            "expected calibration error before": f"{errors['before']:.3f}",
            "after, each half by a fit to the other": f"{errors['after']:.3f}",
            "tuned thresholds": "none: they were for other scores; call xylem thresholds",
        },
    )


def import_vectorizer(
    model: Model,
    file: Annotated[
        Path,
        Option(
            "--file",
            metavar="FILE",
            help="A vectorizer as JSON or of skops: see docs/importing.md.",
        ),
    ],
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Publish a version again, now with the vocabulary of a scikit-learn vectorizer."""
    importers = load_extra("importers")
    name, reference = parse_reference(model)
    model_store = store_to_publish(store, "xylem import-vectorizer")
    version = model_store.resolve(name, reference)
    manifest = model_store.publish(
        name, importers.text_draft(model_store.open(name, version), importers.read_vectorizer(file))
    )
    print_result(
        json,
        f"{name}@{version} with {file} -> {manifest.full_name}",
        model=manifest.model,
        version=manifest.version,
    )
