"""How kernels are compiled: one decorator, and a cache that notices an edit in any file a kernel uses.

numba's own cache looks at the file of the function only, so an edit in a helper of another file is not
seen; and it refuses a cache directory that it cannot write to, so a read-only image could not use one.
`KernelCacheLocator` stamps a function with the digest of its file and of every file of ours that this
file imports, directly or not, and accepts a read-only directory when it holds a cache already.

Processes that share a cache compile each kernel once: numba changes a kernel's index without a lock, so two
that compiled it for different types at once did the work twice, and could file one's code under the other's
types.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import functools
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config as _numba_config
from numba.core import sigutils, types
from numba.core.caching import _CacheLocator
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

_CONFIG: Any = _numba_config
"""numba sets its attributes when it is imported; its type stubs do not know them."""

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("model_store", "service")


def cache_dir() -> Path:
    """Where compiled kernels are kept: $XYLEM_KERNEL_CACHE, else the user's cache directory.

    Where the user has no home that can be written to, as in a container, it is a directory of the user's own
    below that for temporary files. NUMBA_BOUNDSCHECK changes the code without changing its key, so it has a
    directory of its own.
    """
    base = os.environ.get("XYLEM_KERNEL_CACHE")
    root = Path(base) if base else _cache_at_home() or _temporary_cache()
    return root / ("checked" if _CONFIG.BOUNDSCHECK else "plain")


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
    directory = Path(tempfile.gettempdir()) / f"xylem-kernels-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    is_mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return directory if is_mine else Path(tempfile.mkdtemp(prefix="xylem-kernels-"))


@functools.cache
def _imports(path: Path) -> tuple[Path, ...]:
    """Return the files of ours that the module at `path` imports (its `from x import y` and `import x`)."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    ours = (n for n in names if n.split(".")[0] in _PACKAGES)
    files = (_ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in ours)
    return tuple(sorted({f for f in files if f.is_file()}))


@functools.cache
def source_digest(path: Path) -> str:
    """Return the sha256 of the module at `path` and of all modules of ours that it reaches."""
    seen, todo = set[Path](), [path]
    while todo:
        file = todo.pop()
        if file not in seen:
            seen.add(file)
            todo.extend(_imports(file))
    digest = hashlib.sha256()
    for file in sorted(seen):
        digest.update(file.read_bytes())
    return digest.hexdigest()


class KernelCacheLocator(_CacheLocator):
    """numba cache locator: a directory for each file of kernels, named and stamped with the sources' digest.

    So two checkouts, or two releases, that share a cache do not overwrite each other's kernels.
    """

    def __init__(self, function: Callable[..., Any], file: Path) -> None:
        self._file = file
        self._line = function.__code__.co_firstlineno
        self._path = cache_dir() / f"{file.stem}-{source_digest(file)[:16]}"

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> KernelCacheLocator | None:
        """Return a locator for `py_func`; None (no cache) when its directory can be neither read nor made."""
        file = Path(py_file).resolve()
        if not file.is_file():
            return None
        self = cls(py_func, file)
        try:
            self.ensure_cache_path()
        except OSError:
            return self if any(self._path.glob("*.nbi")) else None
        return self

    def ensure_cache_path(self) -> None:
        """Make the directory; raise OSError when it cannot be written."""
        self._path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=self._path).close()

    def get_cache_path(self) -> str:
        """Return the directory."""
        return str(self._path)

    def get_source_stamp(self) -> str:
        """Return the digest of everything that decides the compiled code."""
        return source_digest(self._file)

    def get_disambiguator(self) -> str:
        """Return what tells two functions of one name in a file apart."""
        return str(self._line)


_CONFIG.CACHE_LOCATOR_CLASSES = "model_store.jit.KernelCacheLocator,UserWideCacheLocator"


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
    """Return the numba function, which looks into the cache and compiles while no other process does.

    Constants that other kernels hand to it have the types of variables: numba would compile it for each.
    """
    dispatcher: Any = numba.njit(**options)(function)
    if not hasattr(dispatcher, "overloads"):  # NUMBA_DISABLE_JIT
        return dispatcher
    compile_kernel, get_call_template = dispatcher.compile, dispatcher.get_call_template

    def compile_alone(signature: Any) -> Any:
        arguments, _ = sigutils.normalize_signature(signature)
        directory = dispatcher._cache.cache_path
        if tuple(arguments) in dispatcher.overloads or directory is None:
            return compile_kernel(signature)
        lock = f"{directory}/{function.__qualname__}-{function.__code__.co_firstlineno}.lock"
        with global_compiler_lock, _alone(lock):
            return compile_kernel(signature)

    def get_template(arguments: Any, keywords: Any) -> Any:
        unliteral: Any = types.unliteral
        keywords = {name: unliteral(value) for name, value in keywords.items()}
        return get_call_template(tuple(map(unliteral, arguments)), keywords)

    dispatcher.compile, dispatcher.get_call_template = compile_alone, get_template
    return dispatcher


_OPTIONS: Any = {"cache": True, "nogil": True, "error_model": "numpy"}
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
    compiled: F = _compiled({**_OPTIONS, "forceinline": True}, function)
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
    compiled: F = _compiled({**_BORROWING, "forceinline": True}, function)
    return compiled


def instruction(emit: Callable[..., Any]) -> Any:
    """Make `emit(typing_context, *types) -> (signature, code generator)` callable in kernels.

    numba's `intrinsic`; what it returns is called with other arguments than `emit` has, hence Any.
    """
    return intrinsic(emit)
