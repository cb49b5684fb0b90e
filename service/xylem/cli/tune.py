"""`xylem tune`: find the best trainer and parameters on held-out rows, publish that model."""

from pathlib import Path
from typing import Annotated, NamedTuple

from typer import Option

import xylem_store
from xylem import workflows
from xylem.base import file_path, load_extra, n_threads
from xylem.cli.aliases import store_to_publish
from xylem.cli.console import as_option, mebibytes, print_facts, print_json, print_table, progress
from xylem.cli.options import (
    DEFAULT_STORE,
    Data,
    Json,
    ParameterItems,
    RayAddress,
    StoreDir,
    Table,
    Work,
    grouped,
    in_panel,
)
from xylem.cli.train import LabelNames, NewModel

_LISTED_TRIALS_MAX = 10


class Validation(NamedTuple):
    """The options for what trials are measured on."""

    valid: Annotated[
        Path | None,
        Option(
            "--valid",
            metavar="FILE",
            parser=file_path,
            help="Measure on this file, not on rows held out of --data. Never use your test file.",
        ),
    ] = None
    folds: Annotated[
        int | None,
        Option(
            min=2,
            max=20,
            help="Cross-validate on this many folds; default: hold out one fifth once.",
        ),
    ] = None


@in_panel("Search", common=("minutes",))
class SearchOptions(NamedTuple):
    """The options for what is tried, for how long, and what is maximised."""

    trainers: Annotated[
        list[str] | None,
        Option("--trainer", help="A trainer to try; may repeat. Default: label-tree and plt."),
    ] = None
    metric: Annotated[
        str, Option(help="The figure to maximise, such as P@1, nDCG@5, PSP@3 or R@5.")
    ] = "P@5"
    minutes: Annotated[float, Option(min=0.01, max=100_000, help="Time for the search.")] = 10.0
    trials: Annotated[int, Option(min=1, max=100_000, help="Maximum number of trials.")] = 1000
    study: Annotated[
        Path | None,
        Option(
            "--study",
            metavar="FILE",
            help="Store the trials in this file, or continue those in it.",
        ),
    ] = None
    ray: RayAddress = None


@grouped
def tune(
    data: Data,
    table: Table,
    model: NewModel,
    validation: Validation,
    search_options: SearchOptions,
    work: Work,
    parameters: ParameterItems = None,
    label_names: LabelNames = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Search for the trainer and parameters that are best on held-out rows; publish that model.

    Parameters given with -p are not searched. The best trial is trained again on all of --data.
    Needs the extra tune. With --ray the nodes of a cluster run trials in parallel, one on each
    processor. The figures of the search are too good, because they are the best of many trials.
    Measure the published model on another file with xylem evaluate.
    """

    parameter_search = load_extra("search")
    columns = table.columns(data, validation.valid)
    xylem_store.check_model(model)
    target = store_to_publish(store, "xylem tune")
    target.prepare()
    request = parameter_search.SearchRequest(
        data=data,
        valid=validation.valid,
        folds=validation.folds or 1,
        fixed=tuple(parameters or ()),
        label_names=label_names,
        columns=columns,
        seed=work.seed,
        threads=n_threads(work.threads),
        **{
            **search_options._asdict(),
            "trainers": tuple(search_options.trainers or parameter_search.DEFAULT_TRAINERS),
        },
    )
    with progress(json) as show:
        trials = parameter_search.search(request, show, store=target)
        best = trials[0]
        report = workflows.train_and_publish(
            store_to_publish(store, f"xylem tune {best.trainer}"),
            model,
            request.training(best),
            show,
        )
    if json:
        print_json(
            {
                "model": model,
                "version": report.version,
                "metric": search_options.metric,
                "best": best._asdict(),
                "trials": [trial._asdict() for trial in trials],
            }
        )
        return
    print_table(
        f"The best of {len(trials)} trials on held-out rows; percent",
        ("trainer", search_options.metric, "seconds", "model", "parameters"),
        [
            (
                trial.trainer,
                trial.value,
                trial.seconds,
                mebibytes(trial.model_bytes),
                _parameter_text(trial.parameters),
            )
            for trial in trials[:_LISTED_TRIALS_MAX]
        ],
    )
    print_facts(
        f"Published {model}@{report.version} in {store}",
        {"trainer": best.trainer, "parameters": _parameter_text(best.parameters)},
    )


def _parameter_text(parameters: dict[str, bool | int | float | str | None]) -> str:
    """Return parameters as they are written on a command line."""
    return " ".join(f"{key}={as_option(value)}" for key, value in parameters.items())
