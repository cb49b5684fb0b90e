"""The state of a training that learns row by row.

It is stored beside the model, so that a later training can continue from it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadParameter
from xylem_store import (
    STATE,
    Corrupt,
    Model,
    TreeEnsemble,
    json_array,
    read_json_array,
    take,
)

# Version of the state's format: increased when a trainer stores other arrays or facts, or uses
# them in another way.
FORMAT = 1

_FACTS = f"{STATE}/json"


class PassPlan(NamedTuple):
    """The number of passes over the rows that the parameters of a trainer set.

    parameter  name of the parameter that sets it
    is_open    whether no step depends on the number, so that more passes can be added later
    """

    parameter: str
    passes: int
    is_open: bool


class LearnerState(NamedTuple):
    """Everything that the next steps depend on, besides rows, parameters and seed.

    passes    number of passes over the rows that are done
    facts     values of JSON, by name
    arrays    by name; a training that continues copies the arrays before it writes to them
    ensemble  trees of the version; None before the version is published
    """

    passes: int
    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    ensemble: TreeEnsemble | None = None

    def take(self, name: str, dtype: str, *shape: int | None) -> NDArray[Any]:
        """Return an array after checking its dtype and shape, and that its numbers are finite.

        shape  None for a dimension of any size

        Raises Corrupt.
        """
        array = take(
            {f"{STATE}/{key}": value for key, value in self.arrays.items()},
            f"{STATE}/{name}",
            dtype,
            shape,
        )
        check_that(np.isfinite(array).all(), f"finite numbers in {name}")
        return array

    def stored(self, trainer: str) -> dict[str, NDArray[Any]]:
        """Return the arrays, by name, in which a version stores the state."""
        facts = {"format": FORMAT, "trainer": trainer, "passes": self.passes, "facts": self.facts}
        return {
            **{f"{STATE}/{name}": array for name, array in self.arrays.items()},
            _FACTS: json_array(_FACTS, facts),
        }


class Passes(NamedTuple):
    """The passes that a training makes, of those that are planned.

    state  the state after the passes that are done; None before the first pass
    until  the training stops after this pass; 0: after the last one
    keeps  whether the training returns a state
    """

    state: LearnerState | None = None
    until: int = 0
    keeps: bool = False

    def pass_numbers(self, planned: int) -> range:
        """Return the numbers of the passes to make, counted from 0."""
        return range(0 if self.state is None else self.state.passes, self.until or planned)


EVERY_PASS = Passes()


def read_state(model: Model) -> LearnerState:
    """Return the state of a version.

    Raises BadParameter if the version has no state that this release can read, and Corrupt.
    """
    version = model.manifest.full_name
    arrays = model.at_rest(STATE)
    if _FACTS not in arrays:
        raise BadParameter(
            f"from: expected a version with the state of its training, found {version} without "
            "one: train it with --keep-state"
        )
    header = read_json_array(arrays, _FACTS)
    if header.get("format") != FORMAT:
        raise BadParameter(
            f"from: expected a state of format {FORMAT}, found format "
            f"{header.get('format')!r:.20} of another release in {version}: train it again"
        )
    if header.get("trainer") != model.manifest.trainer.name:
        raise BadParameter(
            f"from: expected a state of {model.manifest.trainer.name}, found one of "
            f"{header.get('trainer')!r:.80} in {version}"
        )
    passes = header.get("passes")
    facts = header.get("facts")
    if type(passes) is not int or passes < 0 or type(facts) is not dict:
        raise Corrupt("state.json.npy", "passes as a number, and facts", f"{passes!r:.80}")
    return LearnerState(
        passes,
        facts,
        {name.removeprefix(f"{STATE}/"): array for name, array in arrays.items()},
        model.ensemble,
    )


@contextmanager
def restoring() -> Iterator[None]:
    """Raise Corrupt in place of the errors that wrong facts or arrays of a state cause.

    Those are LookupError, TypeError, ValueError and OverflowError.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise Corrupt(
            STATE,
            "the facts and arrays that this release stores",
            f"{type(error).__name__}: {error}",
        ) from error


def check_that(holds: object, expected: str) -> None:
    """Raise Corrupt unless a condition on a state holds.

    expected  what the condition demands, for the message
    """
    if not holds:
        raise Corrupt(STATE, expected, "other numbers")
