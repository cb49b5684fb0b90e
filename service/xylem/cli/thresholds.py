"""`xylem thresholds`: tune a version's thresholds for an F-measure, and store them with it."""

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from typer import Option

from xylem import serving, workflows
from xylem.base import BadParameter, file_path, n_threads, ready_database
from xylem.cli.console import (
    print_facts,
    print_json,
    print_summary,
    print_table,
    progress,
)
from xylem.cli.options import (
    DEFAULT_STORE,
    FORMATS,
    EmptyLabels,
    Json,
    Model,
    StoreDir,
    Table,
    Threads,
    grouped,
    in_panel,
)
from xylem.cli.places import open_model


@in_panel("Tuning", common=("objective", "method", "test"))
class Tuning(NamedTuple):
    """The options for how thresholds are found and measured."""

    objective: Annotated[
        str,
        Option(
            "--objective",
            metavar="macro|micro|instance",
            help="The F-measure to tune for; instance for labels that people read. macro: a "
            "threshold for each label; the others: one for all, and a limit of labels a row.",
        ),
    ] = "macro"
    method: Annotated[
        list[str] | None,
        Option(
            "--method",
            metavar="METHOD",
            help="ofo (default), fta, fta-one, sto or all; may repeat: stores the first, "
            "reports all.",
        ),
    ] = None
    test: Annotated[
        Path | None,
        Option("--test", metavar="FILE", parser=file_path, help="Labelled rows to measure on too."),
    ] = None
    empty_labels: EmptyLabels = "zero"
    kappa: Annotated[
        str | None,
        Option(
            metavar="NUMBER|auto",
            help="Ignore estimates below this probability: 0.0001 to 0.5; default 0.01. "
            "auto: what is best "
            "on halves of the file.",
        ),
    ] = None
    start: Annotated[
        str | None,
        Option("--start", metavar="A,B", help="Start values of ofo; default: chosen on the file."),
    ] = None


@in_panel("Candidates")
class Candidate(NamedTuple):
    """The options for a candidate: measure it, put it in force, or remove it."""

    shadow: Annotated[
        bool,
        Option("--shadow", help="Store a candidate, measured on feedback beside those in force."),
    ] = False
    switch: Annotated[
        bool, Option("--switch", help="Put the candidate in force; without --data.")
    ] = False
    drop: Annotated[bool, Option("--drop", help="Remove the candidate; without --data.")] = False
    reset: Annotated[
        bool,
        Option(
            "--reset",
            help="Start anew where the database has thresholds of another version of this "
            "name, or any; "
            "without --data.",
        ),
    ] = False


@grouped
def thresholds(
    model: Model,
    *,
    data: Annotated[
        Path | None,
        Option("--data", metavar="FILE", parser=file_path, help=f"A labelled file: {FORMATS}."),
    ] = None,
    table: Table,
    tuning: Tuning,
    candidate: Candidate,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Tune a version's thresholds on a labelled file, and store them with the version.

    The version must not have been trained on this file. `--threshold tuned` and `"threshold":
    "tuned"` use the thresholds from then on, and feedback continues from them. With --shadow they
    are only a candidate, measured on feedback beside those in force, until --switch or --drop. All
    F-measures are in percent.
    """
    columns = table.columns(data, tuning.test)
    shadow, *changes = candidate
    if any(changes):
        if (
            data is not None
            or tuning != Tuning(empty_labels=tuning.empty_labels)
            or shadow
            or sum(changes) > 1
        ):
            raise BadParameter(
                "expected --switch, --drop or --reset alone, found other options too"
            )
        _change(model, store, candidate, json=json)
        return
    if data is None:
        raise BadParameter(
            "expected --data FILE to tune on, or --switch, --drop or --reset, found none of them"
        )
    from xylem.thresholds import keep, request_of

    request = request_of(
        tuning.method,
        data,
        tuning.test,
        tuning.empty_labels,
        _kappa_of(tuning.kappa),
        _start_of(tuning.start),
        n_threads(threads),
        columns,
        tuning.objective,
    )
    opened_model = open_model(store, model)
    with ready_database(store) as database, progress(json) as show:
        facts = keep(
            opened_model, database, workflows.tune(opened_model, request, show), shadow=shadow
        )
        database_name = database.public_url
    if json:
        print_json(facts)
        return
    measures = [
        f"{part}_{f}_f"
        for part in (("validation",) if tuning.test is None else ("validation", "test"))
        for f in ("macro", "micro", "instance")
    ]
    print_table(
        f"{opened_model.manifest.full_name} tuned on {data}; percent",
        ("method", *(name.replace("_f", "-F").replace("_", " ") for name in measures)),
        [
            (figures["method"], *(figures[name] for name in measures))
            for figures in facts["methods"]
        ],
    )
    keys = (
        "method",
        "objective",
        "threshold",
        "limit",
        "epoch",
        "empty_label_convention",
        "start",
        "power",
        "scale",
        "kappa",
        "note",
    )
    print_facts(
        "candidate" if shadow else "kept",
        {**{key: facts[key] for key in keys if key in facts}, "database": database_name},
    )


def _change(model: str, store: Path, candidate: Candidate, *, json: bool) -> None:
    from xylem.thresholds import ThresholdDatabase, take_shadow

    opened_model = open_model(store, model)
    name = opened_model.manifest.model
    version = opened_model.manifest.version
    with ready_database(store) as database:
        if candidate.reset:
            epoch = ThresholdDatabase(database).reset(
                name,
                version,
                serving.open_version(opened_model).thresholds.start_state(),
                opened_model.manifest.digest,
            )
        else:
            epoch = take_shadow(
                database, name, version, opened_model.manifest.digest, switch=candidate.switch
            )
    facts = {"model": name, "version": version, "epoch": epoch}
    outcome = "switched on" if candidate.switch else "dropped"
    print_summary(json, facts, "started anew" if candidate.reset else outcome, facts)


def _kappa_of(text: str | None) -> float | Literal["auto"] | None:
    if text is None:
        return None
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise BadParameter(f"--kappa: expected a number or auto, found {text!r}") from None


def _start_of(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        a, b = map(float, text.split(","))
    except ValueError:
        raise BadParameter(f"--start: expected two numbers A,B, found {text!r}") from None
    return a, b
