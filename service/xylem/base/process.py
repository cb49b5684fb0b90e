"""The garbage collection of a process."""

import gc

_USUAL_THRESHOLDS = gc.get_threshold()

# at its start a process makes many objects that stay: with the usual thresholds the collector would
# look at them again and again
_START_THRESHOLDS = (20_000, 10, 10)


def collect_seldom() -> None:
    """Let the garbage collector run only after many new objects.

    Objects that a process imports or compiles at its start stay in memory anyway, and need not be
    examined.
    """
    gc.set_threshold(*_START_THRESHOLDS)


def settle() -> None:
    """Exempt all present objects from garbage collection; new ones are collected as usual."""
    gc.freeze()
    gc.set_threshold(*_USUAL_THRESHOLDS)
