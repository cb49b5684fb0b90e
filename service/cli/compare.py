"""`xylem compare`: whether one version is better than another on the same rows."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from service.cli.console import print_facts, print_json, print_table, progress
from service.cli.evaluate import tuned_of
from service.cli.groups import grouped
from service.cli.options import (
    DEFAULT_STORE,
    Data,
    EmptyLabels,
    Json,
    StoreDir,
    Table,
    Threads,
    n_threads,
    parse_reference,
)

First = Annotated[str, typer.Argument(metavar="A", help="A version, NAME[@VERSION].")]
Second = Annotated[str, typer.Argument(metavar="B", help="The version to compare it with.")]
Resamples = Annotated[int, typer.Option(min=100, max=100_000, help="So often are rows drawn anew.")]
DrawSeed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same intervals.")]


@grouped
def compare(
    a: First,
    b: Second,
    data: Data,
    table: Table,
    empty_labels: EmptyLabels = "zero",
    resamples: Resamples = 1000,
    seed: DrawSeed = 0,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Compare two versions on the same labelled file, and say which differences are more than chance.

    A difference is real when the 95% interval of a paired bootstrap over the rows leaves out 0. Labels are
    matched by name; macro-F is compared where both versions are tuned.
    """
    from model_store.store import Store
    from service.evaluation.fmeasure import empty_convention
    from service.workflows.compare import CompareRequest, Contender
    from service.workflows.compare import compare as compare_versions

    empty = empty_convention(empty_labels, "--empty-labels")
    request = CompareRequest(data, empty, resamples, seed, n_threads(threads), table.columns(data))
    contenders = []
    for text in (a, b):
        name, reference = parse_reference(text)
        opened = Store(store).open(name, reference)
        tuned = tuned_of(store, name, opened.manifest.version)
        contenders.append(Contender(opened, None if tuned is None else tuned.thresholds))
    with progress(json) as show:
        report = compare_versions(contenders[0], contenders[1], request, show)
    if json:
        print_json(report)
    else:
        _print_comparison(f"{report['a']} and {report['b']} on {data}", report)


def _print_comparison(title: str, report: dict[str, Any]) -> None:
    """Print a comparison as tables."""
    heads = ("", report["a"], report["b"], "difference", "95% from", "to", "")
    rows = [
        (
            name.replace("macro_f", "macro-F"),
            *(each[key] for key in ("a", "b", "difference", "low", "high")),
            _verdict(report, each),
        )
        for name, each in report["metrics"].items()
    ]
    print_table(f"{title}, {report['rows']:,} rows; percent", heads, rows)
    labels = report["labels"]
    facts: dict[str, object] = {"labels that both know": labels["both"]}
    facts |= {f"only {report[side]}": labels[f"only_{side}"] for side in ("a", "b") if labels[f"only_{side}"]}
    if labels["neither"]:
        facts["labels of the file that neither knows"] = labels["neither"]
    if report["note"]:
        facts["note"] = report["note"]
    print_facts("", facts)


def _verdict(report: dict[str, Any], each: dict[str, Any]) -> str:
    if abs(each["difference"]) < 0.005:  # 0.00 as it is printed
        return "no difference"
    if not each["real"]:
        return "may be chance"
    return f"{report['b' if each['difference'] > 0 else 'a']} is better"
