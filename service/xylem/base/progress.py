"""The callback by which long work reports its progress."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Called in the caller's thread with the name of a phase, the amount done, and the total.
#
# A total of 0 means that it is not known.
OnProgress = Callable[[str, int, int], None]

# The phase of the first progress bar: the time of all phases. A workflow that knows its stages
# reports how many of them are done; in others the bar has no end.
IN_ALL = "in all"


def no_progress(phase: str, done: int, total: int) -> None:
    """Report nothing."""


@contextmanager
def one_step(on_progress: OnProgress, phase: str) -> Iterator[None]:
    """Report a phase as 0 of 1 when the block begins, and as 1 of 1 if it ends well."""
    on_progress(phase, 0, 1)
    yield
    on_progress(phase, 1, 1)
