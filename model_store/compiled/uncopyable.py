"""What is refused of objects that hold addresses: copies, by `copy` and by `pickle`."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


def refuse_copy(holder: object) -> NoReturn:
    """Raise TypeError for what holds addresses, or is of no use without what does."""
    raise TypeError(
        f"cannot copy or pickle {type(holder).__name__}: it holds addresses of arrays of this process; "
        "copy the xylem.Model or the estimator that it is of"
    )


class Uncopyable:
    """What holds addresses of this process's arrays: as numbers they would lead a copy to freed memory."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise TypeError: `copy.copy`, `copy.deepcopy` and `pickle` all ask here."""
        refuse_copy(self)
