"""The values that a search tries: parameters of each trainer, and those of text features."""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from xylem.base import BadParameter, Scalar
from xylem.engine import PREFIX, TfidfParameters, VectorParameters, WordsCharsParameters
from xylem.trainers import trainer

if TYPE_CHECKING:
    from optuna import Trial

# How the names begin of parameters that no trainer has: they say how rows are made.
_OF_ROWS = (PREFIX, VectorParameters.name_prefix)

TRAINER = "trainer"  # the name of the first choice of a trial


class Range(NamedTuple):
    """Numbers from low to high, integers if both are.

    start  is tried first
    log    whether numbers are drawn evenly by their logarithm
    """

    low: float
    high: float
    start: float
    log: bool = False


class Choice(NamedTuple):
    """Some values; the first one is tried first."""

    values: tuple[Scalar, ...]


Dimension: TypeAlias = Range | Choice

_LINEAR: dict[str, Dimension] = {
    "cost": Range(0.05, 8.0, 0.5, log=True),
    "link": Choice(("hinge3", "hinge2")),
    "rare_decay": Range(0.0, 0.3, 0.0),
    "prune": Choice(("auto", 0.05, 0.2)),
}
_FOREST: dict[str, Dimension] = {
    "trees": Range(10, 50, 25),
    "cost": Range(0.1, 4.0, 0.45, log=True),
    "max_leaf": Range(3, 30, 10, log=True),
}

# The parameters that are tried; all others keep their defaults or the values of the request.
SPACES: dict[str, dict[str, Dimension]] = {
    "label-tree": {
        **_LINEAR,
        "trees": Range(1, 3, 1),
        "leaf_size": Range(20, 400, 100, log=True),
        "arity": Choice((16, 8, 32)),
    },
    "ovr": _LINEAR,
    "plt": {
        "cost": Range(0.5, 32.0, 4.0, log=True),
        "rare_decay": Range(0.0, 0.3, 0.15),
        "trees": Range(1, 3, 1),
        "leaf_size": Range(20, 400, 100, log=True),
    },
    "fastxml": _FOREST,
    "pfastrexml": {
        **_FOREST,
        "alpha": Range(0.2, 0.9, 0.5),
        "gamma": Range(5.0, 60.0, 30.0, log=True),
    },
    "ldsm": {
        "trees": Range(10, 50, 25),
        "arity": Choice((4, 2, 8)),
        "lambda1": Range(0.5, 4.0, 2.0, log=True),
        "lambda2": Range(0.5, 4.0, 1.25, log=True),
    },
}

_KIND = f"{PREFIX}kind"
_WORDS = TfidfParameters.kind
_CHARS = WordsCharsParameters.kind

_TEXT: dict[str, Dimension] = {
    f"{PREFIX}ngram_max": Choice((1, 2)),
    f"{PREFIX}min_df": Range(1, 3, 1),
    f"{PREFIX}sublinear_tf": Choice((True, False)),
}

DEFAULT_TRAINERS = ("label-tree", "plt")


def digest_of_spaces() -> str:
    """Return a digest that changes with the spaces.

    A study can only be continued with its own spaces.
    """
    return hashlib.sha256(repr((SPACES, _TEXT)).encode()).hexdigest()[:8]


def check_space(trainers: tuple[str, ...], fixed: Mapping[str, Scalar]) -> None:
    """Raise BadParameter for a trainer without a space, and for a parameter that no trainer has."""
    for name in trainers:
        if name not in SPACES:
            raise BadParameter(f"--trainer: expected some of {', '.join(SPACES)}, found {name!r}")
    if len(set(trainers)) != len(trainers) or not trainers:
        raise BadParameter(f"--trainer: expected each once, found {', '.join(trainers) or 'none'}")
    for key in fixed:
        if not key.startswith(_OF_ROWS) and not any(_has(name, key) for name in trainers):
            raise BadParameter(
                f"{key}: expected a parameter of {', '.join(trainers)}, found another name"
            )


def dimensions_of(
    name: str, fixed: Mapping[str, Scalar], *, are_texts: bool
) -> dict[str, Dimension]:
    """Return the parameters that are tried with a trainer, without those that are fixed.

    For texts there are parameters of their features too, if these are of words.
    """
    space = dict(SPACES[name])
    if are_texts and fixed.get(_KIND, _WORDS) in (_WORDS, _CHARS):
        names = {key.removeprefix(PREFIX) for key in fixed if key.startswith(PREFIX)} - {
            "kind",
            "encoder",
        }
        # otherwise the fixed parameters are those of characters
        space |= {
            _KIND: Choice(
                (_WORDS, _CHARS) if names <= TfidfParameters.model_fields.keys() else (_CHARS,)
            ),
            **_TEXT,
        }
    return {key: dimension for key, dimension in space.items() if key not in fixed}


def fixed_of(name: str, fixed: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the fixed values of a trainer, of the features and of vectors."""
    return {
        key: value for key, value in fixed.items() if key.startswith(_OF_ROWS) or _has(name, key)
    }


def start_of(name: str, dimensions: Mapping[str, Dimension]) -> dict[str, Any]:
    """Return the values that a trainer is first tried with, by their names in trials."""
    values = {
        _trial_name(name, key): dimension.values[0]
        if isinstance(dimension, Choice)
        else dimension.start
        for key, dimension in dimensions.items()
    }
    return {TRAINER: name, **values}


def ask(trial: "Trial", name: str, dimensions: Mapping[str, Dimension]) -> dict[str, Scalar]:
    """Return the values of a trial, by the names that trainers and features use."""
    values: dict[str, Scalar] = {}
    for key, dimension in dimensions.items():
        full_name = _trial_name(name, key)
        if isinstance(dimension, Choice):
            values[key] = trial.suggest_categorical(full_name, dimension.values)
        elif isinstance(dimension.low, int) and isinstance(dimension.high, int):
            values[key] = trial.suggest_int(
                full_name, dimension.low, dimension.high, log=dimension.log
            )
        else:
            values[key] = trial.suggest_float(
                full_name, dimension.low, dimension.high, log=dimension.log
            )
    return values


def _trial_name(name: str, key: str) -> str:
    """Return the name of a parameter in trials: features have the same one for all trainers."""
    return key if key.startswith(PREFIX) else f"{name}.{key}"


def _has(name: str, key: str) -> bool:
    return key in trainer(name).parameters.model_fields
