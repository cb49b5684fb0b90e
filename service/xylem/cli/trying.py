"""`xylem try`: from a file of texts with labels to a model that answers in the console."""

import os
import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Argument, Option

from xylem import base, datasets, server, workflows
from xylem.cli.aliases import store_to_publish
from xylem.cli.console import complain, print_json, print_line, print_rows, progress
from xylem.cli.options import (
    DEFAULT_STORE,
    FORMATS,
    Json,
    StoreDir,
    Table,
    Work,
    grouped,
)

N_FIRST_ROWS = 5


class Result(NamedTuple):
    """The options for the result: what is tried, the name of the model, whether it is served."""

    model: Annotated[
        str | None,
        Option("--model", metavar="NAME", help="The model; default: the name of the file."),
    ] = None
    port: Annotated[
        int | None, Option(min=1, max=65535, help="The port; $XYLEM_PORT, or 8080.")
    ] = None
    encoder: Annotated[
        str | None,
        Option(metavar="NAME", help="Try a sentence encoder of the store beside the words."),
    ] = None
    yes: Annotated[
        bool, Option("--yes", help="Train in spite of findings: see docs/findings.md.")
    ] = False
    serve: Annotated[bool, Option("--serve/--no-serve", help="Answer over HTTP until Ctrl-C.")] = (
        True
    )


@grouped
def try_file(
    file: Annotated[
        Path, Argument(metavar="FILE", parser=base.file_path, help=f"Texts with labels: {FORMATS}.")
    ],
    table: Table,
    result: Result,
    work: Work,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Make a first model from a file, say how good it is, and serve it until Ctrl-C.

    It guesses the delimiter and the columns of a table, and prints five rows as it has read them;
    with a doubt about their meaning it stops, unless --yes is given. A tenth of the rows is
    held out for thresholds, another tenth for the figures. It tries several kinds of features. The
    model is published, and served with the console.
    """

    columns = table.columns(file)
    stem = re.sub(r"[^a-z0-9._-]+", "-", datasets.source_of(file).lower().split(".")[0]).strip(
        "-._"
    )
    model_store = store_to_publish(store, "xylem try")
    threads = base.n_threads(work.threads)

    def check(dataset: "base.Dataset") -> None:
        if not json:
            print_rows(dataset, N_FIRST_ROWS)
        for finding in dataset.report.findings if dataset.report and not result.yes else ():
            raise base.BadData(f"{file}: {finding}; --yes trains nevertheless")

    with progress(json) as show:
        facts = workflows.make_first_model(
            model_store,
            result.model or stem[:63] or "first",
            file,
            columns,
            work.seed,
            threads,
            show,
            check,
            encoder=result.encoder,
        )
    for warning in facts["warnings"]:
        complain(f"warning: {warning}")
    if json:
        print_json(facts)
    else:
        _print_facts(facts, store)
    if result.serve:
        _serve(store, result.port, json)


def _print_facts(facts: dict[str, Any], store: Path) -> None:
    tens = {
        name: f"{facts[name] / 10:.1f}"
        for name in ("P@1", "P@5", "R@5", "possible", "precision", "recall")
    }
    rows = facts["rows"]
    name = facts["model"]
    threshold = (
        "a threshold of 0.5"
        if facts["limit"] is None
        else f"the tuned threshold, at most {facts['limit']} a row and"
    )
    gained = (
        []
        if facts["features_gained"] is None
        else [
            f"Beside words alone these features are worth {facts['features_gained']:+.1f} points "
            "of P@1/3/5."
        ]
    )
    if facts["rerank"] is not None:
        gained.append(
            f"With --rerank, on {facts['rerank']['rows']:,} rows, P@1/3/5 are "
            f"{facts['rerank']['gained']:+.1f} points better; a row takes "
            f"{facts['rerank']['times_as_long']:.1f} times as long."
        )
    for line in (
        f"It learnt {facts['labels']:,} labels from {rows['training']:,} rows with "
        f"{facts['features']}.",
        *gained,
        f"Of {rows['test']:,} other rows, with {facts['labels_a_row']:.1f} labels each on average:",
        f"  the label that it shows first is right {tens['P@1']} times in 10;",
        f"  of the five labels that it shows first, {tens['P@5']} in 10 are right (the most "
        "possible:"
        f" {tens['possible']});",
        f"  these five have {tens['R@5']} in 10 of a row's labels;",
        f"  those that reach {threshold} {facts['predicted_a_row']:.1f} on average, are right "
        f"{tens['precision']} times"
        f" in 10, and are {tens['recall']} in 10 of the true ones.",
        f"Published as {name}@{facts['version']} in {store}. Next:",
        f'  xylem predict {name} "a text" --store {store}',
        f"  xylem serve --store {store}",
        "  docs/tutorial.md: other features and trainers, and what to do with new rows",
    ):
        print_line(line)


def _serve(store: Path, port: int | None, json: bool) -> None:
    settings = base.read_settings(
        store=store,
        **({} if port is None else {"port": port}),
        # warnings alone, because a new user reads the terminal
        **({} if "XYLEM_LOG_LEVEL" in os.environ else {"log_level": "warning"}),
    )
    if not json:
        print_line(f"The console is at {base.url_of(settings.host, settings.port)}/ until Ctrl-C.")
    server.run(settings)
