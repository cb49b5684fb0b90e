"""What a step is: a piece of a work that depends on nothing but its fields and its item."""

from typing import Any, ClassVar, Protocol, TypeVar

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

    result  the type of a result, as it is kept in a file: NamedTuples, lists and numbers of arrays
    """

    result: ClassVar[Any]

    def workspace(self) -> Any:
        """Return arrays that calls work in, one call after the other; each leaves them as it found them."""

    def run(self, item: T_contra, workspace: Any, stop: NDArray[np.uint8]) -> R_co:
        """Return the result of an item. Once stop[0] is 1 it ends early, and its result is dropped."""


class NoWorkspace:
    """A step whose calls bring what they work in."""

    def workspace(self) -> None:
        """Return nothing."""
