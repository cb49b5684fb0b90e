"""How kernels are compiled: the decorators, and a cache for what they make."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import sigutils, types
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from model_store.compiled.cache import HelperCache, KernelCache, use_chosen_level
from model_store.compiled.inlining import InlinedCompiler, connect
from model_store.compiled.locks import alone

F = TypeVar("F", bound=Callable[..., Any])


def _do_without_blas() -> None:
    """Let numba find no BLAS, for which it would import scipy.linalg at the first kernel: ours call none."""
    name = "scipy.linalg.cython_blas"
    modules: dict[str, Any] = sys.modules
    if name not in modules:
        modules[name] = None
        importlib.import_module("numba.np.arraymath")  # which looks for it
        del modules[name]


_do_without_blas()
use_chosen_level()

atexit.register(gc.freeze)
"""What a process holds at its end is left to the system: to free it part by part takes half a second."""


def _compiled(options: Any, function: Callable[..., Any]) -> Any:
    """Return the numba function, which looks into the cache and compiles while no other process does."""
    dispatcher: Any = numba.njit(**options)(function)
    if hasattr(dispatcher, "overloads"):  # not with NUMBA_DISABLE_JIT
        dispatcher._cache = KernelCache(function)
        _compile_alone(dispatcher)
    return dispatcher


def _compiled_for_callers(options: Any, function: Callable[..., Any]) -> Any:
    """Return the numba function, of which kernels see another one that has no code but what they inline."""
    options = {**options, "forceinline": True}
    called = _compiled(options, function)
    if hasattr(called, "overloads"):
        inlined_only: Any = numba.njit(pipeline_class=InlinedCompiler, **options)(function)
        inlined_only._cache = HelperCache(function)
        _compile_alone(inlined_only)
        for name in ("get_call_template", "get_overload"):
            setattr(called, name, getattr(inlined_only, name))
    return called


def _compile_alone(dispatcher: Any) -> None:
    """Let a numba function compile while no other process does.

    Constants that other kernels hand to it have the types of variables: numba would compile it for each.
    """
    function = dispatcher.py_func
    compile_kernel, get_call_template = dispatcher.compile, dispatcher.get_call_template

    def compile_alone(signature: Any) -> Any:
        arguments, _ = sigutils.normalize_signature(signature)
        if tuple(arguments) in dispatcher.overloads:
            return compile_kernel(signature)
        directory = dispatcher._cache.cache_path
        with contextlib.suppress(OSError):  # a cache that can only be read
            dispatcher._cache._impl.locator.ensure_cache_path()
        lock = f"{directory}/{function.__qualname__}-{function.__code__.co_firstlineno}.lock"
        with global_compiler_lock, alone(lock):
            code = compile_kernel(signature)
            if not isinstance(dispatcher._cache, HelperCache):
                connect(dispatcher.overloads[tuple(arguments)])
            return code

    def get_template(arguments: Any, keywords: Any) -> Any:
        unliteral: Any = types.unliteral
        keywords = {name: unliteral(value) for name, value in keywords.items()}
        return get_call_template(tuple(map(unliteral, arguments)), keywords)

    dispatcher.compile, dispatcher.get_call_template = compile_alone, get_template


_OPTIONS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_NONALLOCATING: Any = {**_OPTIONS, "_nrt": False}


def kernel(function: F) -> F:
    """Compile `function` at its first call, without the interpreter lock, cached on disk.

    Division by zero gives inf or nan as in numpy. No fast-math: the same input gives the same bits in every
    traversal, and on any number of threads.
    """
    compiled: F = _compiled(_OPTIONS, function)
    return compiled


def inlined(function: F) -> F:
    """Compile a small helper into each kernel that calls it."""
    compiled: F = _compiled_for_callers(_OPTIONS, function)
    return compiled


def nonallocating_kernel(function: F) -> F:
    """Compile a kernel that allocates nothing and owns none of the arrays it is given.

    Without numba's reference counts, whose atomic updates at every use of a NamedTuple's field took half the
    time of a traversal. Such a kernel can neither create arrays nor return them; slices are fine.
    """
    compiled: F = _compiled(_NONALLOCATING, function)
    return compiled


def nonallocating_inlined(function: F) -> F:
    """Compile a helper of such kernels into each that calls it."""
    compiled: F = _compiled_for_callers(_NONALLOCATING, function)
    return compiled


def instruction(emit: Callable[..., Any]) -> Any:
    """Make `emit(typing_context, *types) -> (signature, code generator)` callable in kernels.

    numba's `intrinsic`; what it returns is called with other arguments than `emit` has, hence Any.
    """
    return intrinsic(emit)
