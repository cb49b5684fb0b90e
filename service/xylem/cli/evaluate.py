"""`xylem evaluate` and `compare`: figures of versions on a labelled file."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Argument, Option

import xylem_store
from xylem import evaluation, serving, thresholds, workflows
from xylem.base import BadParameter, load_extra, n_threads, opened_database
from xylem.cli.console import print_facts, print_json, print_line, print_table, progress
from xylem.cli.options import (
    DEFAULT_STORE,
    Data,
    EmptyLabels,
    Json,
    Model,
    StoreDir,
    Table,
    Threads,
    grouped,
    parse_reference,
)
from xylem.cli.places import open_model


class ReportFiles(NamedTuple):
    """The options for files that are written besides the printed figures."""

    per_label: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Write precision, recall and F of each label: .csv, .tsv or .jsonl.",
        ),
    ] = None
    report: Annotated[
        Path | None,
        Option(
            "--report",
            metavar="DIR",
            help="Write figures and diagrams to report.html in this directory.",
        ),
    ] = None


_CUTS = (1, 3, 5)
_RANKINGS = ("P", "nDCG", "PSP", "PSnDCG", "broader", "narrower", "sibling")
_GROUPS = {"bands": "training rows", "branches": "branch"}


@grouped
def evaluate(
    model: Model,
    data: Data,
    table: Table,
    files: ReportFiles,
    empty_labels: EmptyLabels = "zero",
    trees: Annotated[
        int | None,
        Option(metavar="T", help="Use only the first T trees of an ensemble; default: all."),
    ] = None,
    under: Annotated[
        list[str] | None,
        Option(
            metavar="CONCEPT",
            help="Figures of this concept and all below it, by the label info; may repeat. '*': "
            "each concept without a broader one.",
        ),
    ] = None,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Measure a version on a labelled file: rankings and F-measures in percent, speed.

    The speed is in microseconds a row. F-measures are at the tuned thresholds of the version, else
    at 0.5; a note says if they are not reliable. Bands are groups of labels by their number of
    training rows. With --trees, scores are means over the first trees. If the model has label info,
    near misses are labels that are not true, but directly above or below a true one, or beside it.
    """
    columns = table.columns(data)
    per_label, report = files
    empty = evaluation.empty_convention(empty_labels, "--empty-labels")
    opened_model = open_model(store, model)
    version = opened_model.manifest.full_name
    if trees is not None:
        version += f", the first {trees} of {opened_model.manifest.n_trees} trees"
        opened_model = _first_trees(opened_model, trees)
    if per_label is not None:
        workflows.check_table_file(per_label)
    charts = None
    if report is not None:
        charts = load_extra("report")
        charts.make_directory(report)
    tuned = tuned_of(store, opened_model)
    served = serving.open_named(serving.store_of(store), *parse_reference(model))
    facts = served.info.current
    with progress(json) as show:
        result = workflows.evaluate_rows(
            opened_model,
            workflows.read_labelled(opened_model, data, show, columns),
            n_threads(threads),
            show,
            tuned=tuned,
            empty=empty,
            sweep=report is not None,
            allowed=served.denied and served.denied.allowed,
            info=facts and facts.info,
            concepts=under or (),
        )
    paths: dict[str, str] = {}
    if per_label is not None:
        workflows.write_label_table(per_label, workflows.label_lines(opened_model.labels, result))
        paths["per_label"] = str(per_label)
    if charts is not None:
        paths["report"] = str(
            charts.write_page(
                report, charts.PageSubject(version, data.name, opened_model.labels), result
            )
        )
    if json:
        print_json({**result.report, **({} if trees is None else {"trees": trees}), **paths})
        return
    _print_report(f"{version} on {data}", result.report)
    for file in paths.values():
        print_line(f"{file} written")


def _first_trees(model: "xylem_store.Model", n_trees: int) -> "xylem_store.Model":
    """Return the model with its first `n_trees` trees only. Raises BadParameter."""

    if model.manifest.kind == xylem_store.COMBINED:
        raise BadParameter(
            f"--trees: expected a version of trees, found {model.manifest.full_name}, a combined "
            "one"
        )
    if not 1 <= n_trees <= model.manifest.n_trees:
        raise BadParameter(
            f"--trees: expected 1 to {model.manifest.n_trees}, the trees of the model, "
            f"found {n_trees}"
        )
    return xylem_store.first_trees(model, n_trees)


def _print_report(title: str, report: dict[str, Any]) -> None:
    figures_by_metric = {
        metric: [report[f"{metric}@{k}"] for k in _CUTS]
        for metric in _RANKINGS
        if f"{metric}@1" in report
    }
    print_table(
        f"{title}, {report['rows']:,} rows; percent",
        ("", *(f"@{k}" for k in _CUTS)),
        [
            (metric, *("unknown" if figure is None else figure for figure in figures))
            for metric, figures in figures_by_metric.items()
        ],
    )
    for key, head in _GROUPS.items():
        if groups := report.get(key):
            print_table(
                f"By the {head} of the labels; percent",
                (head, *(name.replace("_f", "-F") for name in list(groups[0])[1:])),
                [["-" if value is None else value for value in row.values()] for row in groups],
            )
    suffix = (
        f"at thresholds tuned for {report['objective']}-F"
        if report["threshold"] == "tuned"
        else f"at threshold {report['threshold']}"
    )
    error = report["calibration_error"]
    unknown = workflows.list_unknown(report)
    print_facts(
        "",
        {
            "recall@5": report["R@5"],
            f"macro-F {suffix}": report["macro_f"],
            f"micro-F {suffix}": report["micro_f"],
            f"instance-F {suffix}": report["instance_f"],
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


def tuned_of(store: Path, model: "xylem_store.Model") -> "thresholds.Tuned | None":
    """Return the stored thresholds of a version; None if there are none."""

    with opened_database(store) as database:
        return thresholds.ThresholdDatabase(database).load(
            model.manifest.model, model.manifest.version, model.manifest.digest
        )


@grouped
def compare(
    a: Annotated[str, Argument(metavar="A", help="A version, NAME[@VERSION].")],
    b: Annotated[str, Argument(metavar="B", help="The version to compare it with.")],
    data: Data,
    table: Table,
    empty_labels: EmptyLabels = "zero",
    resamples: Annotated[
        int, Option(min=100, max=100_000, help="Number of draws, for intervals and for the test.")
    ] = 1000,
    seed: Annotated[int, Option(min=0, max=2**63 - 1, help="Same seed, same answer.")] = 0,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Compare two versions on the same labelled file; say which differences are more than chance.

    A difference is real if one as large comes up by chance in at most 5% of all samples of rows, by
    a paired randomisation test. Labels are matched by name; macro-F is compared if both versions
    are tuned.
    """
    request = workflows.CompareRequest(
        data=data,
        empty=evaluation.empty_convention(empty_labels, "--empty-labels"),
        resamples=resamples,
        seed=seed,
        threads=n_threads(threads),
        columns=table.columns(data),
    )
    models = [open_model(store, text) for text in (a, b)]
    contenders = [
        workflows.Contender(opened_model, tuned_of(store, opened_model)) for opened_model in models
    ]
    with progress(json) as show:
        report = workflows.compare(contenders[0], contenders[1], request, show)
    if json:
        print_json(report)
    else:
        _print_comparison(f"{report['a']} and {report['b']} on {data}", report)


def _print_comparison(title: str, report: dict[str, Any]) -> None:
    print_table(
        f"{title}, {report['rows']:,} rows; percent",
        ("", report["a"], report["b"], "difference", "95% from", "to", ""),
        [
            (
                name.replace("macro_f", "macro-F"),
                *(figures[key] for key in ("a", "b", "difference", "low", "high")),
                _verdict(report, figures),
            )
            for name, figures in report["metrics"].items()
        ],
    )
    labels = report["labels"]
    facts: dict[str, object] = {"labels that both know": labels["both"]}
    facts |= {
        f"only {report[side]}": labels[f"only_{side}"]
        for side in ("a", "b")
        if labels[f"only_{side}"]
    }
    if labels["neither"]:
        facts["labels of the file that neither knows"] = labels["neither"]
    if report["note"]:
        facts["note"] = report["note"]
    print_facts("", facts)


def _verdict(report: dict[str, Any], figures: dict[str, Any]) -> str:
    if abs(figures["difference"]) < 0.005:  # 0.00 as it is printed
        return "no difference"
    return (
        f"{report['b' if figures['difference'] > 0 else 'a']} is better"
        if figures["real"]
        else "may be chance"
    )
