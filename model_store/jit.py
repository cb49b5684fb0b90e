"""How kernels are compiled: one decorator, and a cache that notices an edit in any file a kernel uses.

numba's own cache looks at the file of the function only, so an edit in a helper of another file is not
seen; and it refuses a cache directory that it cannot write to, so a read-only image could not use one.
`KernelCacheLocator` stamps a function with the digest of its file and of every file of ours that this
file imports, directly or not. A cache that can only be read is read, and one that cannot be used at all costs
time, not the call: a full disk, or a machine without a directory to write to.

Processes that share a cache compile each kernel once: numba changes a kernel's index without a lock, so two
that compiled it for different types at once did the work twice, and could file one's code under the other's
types.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import hashlib
import importlib
import logging
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import llvmlite
import numba
import numpy as np
from numba.core import config as _numba_config
from numba.core import sigutils, types
from numba.core.caching import FunctionCache, _CacheLocator
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from model_store.inlining import InlinedCacheImpl, InlinedCompiler, connect
from model_store.kept import KeptKernelImpl

F = TypeVar("F", bound=Callable[..., Any])

_CONFIG: Any = _numba_config
"""numba sets its attributes when it is imported; its type stubs do not know them."""

_ENVIRONMENT = (
    f"python{sys.version_info[0]}.{sys.version_info[1]}-numba{numba.__version__}"
    f"-llvmlite{llvmlite.__version__}-numpy{np.__version__}"
)

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("model_store", "service")


def _do_without_blas() -> None:
    """Let numba find no BLAS, for which it would import scipy.linalg at the first kernel: ours call none."""
    name = "scipy.linalg.cython_blas"
    modules: dict[str, Any] = sys.modules
    if name not in modules:
        modules[name] = None
        importlib.import_module("numba.np.arraymath")  # which looks for it
        del modules[name]


_do_without_blas()

atexit.register(gc.freeze)
"""What a process holds at its end is left to the system: to free it part by part takes half a second."""


def cache_dir() -> Path:
    """Where compiled kernels are kept: $XYLEM_KERNEL_CACHE, else the user's cache directory.

    Where the user has no home that can be written to, as in a container, it is a directory of the user's own
    below that for temporary files; where that is not to be had either, one that cannot exist.
    NUMBA_BOUNDSCHECK changes the code without changing its key, so it has a directory of its own, and so has
    each mixture of Python, numba, llvmlite and numpy: two of them would evict each other's kernels.
    """
    base = os.environ.get("XYLEM_KERNEL_CACHE")
    root = Path(base) if base else _cache_at_home() or _temporary_cache()
    return root / ("checked" if _CONFIG.BOUNDSCHECK else "plain") / _ENVIRONMENT


@functools.cache
def _cache_at_home() -> Path | None:
    """Return the user's cache directory, if it can be written to or holds something."""
    try:
        directory = Path.home() / ".cache" / "xylem" / "kernels"
        directory.mkdir(parents=True, exist_ok=True)
        return directory if os.access(directory, os.W_OK) or any(directory.iterdir()) else None
    except (OSError, RuntimeError):  # RuntimeError: no home is known
        return None


@functools.cache
def _temporary_cache() -> Path:
    """Return a directory that nobody else can write to: what it holds is executed."""
    try:
        directory = Path(tempfile.gettempdir()) / f"xylem-kernels-{os.getuid()}"
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        is_mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
        return directory if is_mine else Path(tempfile.mkdtemp(prefix="xylem-kernels-"))
    except OSError:
        return Path(os.devnull, "xylem-kernels")


_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)|import[ \t]+([^\n#]*))", re.MULTILINE
)
"""Python's own parser takes a quarter of a second for all the files, at each start."""


class _Source(NamedTuple):
    """A file: the sha256 of what it holds, and the files of ours that it imports."""

    digest: bytes
    imports: tuple[Path, ...]


@functools.cache
def _file_of(module: str) -> Path | None:
    """Return the file of a module of ours; None for any other name."""
    if not module.startswith(_PACKAGES):
        return None
    file = _ROOT / (module.replace(".", "/") + ".py")
    return file if file.is_file() else None


@functools.cache
def _source(path: Path) -> _Source:
    """Read the module at `path`. A word that only looks like an import counts as one: it does no harm."""
    content = path.read_bytes()
    names: set[str] = set()
    for module, imported, modules in _IMPORT.findall(content):
        names.update(name.decode() for name in re.findall(rb"[\w.]+", modules) or [module])
        names.update(f"{module.decode()}.{name.decode()}" for name in re.findall(rb"\w+", imported))
    files = {file for name in names if (file := _file_of(name))}
    return _Source(hashlib.sha256(content).digest(), tuple(files))


@functools.cache
def source_digest(path: Path) -> str:
    """Return the sha256 of the module at `path` and of all modules of ours that it reaches."""
    seen, todo = set[Path](), [path]
    while todo:
        file = todo.pop()
        if file not in seen:
            seen.add(file)
            todo.extend(_source(file).imports)
    digest = hashlib.sha256()
    for file in sorted(seen, key=str):
        digest.update(_source(file).digest)
    return digest.hexdigest()


def _directory_of(file: Path) -> str:
    """Return the name of the directory that the kernels of a file have in a cache."""
    return f"{file.stem}-{source_digest(file)[:16]}"


class KernelCacheLocator(_CacheLocator):
    """numba cache locator: a directory for each file of kernels, named and stamped with the sources' digest.

    So two checkouts, or two releases, that share a cache do not overwrite each other's kernels.
    """

    def __init__(self, function: Callable[..., Any], file: Path) -> None:
        self._file = file
        self._line = function.__code__.co_firstlineno
        self._path = cache_dir() / _directory_of(file)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> KernelCacheLocator | None:
        """Return a locator for `py_func`; None when it is not in a file."""
        file = Path(py_file).resolve()
        if not file.is_file():
            return None
        return cls(py_func, file)

    def ensure_cache_path(self) -> None:
        """Make the directory, and mark it and the environment's as used; raise OSError when that fails."""
        self._path.mkdir(parents=True, exist_ok=True)
        for directory in (self._path, self._path.parent):
            if directory.stat().st_mtime < time.time() - _TOUCH_SECONDS:
                os.utime(directory)

    def get_cache_path(self) -> str:
        """Return the directory."""
        return str(self._path)

    def get_source_stamp(self) -> str:
        """Return the digest of everything that decides the compiled code."""
        return source_digest(self._file)

    def get_disambiguator(self) -> str:
        """Return what tells two functions of one name in a file apart."""
        return str(self._line)


@functools.cache
def _say_once(directory: str, error: str) -> None:
    """Log that compiled kernels are not kept."""
    logging.getLogger(__name__).warning(
        "compiled kernels cannot be kept in %s: %s; each start compiles them again", directory, error
    )


_TOUCH_SECONDS = 86400.0
_UNUSED_SECONDS = 30 * _TOUCH_SECONDS


def _names_of_this_release() -> set[str]:
    """Return the names of the directories that this release's kernels have in a cache."""
    files = (file for package in _PACKAGES for file in (_ROOT / package).rglob("*.py"))
    return {_directory_of(file) for file in files}


@functools.cache
def _say_compiling(directory: str) -> None:
    """Log that kernels are compiled, which takes a minute or two for all of them. Once a process."""
    logging.getLogger(__name__).warning(
        "compiling kernels into %s: once for each release and each version of Python, numba and numpy",
        directory,
    )


@functools.cache
def remove_unused(cache: Path) -> None:
    """Remove what other releases and environments left and nobody has used for 30 days. Once a process.

    cache   the directory of this environment, beside which are those of others

    A process that loads a kernel has marked the directory before. One that comes in between finds less than
    there was, which is a cache without it: it compiles, and makes the directory again.
    """
    with contextlib.suppress(OSError):
        stays = _names_of_this_release()
        mine = (path for path in cache.iterdir() if path.name not in stays)
        others = (path for path in cache.parent.iterdir() if path != cache)
        for directory in (*mine, *others):
            unused_since = time.time() - directory.stat().st_mtime
            is_one = re.fullmatch(r".+-[0-9a-f]{16}|python[0-9.]+-numba.+", directory.name)
            if is_one and unused_since > _UNUSED_SECONDS:
                shutil.rmtree(directory, ignore_errors=True)


class _KernelCacheImpl(KeptKernelImpl):
    """How kernels are kept, and where."""

    _locator_classes: Any = (KernelCacheLocator,)


class _InlinedCacheImpl(InlinedCacheImpl):
    """How the code that kernels inline is kept, and where."""

    _locator_classes: Any = (KernelCacheLocator,)


class _Cache(FunctionCache):
    """numba's cache of a function's code; what the file system refuses is compiled, and not kept."""

    _impl_class: Any = _KernelCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for this signature, None when there is none that can be read."""
        try:
            found = super().load_overload(sig, target_context)
        except OSError:
            found = None
        if found is None:
            _say_compiling(str(Path(self.cache_path).parent))
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code for this signature if that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _say_once(self.cache_path, error.strerror or str(error))
        else:
            remove_unused(Path(self.cache_path).parent)


class _InlinedCache(_Cache):
    """The same for code that kernels inline."""

    _impl_class: Any = _InlinedCacheImpl


_LOCK_SECONDS = 300.0
"""How long a process waits for another one that compiles the same kernel; then it compiles for itself."""

_LOCK_POLL_SECONDS = 0.02

_held: set[str] = set()
"""The kernels that this process is compiling; guarded by numba's lock of the compiler."""


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """Hold the lock file at `path`, and nothing where it cannot be had: it saves work, no more.

    The lock ends with the process. A kernel waits only for those that it calls: no two wait for each other.
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


def _compiled(options: Any, function: Callable[..., Any]) -> Any:
    """Return the numba function, which looks into the cache and compiles while no other process does."""
    dispatcher: Any = numba.njit(**options)(function)
    if hasattr(dispatcher, "overloads"):  # not with NUMBA_DISABLE_JIT
        dispatcher._cache = _Cache(function)
        _compile_alone(dispatcher)
    return dispatcher


def _compiled_for_callers(options: Any, function: Callable[..., Any]) -> Any:
    """Return the numba function, of which kernels see another one that has no code but what they inline."""
    options = {**options, "forceinline": True}
    called = _compiled(options, function)
    if hasattr(called, "overloads"):
        inlined_only: Any = numba.njit(pipeline_class=InlinedCompiler, **options)(function)
        inlined_only._cache = _InlinedCache(function)
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
        with global_compiler_lock, _alone(lock):
            code = compile_kernel(signature)
            if not isinstance(dispatcher._cache, _InlinedCache):
                connect(dispatcher.overloads[tuple(arguments)])
            return code

    def get_template(arguments: Any, keywords: Any) -> Any:
        unliteral: Any = types.unliteral
        keywords = {name: unliteral(value) for name, value in keywords.items()}
        return get_call_template(tuple(map(unliteral, arguments)), keywords)

    dispatcher.compile, dispatcher.get_call_template = compile_alone, get_template


_OPTIONS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_BORROWING: Any = {**_OPTIONS, "_nrt": False}


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


def borrowing_kernel(function: F) -> F:
    """Compile a kernel that allocates nothing and only borrows the arrays it is given.

    Without numba's reference counts, whose atomic updates at every use of a NamedTuple's field took half the
    time of a traversal. Such a kernel can neither create arrays nor return them; slices are fine.
    """
    compiled: F = _compiled(_BORROWING, function)
    return compiled


def borrowing_inlined(function: F) -> F:
    """Compile a helper of borrowing kernels into each that calls it."""
    compiled: F = _compiled_for_callers(_BORROWING, function)
    return compiled


def instruction(emit: Callable[..., Any]) -> Any:
    """Make `emit(typing_context, *types) -> (signature, code generator)` callable in kernels.

    numba's `intrinsic`; what it returns is called with other arguments than `emit` has, hence Any.
    """
    return intrinsic(emit)
