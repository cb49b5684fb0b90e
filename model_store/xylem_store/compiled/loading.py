"""Load kernels from the files of their machine code."""

from types import SimpleNamespace
from typing import Any

import llvmlite.binding
from numba.core.caching import CompileResultCacheImpl
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult

from xylem_store.compiled.kernel_files import KernelCacheLocator


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
    return CompileResult._rebuild(context, *payload)._replace(target_context=target)


class CachedKernelImpl(CompileResultCacheImpl):
    """Store kernels in the cache as numba does, in other places, and load them differently."""

    _locator_classes: Any = (KernelCacheLocator,)

    def rebuild(self, target_context: Any, payload: tuple[Any, ...]) -> Any:
        """Return the stored kernel."""
        serialized, description, *_ = payload
        return rebuilt(
            target_context,
            payload,
            CachedLibrary.restored(
                target_context.codegen(),
                serialized,
                {description.llvm_func_name, description.llvm_cpython_wrapper_name},
            ),
            target_context.get_executable,
        )
