"""numba's functions with our cache, and helpers without machine code of their own.

One process at a time compiles a kernel. numba changes a kernel's index without a lock. Two that
compiled it for different types at once did the work twice, and could file one's code under the
other's types.
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

_LOCK_SECONDS = 300.0
"""How long a process waits for another one that compiles the same
kernel; then it compiles for itself.
"""

_LOCK_POLL_SECONDS = 0.02

# the kernels that this process is compiling; guarded by numba's lock of the compiler
_held: set[str] = set()


@contextlib.contextmanager
def hold_lock(path: str) -> Iterator[None]:
    """Hold the lock file at `path`, and nothing where it cannot be had: it saves work, no more.

    The lock ends with the process. A kernel waits only for those that it calls: no two wait for
    each other.
    """
    if path in _held:
        yield
        return
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:  # a cache that can only be read
        yield
        return
    _held.add(path)
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
        _held.remove(path)
        os.close(fd)


def compiled(
    options: Any, function: Callable[..., Any], cache: type[KernelCache] = KernelCache
) -> Any:
    """Return the numba function, which compiles while no other
    process does, and once for all integers.

    cache   what keeps its code; where that is, is looked up at its first call
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
        with contextlib.suppress(OSError):  # a cache that can only be read
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
    """Return the numba function, of which kernels see another one
    that has no code but what they inline.
    """
    options = {**options, "forceinline": True}
    called = compiled(options, function)

    @functools.cache
    def inlined_only() -> Any:  # needed where something is compiled, which most processes never do
        return compiled({**options, "pipeline_class": InlinedCompiler}, function, HelperCache)

    called.get_call_template = lambda *arguments: inlined_only().get_call_template(*arguments)
    called.get_overload = lambda signature: inlined_only().get_overload(signature)
    return called


def _widened(kind: Any) -> Any:
    """Return as what a kernel takes an argument of another kernel: not as
    a constant, nor as a short integer.

    For each of these numba would compile it once more.
    """
    unliteral: Any = types.unliteral
    plain_kind = unliteral(kind)
    return types.int64 if plain_kind in (types.int8, types.int16, types.int32) else plain_kind


def _link_only_what_numba_adds() -> None:
    """Compile what numba adds to our kernels, such as sorting, as
    helpers are: nobody calls it but they.
    """
    numbas: Any = Dispatcher
    get_call_template = numbas.get_call_template

    def get_template(self: Any, arguments: Any, keywords: Any) -> Any:
        if _held and not self.overloads and self.py_func.__module__.startswith("numba."):
            self._compiler.pipeline_class = InlinedCompiler
        return get_call_template(self, arguments, keywords)

    numbas.get_call_template = get_template


_link_only_what_numba_adds()
