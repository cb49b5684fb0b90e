"""Kernels as the cache keeps them, back in the process: their machine code at once, no more.

numba keeps the LLVM code of a kernel beside its machine code, for kernels that are compiled and call it, and
parses it whenever the kernel is loaded. A process that compiles nothing does without.
"""

from types import SimpleNamespace
from typing import Any

import llvmlite.binding
from numba.core.caching import CompileResultCacheImpl
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult

from model_store.compiled.kernel_files import KernelCacheLocator


class CachedLibrary(JITCodeLibrary):
    """The machine code of a kernel, and its LLVM code in bytes until another kernel links it."""

    _bitcode: bytes

    @classmethod
    def restored(cls, codegen: Any, kept: tuple[str, str, tuple[bytes, bytes]], names: set[str]) -> Any:
        """Return the library that the cache kept; `names` has the functions that the engine is asked for."""
        name, _, (machine_code, bitcode) = kept
        library: Any = cls(codegen, name)
        library.enable_object_caching()
        library._set_compiled_object(machine_code)
        library._bitcode = bitcode
        library._finalize_final_module()
        codegen._engine._defined_symbols |= names
        return library

    def _get_module_for_linking(self) -> Any:
        """Return the LLVM code, parsed when it is asked for."""
        if self._shared_module is None:
            self._shared_module = llvmlite.binding.parse_bitcode(self._bitcode)
        return self._shared_module


def rebuilt(target: Any, payload: tuple[Any, ...], library: Any, get_executable: Any) -> Any:
    """Return the function that was kept as `payload`, as numba does, but with this library and entry point.

    get_executable   returns the entry point: of the library, what describes the function, its environment
    """
    codegen = SimpleNamespace(unserialize_library=lambda kept: library)
    context = SimpleNamespace(
        typing_context=target.typing_context, codegen=lambda: codegen, get_executable=get_executable
    )
    result: Any = CompileResult
    return result._rebuild(context, *payload)._replace(target_context=target)


class CachedKernelImpl(CompileResultCacheImpl):
    """How kernels are kept in the cache: as numba does, but for where they are and how they are loaded."""

    _locator_classes: Any = (KernelCacheLocator,)

    def rebuild(self, target_context: Any, payload: tuple[Any, ...]) -> Any:
        """Return the kernel that was kept."""
        kept, description, *_ = payload
        names = {description.llvm_func_name, description.llvm_cpython_wrapper_name}
        library = CachedLibrary.restored(target_context.codegen(), kept, names)
        return rebuilt(target_context, payload, library, target_context.get_executable)
