"""numba's functions with our cache, and helpers without machine code of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numba
from numba.core import sigutils, types
from numba.core.compiler_lock import global_compiler_lock

from model_store.compiled.inlining import InlinedCompiler, connect
from model_store.compiled.kernel_cache import HelperCache, KernelCache
from model_store.compiled.locks import alone


def compiled(options: Any, function: Callable[..., Any]) -> Any:
    """Return the numba function, which looks into the cache and compiles while no other process does."""
    dispatcher: Any = numba.njit(**options)(function)
    if hasattr(dispatcher, "overloads"):  # not with NUMBA_DISABLE_JIT
        dispatcher._cache = KernelCache(function)
        _compile_alone(dispatcher)
    return dispatcher


def compiled_for_callers(options: Any, function: Callable[..., Any]) -> Any:
    """Return the numba function, of which kernels see another one that has no code but what they inline."""
    options = {**options, "forceinline": True}
    called = compiled(options, function)
    if hasattr(called, "overloads"):
        inlined_only: Any = numba.njit(pipeline_class=InlinedCompiler, **options)(function)
        inlined_only._cache = HelperCache(function)
        _compile_alone(inlined_only)
        for name in ("get_call_template", "get_overload"):
            setattr(called, name, getattr(inlined_only, name))
    return called


def _widened(kind: Any) -> Any:
    """Return as what a kernel takes an argument of another kernel: not as a constant, nor as a short integer.

    For each of these numba would compile it once more.
    """
    unliteral: Any = types.unliteral
    found = unliteral(kind)
    return types.int64 if found in (types.int8, types.int16, types.int32) else found


def _compile_alone(dispatcher: Any) -> None:
    """Let a numba function compile while no other process does, and once for all integers."""
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
        keywords = {name: _widened(kind) for name, kind in keywords.items()}
        return get_call_template(tuple(map(_widened, arguments)), keywords)

    dispatcher.compile, dispatcher.get_call_template = compile_alone, get_template
