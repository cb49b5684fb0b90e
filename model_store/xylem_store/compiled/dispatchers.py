"""numba's functions with the cache of this project, and helpers without machine code of their own.

One process at a time compiles a kernel, because numba changes a kernel's index without a lock. Two
processes that compiled it for different types at once did the work twice, and could store one's
code under the other's types.
"""

import contextlib
import fcntl
import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba.core import sigutils, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from xylem_store.compiled.inlining import InlinedCompiler, connect
from xylem_store.compiled.kernel_cache import HelperCache, KernelCache
from xylem_store.compiled.progress import PROGRESS

# The time that a process waits for another one that compiles the same kernel.
#
# Then it compiles for itself.
_LOCK_SECONDS = 300.0

_LOCK_POLL_SECONDS = 0.02

# paths of the locks of kernels that this process is compiling; guarded by numba's compiler lock
_lock_paths: set[str] = set()


@contextlib.contextmanager
def hold_lock(path: str) -> Iterator[None]:
    """Hold the lock file at `path`; hold nothing if it cannot be opened or locked.

    The lock only saves work. It ends with the process. A kernel waits only for those that it calls,
    so no two wait for each other.
    """
    if path in _lock_paths:
        yield
        return
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:  # a read-only cache
        yield
        return
    _lock_paths.add(path)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_LOCK_POLL_SECONDS)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        _lock_paths.remove(path)
        os.close(fd)


def compiled(
    options: Any, function: Callable[..., Any], cache: type[KernelCache] = KernelCache
) -> Any:
    """Return the numba function of `function`, which compiles while no other process does.

    cache   the class that stores its code; its directory is determined at the first call

    It is compiled once for all integer types.
    """
    dispatcher: Any = numba.njit(**options)(function)
    compile_kernel = dispatcher.compile
    get_call_template = dispatcher.get_call_template

    def compile_alone(signature: Any) -> Any:
        arguments, _ = sigutils.normalize_signature(signature)
        if tuple(arguments) in dispatcher.overloads:
            return compile_kernel(signature)
        if not isinstance(dispatcher._cache, cache):
            dispatcher._cache = cache(function)
        directory = dispatcher._cache.cache_path
        with contextlib.suppress(OSError):  # a read-only cache
            dispatcher._cache._impl.locator.ensure_cache_path()
        lock = f"{directory}/{function.__qualname__}-{function.__code__.co_firstlineno}.lock"
        with global_compiler_lock, PROGRESS.counted(), hold_lock(lock):
            code = compile_kernel(signature)
            if cache is KernelCache:
                connect(dispatcher.overloads[tuple(arguments)])
            return code

    def get_template(arguments: Any, keywords: Any) -> Any:
        keywords = {name: _widened(kind) for name, kind in keywords.items()}
        return get_call_template(tuple(map(_widened, arguments)), keywords)

    dispatcher.compile = compile_alone
    dispatcher.get_call_template = get_template
    return dispatcher


def compiled_for_callers(options: Any, function: Callable[..., Any]) -> Any:
    """Return a numba function that kernels inline.

    Called from Python it is an ordinary function. Kernels see another one that has no machine code,
    only the code that they inline.
    """
    options = {**options, "forceinline": True}
    python_function = compiled(options, function)

    @functools.cache
    def inlined_only() -> Any:  # made on demand: most processes compile nothing
        return compiled({**options, "pipeline_class": InlinedCompiler}, function, HelperCache)

    python_function.get_call_template = lambda *arguments: inlined_only().get_call_template(
        *arguments
    )
    python_function.get_overload = lambda signature: inlined_only().get_overload(signature)
    return python_function


def _widened(kind: Any) -> Any:
    """Return the type as which a kernel takes an argument from another kernel.

    It is not a constant, nor a short integer: for each of these numba would compile the kernel
    again.
    """
    plain_kind = types.unliteral(kind)
    return types.int64 if plain_kind in (types.int8, types.int16, types.int32) else plain_kind


def _link_only_what_numba_adds() -> None:
    """Compile functions that numba adds to kernels, such as sorting, as helpers that are inlined.

    Only kernels call them.
    """
    dispatcher_class: Any = Dispatcher
    get_call_template = dispatcher_class.get_call_template

    def get_template(self: Any, arguments: Any, keywords: Any) -> Any:
        if _lock_paths and not self.overloads and self.py_func.__module__.startswith("numba."):
            self._compiler.pipeline_class = InlinedCompiler
        return get_call_template(self, arguments, keywords)

    dispatcher_class.get_call_template = get_template


_link_only_what_numba_adds()
