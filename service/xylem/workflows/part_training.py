"""Train a version again on some of the rows that it was trained on, to fit a ranker by folds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from xylem.base import BadParameter, Dataset, TextFields
from xylem.workflows.train import TrainRequest, train_dataset
from xylem_store import Draft, Model


def part_trainer(member: Model, dataset: Dataset) -> Callable[[Dataset], Draft] | None:
    """Return what trains on rows as a version was trained on a data set; None if it was not.

    Trainer, parameters, features and seed are those of the version. Raises BadParameter if its
    manifest does not say how it was trained.
    """
    manifest = member.manifest
    if manifest.data.sha256 != dataset.sha256:
        return None
    parameters: dict[str, Any] = {
        **manifest.trainer.parameters,
        **{
            f"features.{name}": value
            for name, value in manifest.features.items()
            if name != TextFields.key
        },
    }
    request = TrainRequest(
        trainer=manifest.trainer.name, data=Path(), parameters=parameters, seed=manifest.seed
    )
    try:
        chosen = request.chosen()
    except BadParameter as error:
        raise BadParameter(
            f"folds: {manifest.full_name} cannot be trained again: {error}"
        ) from None
    return lambda part: train_dataset(part, request, chosen=chosen)
