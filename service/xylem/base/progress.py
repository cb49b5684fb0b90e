"""The callback by which long work reports its progress."""

from collections.abc import Callable

# Called in the caller's thread with the name of a phase, the amount done, and the total.
#
# A total of 0 means that it is not known.
OnProgress = Callable[[str, int, int], None]


def no_progress(phase: str, done: int, total: int) -> None:
    """Report nothing."""
