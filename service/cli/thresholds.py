"""`xylem thresholds`: tune a version's thresholds for macro-F, and keep them with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
)
from service.errors import BadParameter

if TYPE_CHECKING:
    from service.evaluation import FMeasures
    from service.thresholds.ofo import Start
    from service.tuning import Outcome

ALL = "all"

Methods = Annotated[
    list[str],
    typer.Option(
        "--method",
        metavar="METHOD",
        help="ofo, fta, fta-one or sto; may repeat: the first is kept, the others are reported. all: all.",
    ),
]
Test = Annotated[
    Path | None, typer.Option("--test", metavar="FILE", help="A labelled file to measure on besides.")
]
Kappa = Annotated[float, typer.Option(help="Estimates of a lower probability are left out: 0.0001 to 0.5.")]
StartValues = Annotated[
    str | None,
    typer.Option("--start", metavar="A,B", help="Start values of ofo; chosen on the file if left out."),
]


def thresholds(
    model: Model,
    data: Data,
    method: Methods,
    test: Test = None,
    empty_labels: EmptyLabels = "one",
    kappa: Kappa = 0.01,
    start: StartValues = None,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Tune a version's thresholds on a labelled file that it was not trained on, and keep them with it.

    They are what `--threshold tuned` and `"threshold": "tuned"` predict at from then on, and where feedback
    goes on from. All F-measures are in percent.
    """
    from model_store.store import Store
    from service.thresholds.state import ThresholdDatabase
    from service.thresholds.tuned import METHODS
    from service.tuning import TuneRequest, check_request, tune

    methods: Any = METHODS if ALL in method else tuple(method)
    empty: Any = empty_labels
    request = TuneRequest(methods, data, test, empty, kappa, _start_of(start), threads or os.cpu_count() or 1)
    check_request(request)
    name, reference = parse_reference(model)
    opened = Store(store).open(name, reference)
    with progress(json) as show:
        outcomes = tune(opened, request, show)
    with opened_database(store, create=True) as database:
        assert database is not None
        epoch = ThresholdDatabase(database).save(name, opened.manifest.version, outcomes[0].tuned)
    facts = {"model": name, "version": opened.manifest.version, "epoch": epoch, **_facts(outcomes[0])}
    if json:
        print_json({**facts, "methods": [_facts(outcome) for outcome in outcomes]})
        return
    columns = ("method", *(f"{part} {f}-F" for part in _parts(test) for f in ("macro", "micro", "instance")))
    title = f"{name}@{opened.manifest.version} tuned on {data}; percent"
    print_table(title, columns, [_row(outcome) for outcome in outcomes])
    shown = ("method", "epoch", "empty_label_convention", "start", "power")
    print_facts("kept", {key: facts[key] for key in shown})


def _start_of(text: str | None) -> Start | None:
    """Return the start values that A,B says. Raises BadParameter."""
    from service.thresholds.ofo import Start, check_start

    if text is None:
        return None
    try:
        a, b = map(float, text.split(","))
    except ValueError:
        raise BadParameter(f"--start: expected two numbers A,B, found {text!r}") from None
    return check_start(Start(a, b))


def _parts(test: Path | None) -> tuple[str, ...]:
    return ("validation",) if test is None else ("validation", "test")


def _row(outcome: Outcome) -> tuple[object, ...]:
    measured = [f for f in (outcome.validation, outcome.test) if f is not None]
    return outcome.tuned.method, *(value for f in measured for value in (f.macro_f, f.micro_f, f.instance_f))


def _facts(outcome: Outcome) -> dict[str, Any]:
    """Return what `--json` says of a method."""
    tuned = outcome.tuned
    return {
        "method": tuned.method,
        **_named("validation", outcome.validation),
        **({} if outcome.test is None else _named("test", outcome.test)),
        "empty_label_convention": tuned.convention,
        "labels": len(tuned.thresholds),
        "start": [tuned.start.a, tuned.start.b],
        "power": tuned.start.power,
    }


def _named(part: str, f: FMeasures) -> dict[str, float]:
    return {f"{part}_macro_f": f.macro_f, f"{part}_micro_f": f.micro_f, f"{part}_instance_f": f.instance_f}
