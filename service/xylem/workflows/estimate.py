"""Estimate the size of a model, and the memory of its training, from a data file."""

from collections.abc import Callable, Iterable
from typing import Any

from xylem.base import Crew, NamedHandle, OnProgress, R, Step, T, ValueHandle, n_bytes, no_progress
from xylem.trainers import (
    ClassifierParameters,
    Tools,
    TrainingSet,
    block_bytes,
    estimate,
    estimate_blocks,
    trainer as find_trainer,
)
from xylem.workflows.prepared import prepare, prepare_in_memory
from xylem.workflows.request import TrainRequest
from xylem.workflows.train import peak_memory_bytes


def estimate_size(request: TrainRequest, on_progress: OnProgress = no_progress) -> dict[str, Any]:
    """Return the keys of `xylem estimate --json` for a training file. Raises BadInput.

    If the steps of the training run on other machines, "ray" has the memory that a node needs for
    all its workers (`node_bytes`), what each worker needs besides (`worker_bytes`), and what this
    process has used to read the same rows and to make the same trees (`driver_bytes`); the weights
    come on top of the last. On a stream, "blocks" has what all nodes, or the disk, hold
    (`held_bytes`), and the same of worker and driver.
    """
    chosen = request.chosen().opened_from(None)
    crew = _Measuring(request.threads)
    if request.ray is not None:
        request.check(chosen)
    parameters = chosen.trainer
    tools = Tools(request.seed, crew, on_progress)
    if request.stream:
        source = prepare(request, chosen, crew, on_progress)
        figures = estimate_blocks(request.trainer, parameters, source, tools)
        assert isinstance(parameters, ClassifierParameters)  # other trainers have no blocks
        return {
            **figures,
            "blocks": {
                "held_bytes": crew.held_bytes,
                "worker_bytes": block_bytes(
                    source.census.n_features, parameters.memory_mib, crew.most_rows
                ),
                "driver_bytes": peak_memory_bytes(),
            },
        }
    data = prepare_in_memory(request, chosen, crew, on_progress).data
    figures = estimate(request.trainer, parameters, data, tools)
    if request.ray is None:
        return figures
    return {
        **figures,
        "ray": {
            "node_bytes": max(crew.most_bytes, n_bytes(data)),
            "worker_bytes": find_trainer(request.trainer).worker_bytes(data, parameters),
            "driver_bytes": peak_memory_bytes(),
        },
    }


class _Measuring(Crew):
    """A crew that measures its steps.

    most_bytes  of its largest step
    held_bytes  of all values that it held
    most_rows   of the largest block
    """

    most_bytes = held_bytes = most_rows = 0

    def steps(self, step: Step[T, R], items: Iterable[T], done: Callable[[T, R], None]) -> None:
        self.most_bytes = max(self.most_bytes, n_bytes(step))
        super().steps(step, items, done)

    def hold(self, value: R) -> ValueHandle[R]:
        self.held_bytes += n_bytes(value)
        if isinstance(value, TrainingSet):
            self.most_rows = max(self.most_rows, value.n_rows)
        return NamedHandle(super().hold(value), "")
