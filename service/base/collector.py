"""Python's collector of cycles while a server begins: what it makes then, modules, kernels, models, stays.

To walk it again and again took a fifth of a server's start.
"""

from __future__ import annotations

import gc

_SELDOM = (20_000, 10, 10)
_USUAL = gc.get_threshold()


def collect_seldom() -> None:
    """Let the collector begin after many objects: what a process begins with, or compiles, stays."""
    gc.set_threshold(*_SELDOM)


def settle() -> None:
    """Never look again at what there is now, and at what comes as usual."""
    gc.freeze()
    gc.set_threshold(*_USUAL)
