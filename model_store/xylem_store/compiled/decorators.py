"""The decorators that compile kernels.

If numba lacks an inner part they use, they only call `njit`.
"""

import atexit
import contextlib
import gc
import importlib
import logging
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.extending import intrinsic

from xylem_store.compiled.cache import use_chosen_level
from xylem_store.compiled.inner_parts import missing_options, missing_parts

F = TypeVar("F", bound=Callable[..., Any])


def _do_without_blas() -> None:
    """Let numba find no BLAS, for which it would import scipy.linalg; no kernel here calls BLAS."""
    name = "scipy.linalg.cython_blas"
    modules: dict[str, Any] = sys.modules
    if name not in modules:
        modules[name] = None
        with contextlib.suppress(ImportError):
            importlib.import_module("numba.np.arraymath")  # looks for BLAS when it is imported
        del modules[name]


_do_without_blas()
use_chosen_level()

atexit.register(gc.freeze)
"""Objects are not freed one by one at the end of a process, which takes half a second.

The system frees the memory.
"""


_unknown = missing_options()
_ALL_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
_NONALLOCATING = {name: value for name, value in _ALL_OPTIONS.items() if name not in _unknown}
_OPTIONS = {name: value for name, value in _NONALLOCATING.items() if name != "_nrt"}


def _by_numba(options: dict[str, Any], function: F) -> F:
    compiled: F = numba.njit(**options)(function)
    return compiled


_compiled = _compiled_for_callers = _by_numba
_missing = [*missing_parts(), *_unknown]
if _missing:
    logging.getLogger(__name__).warning(
        "kernels are slower, and compiled at each start: numba %s has no %s",
        numba.__version__,
        ", ".join(_missing),
    )
else:
    from xylem_store.compiled import dispatchers

    _compiled = dispatchers.compiled
    _compiled_for_callers = dispatchers.compiled_for_callers


def kernel(function: F) -> F:
    """Compile `function` at its first call, without the interpreter lock, cached on disk.

    Division by zero gives inf or nan as in numpy. No fast-math: the same input gives the same bits
    in every traversal, and on any number of threads.
    """
    return _compiled(_OPTIONS, function)


def inlined(function: F) -> F:
    """Compile a small helper into each kernel that calls it."""
    return _compiled_for_callers(_OPTIONS, function)


def nonallocating_kernel(function: F) -> F:
    """Compile a kernel that allocates nothing and owns none of the arrays it is given.

    It has no reference counts of numba, whose atomic updates at every use of a NamedTuple's field
    took half the time of a traversal. Such a kernel can neither create arrays nor return them;
    slices are fine.
    """
    return _compiled(_NONALLOCATING, function)


def nonallocating_inlined(function: F) -> F:
    """Compile a small helper into each kernel that calls it; it creates and returns no arrays.

    The kernel may create some. With reference counts, which `inlined` has, a helper that is
    called for each byte and calls others took up to eight times as long.
    """
    return _compiled_for_callers(_NONALLOCATING, function)


def instruction(emit: Callable[..., Any]) -> Any:
    """Make `emit(typing_context, *types) -> (signature, code generator)` callable in kernels.

    This is numba's `intrinsic`. The result is called with other arguments than `emit` has, hence
    Any.
    """
    return intrinsic(emit)
