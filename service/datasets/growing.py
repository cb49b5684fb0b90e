"""Arrays that grow by appending, without a second copy at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Growing:
    """One array of unknown length; appending costs amortised constant time an element."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._array: NDArray[Any] = np.empty(1 << 10, dtype)
        self.n = 0

    def extend(self, more: NDArray[Any]) -> None:
        """Append the elements of `more`."""
        end = self.n + len(more)
        if end > len(self._array):
            # resize reallocates: large arrays are remapped by the system, not copied
            self._array.resize(max(end, len(self._array) * 3 // 2), refcheck=False)
        self._array[self.n : end] = more
        self.n = end

    def finish(self) -> NDArray[Any]:
        """Return the array, cut to its length; nothing can be appended after."""
        self._array.resize(self.n, refcheck=False)
        return self._array
