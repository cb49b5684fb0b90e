"""Steps: what runs on threads, processes or a cluster, and handles of values there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import (
    Any,
    Concatenate,
    Generic,
    Protocol,
    TypeVar,
)

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class ValueHandle(Protocol[R_co]):
    """A handle of a value that stays where it was made until a step gets it.

    Handles are hashable, and small in messages.
    """

    def get(self) -> R_co:
        """Return the value; its arrays must not be written to."""


class Step(Protocol[T_contra, R_co]):
    """A frozen dataclass whose fields are shared by all items, and whose `run` handles one item.

    Arrays and NamedTuples of arrays may be among its fields. Fields, items and results go to other
    processes, which find the class by its name: so it is defined at the top of a module. The same
    fields and item give the same result, bit for bit, in every process and in any order.

    A result consists of NamedTuples, lists, arrays and numbers. The return type of `run` says how
    it is read from a file (`unpacked`).
    """

    def workspace(self) -> Any:
        """Return arrays in which calls of `run` work, one after the other.

        Each call leaves them as they were.
        """

    def run(self, item: T_contra, workspace: Any, stop: NDArray[np.uint8]) -> R_co:
        """Return the result of an item.

        Once stop[0] is 1, it may end early: its result is dropped.
        """


@dataclass(frozen=True)
class Calls(Generic[T, R]):
    """A step that calls a function of a module with an item and the shared arguments."""

    function: Callable[Concatenate[T, ...], R]
    shared: tuple[Any, ...] = ()

    def workspace(self) -> None:
        """Return None: no workspace is needed."""

    def run(self, item: T, workspace: None, stop: NDArray[np.uint8]) -> R:
        """Return the result of an item."""
        return self.function(item, *self.shared)


def function_of(step: Step[Any, Any]) -> Callable[..., Any]:
    """Return the function that computes a step's results; it has a name and a return type."""
    return step.function if isinstance(step, Calls) else step.run
