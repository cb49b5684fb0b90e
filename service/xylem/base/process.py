"""The garbage collection of a process."""

import gc

_USUAL = gc.get_threshold()
# thresholds of the three generations for a start, at which Python makes objects that stay
_SELDOM = (20_000, 10, 10)


def collect_seldom() -> None:
    """Let the garbage collector run only after many new objects.

    Objects that a process imports or compiles at its start stay in memory anyway, and need not be
    examined.
    """
    gc.set_threshold(*_SELDOM)


def settle() -> None:
    """Exempt all present objects from garbage collection; new ones are collected as usual."""
    gc.freeze()
    gc.set_threshold(*_USUAL)
