"""What a step is: a piece of a work that depends on nothing but its fields and its item."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Held(Protocol[R_co]):
    """A value that stays where it was made until a step gets it; hashable, and small in messages."""

    def get(self) -> R_co:
        """Return the value; its arrays are not written to."""


class Step(Protocol[T_contra, R_co]):
    """A frozen dataclass: its fields are what all items share, arrays and NamedTuples of arrays among them.

    Fields, items and results go to other processes, and its class is found there by its name: it stands in
    a module. The same fields and item give the same result, bit for bit, in whatever process and order.

    A result is kept in a file as the type that `run` is annotated with: NamedTuples, lists and numbers of
    arrays.
    """

    def workspace(self) -> Any:
        """Return arrays that calls work in, one call after the other; each leaves them as it found them."""

    def run(self, item: T_contra, workspace: Any, stop: NDArray[np.uint8]) -> R_co:
        """Return the result of an item. Once stop[0] is 1 it ends early, and its result is dropped."""


@dataclass(frozen=True)
class Calls(Generic[T, R]):
    """A step that calls a function of a module with an item, and with what all items share."""

    function: Callable[Concatenate[T, ...], R]
    shared: tuple[Any, ...] = ()

    def workspace(self) -> None:
        """Return nothing."""

    def run(self, item: T, workspace: None, stop: NDArray[np.uint8]) -> R:
        """Return the result of an item."""
        return self.function(item, *self.shared)


def function_of(step: Step[Any, Any]) -> Callable[..., Any]:
    """Return what finds the results of a step: it has a name, and says of what type they are."""
    return step.function if isinstance(step, Calls) else step.run
