"""`xylem estimate`: how large a model will be, before it is trained."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.console import mebibytes, print_facts, print_json, progress
from service.cli.groups import grouped
from service.cli.options import (
    TRAINER_NAMES,
    Data,
    Json,
    Parameters,
    Table,
    Work,
    n_threads,
)
from service.cli.train import LabelNames

FORECAST = ("fastxml", "pfastrexml")
"""Trainers that grow one tree and forecast the others; those of the other trainers are bounds that hold."""

Trainer = Annotated[
    str, typer.Option("--trainer", metavar="TRAINER", help=f"One of {', '.join(TRAINER_NAMES)}.")
]


@grouped
def estimate(
    data: Data,
    table: Table,
    work: Work,
    parameters: Parameters = None,
    trainer: Trainer = "label-tree",
    label_names: LabelNames = None,
    json: Json = False,
) -> None:
    """Bound a model's weights before training it, and compare with flat one-vs-rest.

    A weight counts 12 bytes, one of flat one-vs-rest 8. Small weights are left out of most models, so that a
    version is far smaller; names of labels and features are not counted. Memory of training is neither.
    """
    from service.workflows.train import TrainRequest, estimate_size

    request = TrainRequest(
        trainer=trainer,
        data=data,
        parameters=tuple(parameters or ()),
        label_names=label_names,
        columns=table.columns(data),
        seed=work.seed,
        threads=n_threads(work.threads),
    )
    with progress(json) as show:
        size = estimate_size(request, show)
    if json:
        print_json(size)
        return
    bound = "about" if trainer in FORECAST else "at most"
    facts = {
        "weights": f"{bound} {size['nonzeros_bound']:,}",
        "their bytes": f"{bound} {mebibytes(size['bytes_bound'])}",
        "of flat one-vs-rest": f"{100 * size['ratio_to_ovr']:.1f} %",
    }
    for depth, alpha in enumerate(size["alpha_per_depth"], 1):
        facts[f"features kept, depth {depth}"] = f"{100 * alpha:.1f} %"
    print_facts(f"{trainer} on {data}", facts)
