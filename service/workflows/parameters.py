"""The parameters of a training: those of its trainer, and those of its features, checked together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from model_store.manifest import WORD_FORMS
from service.base.errors import BadParameter, ParameterFault
from service.base.parameters import Parameters, json_object, scalar_of, split_items
from service.features.languages import FILE_SUFFIX
from service.features.parameters import PREFIX, WordParameters, check_features
from service.features.word_forms import fit_forms
from service.trainers.registry import trainer


class Chosen(NamedTuple):
    """What was chosen for a training.

    trainer   of the trainer's class
    features  values by name, without their prefix; which kind they are for may only be known with the data
    """

    trainer: Parameters
    features: dict[str, Any]


def parse(name: str, items: Sequence[str]) -> Chosen:
    """Return what the `key=value` items of a command line choose for trainer `name`.

    Names that begin with "features." are the features', others the trainer's. Raises BadParameter for a
    trainer that is unknown; otherwise its `faults` are all that is wrong with the parameters. Raises BadData
    for a file of stop words that cannot be used.
    """
    parameters = trainer(name).parameters
    own, features = _parted(split_items(items))
    return _checked(
        lambda: parameters.from_text(own), {key: scalar_of(text) for key, text in features.items()}
    )


def from_json(name: str, values: object) -> Chosen:
    """Return what a JSON object chooses: `{"trees": 3, "features.ngram_max": 2}`. Raises as `parse`.

    It may come from another machine, and so names no file, as of stop words.
    """
    parameters = trainer(name).parameters
    own, features = _parted(json_object(values))
    stop_words = features.get("stop_words")
    if isinstance(stop_words, str) and stop_words.endswith(FILE_SUFFIX):
        message = "expected the code of a language, found a file, which only xylem train and estimate take"
        raise BadParameter.of([ParameterFault(f"{PREFIX}stop_words", message)])
    return _checked(lambda: parameters.from_json(own), features)


def _parted(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (the trainer's, the features' without their prefix)."""
    own = {key: value for key, value in values.items() if not key.startswith(PREFIX)}
    return own, {key.removeprefix(PREFIX): value for key, value in values.items() if key not in own}


def _checked(make: Callable[[], Parameters], features: dict[str, Any]) -> Chosen:
    """Return both, or raise what is wrong with either."""
    faults: list[ParameterFault] = []
    chosen = None
    try:
        chosen = make()
    except BadParameter as error:
        faults += error.faults
    try:
        check_features(features)
    except BadParameter as error:
        faults += error.faults
    if chosen is None or faults:
        raise BadParameter.of(faults)
    words = {name: features[name] for name in WORD_FORMS if name in features}
    fit_forms(WordParameters(**words))  # a library that is missing, or a file, is told before data are read
    return Chosen(chosen, features)
