"""Train a version again on some of the rows that it was trained on, to fit a ranker by folds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from xylem.base import BadParameter, Dataset, TextFields
from xylem.engine import PREFIX, VectorParameters
from xylem.vocabulary import featurizer_of
from xylem.workflows.train import TrainRequest, train_dataset
from xylem_store import Draft, Model

# What a manifest says of features that no parameter chooses.
_FACTS_OF_ROWS = {
    TextFields.key,
    *(f"{VectorParameters.name_prefix}{name}" for name in ("source", "numbers", "encoder")),
}


def part_trainer(member: Model, dataset: Dataset) -> Callable[[Dataset], Draft] | None:
    """Return what trains on rows as a version was trained on a data set; None if it was not.

    Trainer, parameters, features and seed are those of the version. Raises BadParameter if its
    manifest does not say how it was trained.
    """
    manifest = member.manifest
    if manifest.data.sha256 != dataset.sha256:
        return None
    featurizer = featurizer_of(member)
    parameters: dict[str, Any] = {
        **manifest.trainer.parameters,
        **{
            name if name.startswith(VectorParameters.name_prefix) else f"{PREFIX}{name}": value
            for name, value in manifest.features.items()
            if name not in _FACTS_OF_ROWS
        },
    }
    request = TrainRequest(
        trainer=manifest.trainer.name, data=Path(), parameters=parameters, seed=manifest.seed
    )
    try:
        chosen = request.chosen()._replace(encoder=next(iter(featurizer.encoders), None))
    except BadParameter as error:
        raise BadParameter(
            f"folds: {manifest.full_name} cannot be trained again: {error}"
        ) from None
    return lambda part: train_dataset(featurizer.drop_unused_vectors(part), request, chosen=chosen)
