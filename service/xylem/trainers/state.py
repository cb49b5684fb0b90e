"""What a training that learns row by row leaves beside its model, so
that another one goes on from there.
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
    at_rest,
    json_array,
    read_json_array,
    take,
)

FORMAT = 1
"""Another number whenever what a trainer keeps, or what it does with it, is another."""

_FACTS = f"{STATE}/json"


class PassPlan(NamedTuple):
    """The passes over the rows that a trainer's parameters plan.

    parameter  that says how many
    is_open    whether no step depends on how many there are, so that more can be planned later
    """

    parameter: str
    passes: int
    is_open: bool


class LearnerState(NamedTuple):
    """All that steps depend on besides rows, parameters and seed.

    passes    over the rows, that are done
    facts     as JSON takes them
    arrays    by name; a training that goes on copies what it writes to
    ensemble  of the version; None before it is published
    """

    passes: int
    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    ensemble: TreeEnsemble | None = None

    def take(self, name: str, dtype: str, *shape: int | None) -> NDArray[Any]:
        """Return an array, its type, known sizes and numbers, which are finite, checked.

        Raises Corrupt.
        """
        stored = {f"{STATE}/{key}": value for key, value in self.arrays.items()}
        array = take(stored, f"{STATE}/{name}", dtype, shape)
        check_that(np.isfinite(array).all(), f"finite numbers in {name}")
        return array

    def stored(self, trainer: str) -> dict[str, NDArray[Any]]:
        """Return the arrays that keep it with a version."""
        facts = {"format": FORMAT, "trainer": trainer, "passes": self.passes, "facts": self.facts}
        arrays = {f"{STATE}/{name}": array for name, array in self.arrays.items()}
        return {**arrays, _FACTS: json_array(_FACTS, facts)}


class Passes(NamedTuple):
    """Which of the passes that are planned a training makes.

    state  what the passes before left; None: there were none
    until  the last one; 0: all
    keeps  whether it leaves a state
    """

    state: LearnerState | None = None
    until: int = 0
    keeps: bool = False

    def of(self, planned: int) -> range:
        """Return the passes, from 0."""
        return range(0 if self.state is None else self.state.passes, self.until or planned)


EVERY_PASS = Passes()


def read_state(model: Model) -> LearnerState:
    """Return the state of a version.

    Raises BadParameter where it has none for this release, Corrupt.
    """
    version = model.manifest.shown
    trainer = model.manifest.trainer.name
    arrays = at_rest(model, STATE)
    if _FACTS not in arrays:
        raise BadParameter(
            f"from: expected a version with its state, found {version} without: train it with "
            "--keep-state"
        )
    header = read_json_array(arrays, _FACTS)
    if header.get("format") != FORMAT:
        raise BadParameter(
            f"from: expected a state of format {FORMAT}, found that of {version} of format "
            f"{header.get('format')!r:.20}, of another release: train anew"
        )
    if header.get("trainer") != trainer:
        raise BadParameter(
            f"from: expected a state of {trainer}, found that of {version} of "
            f"{header.get('trainer')!r:.80}"
        )
    passes = header.get("passes")
    facts = header.get("facts")
    if type(passes) is not int or passes < 0 or type(facts) is not dict:
        raise Corrupt("state.json.npy", "passes that are done, and facts", f"{passes!r:.80}")
    arrays_by_name = {name.removeprefix(f"{STATE}/"): array for name, array in arrays.items()}
    return LearnerState(passes, facts, arrays_by_name, model.ensemble)


@contextmanager
def restoring() -> Iterator[None]:
    """Refuse facts and arrays that do not fit together. Raises Corrupt."""
    try:
        yield
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise Corrupt(
            STATE, "what this release keeps", f"{type(error).__name__}: {error}"
        ) from error


def check_that(holds: object, expected: str) -> None:
    """Raise Corrupt unless it holds, of a state."""
    if not holds:
        raise Corrupt(STATE, expected, "other numbers")
