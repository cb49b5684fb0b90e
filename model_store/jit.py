"""How kernels are compiled: one decorator, and a cache that notices an edit in any file a kernel uses.

numba's own cache looks at the file of the function only, so an edit in a helper of another file is not
seen; and it refuses a cache directory that it cannot write to, so a read-only image could not use one.
`KernelCacheLocator` stamps a function with the digest of its file and of every file of ours that this
file imports, directly or not, and accepts a read-only directory when it holds a cache already.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config as _numba_config
from numba.core.caching import _CacheLocator
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

_CONFIG: Any = _numba_config
"""numba sets its attributes when it is imported; its type stubs do not know them."""

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("model_store", "service")


def cache_dir() -> Path:
    """Where compiled kernels are kept: $XYLEM_KERNEL_CACHE, else the user's cache directory.

    NUMBA_BOUNDSCHECK changes the code without changing its key, so it has a directory of its own.
    """
    base = os.environ.get("XYLEM_KERNEL_CACHE")
    root = Path(base) if base else Path.home() / ".cache" / "xylem" / "kernels"
    return root / ("checked" if _CONFIG.BOUNDSCHECK else "plain")


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


_OPTIONS: Any = {"cache": True, "nogil": True, "error_model": "numpy"}
_BORROWING: Any = {**_OPTIONS, "_nrt": False}


def kernel(function: F) -> F:
    """Compile `function` at its first call, without the interpreter lock, cached on disk.

    Division by zero gives inf or nan as in numpy. No fast-math: the same input gives the same bits in every
    traversal, and on any number of threads.
    """
    compiled: F = numba.njit(**_OPTIONS)(function)
    return compiled


def inlined(function: F) -> F:
    """Compile a small helper into each kernel that calls it."""
    compiled: F = numba.njit(**_OPTIONS, forceinline=True)(function)
    return compiled


def borrowing_kernel(function: F) -> F:
    """Compile a kernel that allocates nothing and only borrows the arrays it is given.

    Without numba's reference counts, whose atomic updates at every use of a NamedTuple's field took half the
    time of a traversal. Such a kernel can neither create arrays nor return them; slices are fine.
    """
    compiled: F = numba.njit(**_BORROWING)(function)
    return compiled


def borrowing_inlined(function: F) -> F:
    """Compile a helper of borrowing kernels into each that calls it."""
    compiled: F = numba.njit(**_BORROWING, forceinline=True)(function)
    return compiled


def instruction(emit: Callable[..., Any]) -> Any:
    """Make `emit(typing_context, *types) -> (signature, code generator)` callable in kernels.

    numba's `intrinsic`; what it returns is called with other arguments than `emit` has, hence Any.
    """
    return intrinsic(emit)
