"""The files of compiled kernels: where they are, and how kernels are loaded from them.

Damaged files are ignored, and those of the installation are read first. numba stores the LLVM code
of a kernel beside its machine code, for kernels that are compiled and call it, and parses it
whenever the kernel is loaded. Here it is parsed only when it is needed: a process that compiles
nothing does without.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llvmlite.binding
from numba.core.caching import CompileResultCacheImpl, IndexDataCacheFile, _CacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult

from xylem_store.compiled.cache import TOUCH_SECONDS, cache_dir, directory_of, source_digest

_DIGEST_BYTES = hashlib.sha256().digest_size


class KernelCacheLocator(_CacheLocator):
    """numba cache locator: a directory for each file of kernels, named by the sources' digest.

    The digest is the stamp of the sources too. So two checkouts, or two releases, that share a
    cache do not overwrite each other's kernels.
    """

    def __init__(self, function: Callable[..., Any], file: Path) -> None:
        self._file = file
        self._line = function.__code__.co_firstlineno
        self._path = cache_dir() / directory_of(file)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> KernelCacheLocator | None:
        """Return a locator for `py_func`, None if it is not in a file."""
        file = Path(py_file).resolve()
        if not file.is_file():
            return None
        return cls(py_func, file)

    def ensure_cache_path(self) -> None:
        """Make the directory, and mark it and the environment's as used. Raises OSError."""
        self._path.mkdir(parents=True, exist_ok=True)
        for directory in (self._path, self._path.parent):
            if directory.stat().st_mtime < time.time() - TOUCH_SECONDS:
                os.utime(directory)

    def get_cache_path(self) -> str:
        """Return the directory."""
        return str(self._path)

    def get_source_stamp(self) -> str:
        """Return the digest of everything that decides the compiled code."""
        return source_digest(self._file)

    def get_disambiguator(self) -> str:
        """Return what distinguishes functions of the same name in a file: the line."""
        return str(self._line)


class KernelFiles(IndexDataCacheFile):
    """The files of one kernel in a directory: an index by types, and the code for each.

    shipped   the files that came with the installation, which are only read; None without any

    Each file ends with the sha256 of everything before it. A file that does not is ignored, and the
    kernel is compiled again. numba itself would run whatever machine code a damaged file holds.
    """

    def __init__(
        self, directory: str, name: str, stamp: str, shipped: KernelFiles | None = None
    ) -> None:
        super().__init__(directory, name, stamp)
        self._shipped = shipped

    def load(self, key: Any) -> Any:
        """Return the code for these types and this processor, None if it is not stored."""
        shipped_code = None if self._shipped is None else self._shipped.load(key)
        return super().load(key) if shipped_code is None else shipped_code

    def _load_index(self) -> Any:
        return super()._load_index() if _is_whole(Path(self._index_path)) else {}

    def _load_data(self, name: str) -> Any:
        return super()._load_data(name) if _is_whole(Path(self._data_path(name))) else None

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file:
            content = io.BytesIO()
            yield content
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())


def _is_whole(path: Path) -> bool:
    """Return whether a file exists and ends with the digest of everything before it."""
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return False
    return hashlib.sha256(stored[:-_DIGEST_BYTES]).digest() == stored[-_DIGEST_BYTES:]


class CachedLibrary(JITCodeLibrary):
    """The machine code of a kernel, and its LLVM code as bytes until another kernel links it."""

    _bitcode: bytes

    @classmethod
    def restored(
        cls, codegen: Any, serialized: tuple[str, str, tuple[bytes, bytes]], names: set[str]
    ) -> Any:
        """Return the library that the cache stored.

        names  the functions that the engine must find
        """
        name, _, (machine_code, bitcode) = serialized
        library: Any = cls(codegen, name)
        library.enable_object_caching()
        library._set_compiled_object(machine_code)
        library._bitcode = bitcode
        library._finalize_final_module()
        codegen._engine._defined_symbols |= names
        return library

    def _get_module_for_linking(self) -> Any:
        """Return the LLVM code, parsed at the first request."""
        if self._shared_module is None:
            self._shared_module = llvmlite.binding.parse_bitcode(self._bitcode)
        return self._shared_module


def rebuilt(target: Any, payload: tuple[Any, ...], library: Any, get_executable: Any) -> Any:
    """Return the function stored as `payload`, as numba does, with this library and entry point.

    get_executable   returns the entry point; its arguments are the library, the description of the
                     function, and its environment
    """
    codegen = SimpleNamespace(unserialize_library=lambda serialized: library)
    context = SimpleNamespace(
        typing_context=target.typing_context, codegen=lambda: codegen, get_executable=get_executable
    )
    result: Any = CompileResult
    return result._rebuild(context, *payload)._replace(target_context=target)


class CachedKernelImpl(CompileResultCacheImpl):
    """Store kernels in the cache as numba does, in other places, and load them differently."""

    _locator_classes: Any = (KernelCacheLocator,)

    def rebuild(self, target_context: Any, payload: tuple[Any, ...]) -> Any:
        """Return the stored kernel."""
        serialized, description, *_ = payload
        names = {description.llvm_func_name, description.llvm_cpython_wrapper_name}
        library = CachedLibrary.restored(target_context.codegen(), serialized, names)
        return rebuilt(target_context, payload, library, target_context.get_executable)
