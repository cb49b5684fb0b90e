"""`xylem calibrate` and `import-vectorizer`: a version made of another one, and published after it."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from service.cli.aliases import store_to_publish
from service.cli.console import print_facts, print_json, print_result, print_table, progress
from service.cli.options import (
    DEFAULT_STORE,
    Data,
    Json,
    Model,
    StoreDir,
    Table,
    Threads,
    grouped,
    n_threads,
    parse_reference,
)

_HEADS = ("scores", "predictions", "mean score", "true")


@grouped
def calibrate(
    model: Model,
    data: Data,
    table: Table,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Publish a version again with scores that are probabilities: 7 in 10 labels of score 0.7 are true.

    The map from scores to probabilities is fitted to a labelled file that the version was not trained on.
    It rises, so rankings stay the same. The tables show how often predictions are true at each score, before
    and after. After: each half of the rows is measured with a map that was fitted to the other half.
    """
    from service.workflows.calibrate import calibrate_and_publish

    columns = table.columns(data)
    name, reference = parse_reference(model)
    with progress(json) as show:
        home = store_to_publish(store, "xylem calibrate")
        facts = calibrate_and_publish(home, name, reference, data, columns, n_threads(threads), show)
    if json:
        print_json(facts)
        return
    for when, bins in facts["reliability"].items():
        print_table(f"{when.capitalize()}: the first labels of each row", _HEADS, list(map(_cells, bins)))
    errors = facts["calibration_error"]
    print_facts(
        f"Published {name}@{facts['version']} in {store}",
        {
            "the same trees as": f"{name}@{facts['parent']}",
            "fitted to": f"{facts['predictions']:,} predictions for {facts['rows']:,} rows of {data}",
            "expected calibration error before": f"{errors['before']:.3f}",
            "after, each half by a fit to the other": f"{errors['after']:.3f}",
            "tuned thresholds": "none: they were for other scores; call xylem thresholds",
        },
    )


def _cells(each: dict[str, Any]) -> tuple[str, str, str, str]:
    scores = f"{each['low']:.2f} - {each['high']:.2f}"
    return scores, f"{each['n']:,}", f"{each['mean_score']:.3f}", f"{each['share_true']:.3f}"


def import_vectorizer(
    model: Model,
    file: Annotated[
        Path,
        Option("--file", metavar="FILE", help="A vectorizer as JSON or of skops: see docs/importing.md."),
    ],
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Publish a version again so that it reads texts by the vocabulary of a scikit-learn vectorizer."""
    from service.importers.registry import text_draft
    from service.importers.vectorizer import read_vectorizer

    name, reference = parse_reference(model)
    opened = store_to_publish(store, "xylem import-vectorizer")
    version = opened.resolve(name, reference)
    vectorizer = read_vectorizer(file)
    manifest = opened.publish(name, text_draft(opened.open(name, version), vectorizer))
    line = f"{name}@{version} with {file} -> {manifest.shown}"
    print_result(json, line, model=manifest.model, version=manifest.version)
