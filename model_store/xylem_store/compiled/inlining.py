"""Helpers that kernels inline, compiled only for that, which halves the time of compilation.

numba compiles a function as if the interpreter were to call it: it optimises the code, emits
machine code and adds wrappers that take Python's objects apart, a NamedTuple field by field.
Kernels that inline the helper use none of it: they need its code as it is before all that, and
optimise it where they use it. The code is faster too, by 5 to 10% in the traversals: code that was
optimised for a helper alone, such as loops unrolled for any length, hinders where the helper's
arguments are known.
"""

from typing import Any

import llvmlite.binding
import numba
from numba.core.caching import CompileResultCacheImpl
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from xylem_store.compiled.kernel_files import KernelCacheLocator
from xylem_store.compiled.loading import rebuilt


class _Library(JITCodeLibrary):
    """The code of a helper and of the helpers it calls: linked into kernels, never executed."""

    def _optimize_final_module(self) -> None:
        """Leave the optimisation to the kernels; each function was simplified when it was added."""

    def _finalize_final_module(self) -> None:
        """Check the module as numba does, without giving it to the engine.

        The engine would emit machine code.
        """
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, bytes]:
        """Return what the cache stores: name and bitcode; there is no object code."""
        return self.name, self._get_module_for_linking().as_bitcode()

    @classmethod
    def restored(cls, codegen: Any, serialized: tuple[str, bytes]) -> "_Library":
        """Return the library that was stored in the cache as (name, bitcode)."""
        name, bitcode = serialized
        library = cls(codegen, name)
        library._final_module = library._shared_module = llvmlite.binding.parse_bitcode(bitcode)
        library._finalize_final_module()
        return library


def _name_of(library: _Library, description: Any, environment: Any) -> Any:
    """Return the key by which numba finds the helper when kernels call it.

    The key is a Python function object that has no code.
    """
    name = description.qualname.split(".")[-1]
    make_function = numba._dynfunc.make_function  # type: ignore[attr-defined]
    return make_function(description.lookup_module(), name, "inlined", 0, environment, (library,))


class InlinedCompiler(Compiler):
    """numba's compiler, up to the code that kernels inline, for dispatchers that nobody calls."""

    def compile_extra(self, function: Any) -> Any:
        """Return the result of compiling `function`."""
        state = self.state
        library = state.library = _Library(state.targetctx.codegen(), function.__qualname__)
        state.flags.no_compile = state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = (
            True
        )
        compiled = super().compile_extra(function)
        library.finalize()
        entry = _name_of(library, compiled.fndesc, compiled.environment)
        state.targetctx.insert_user_function(entry, compiled.fndesc, [library])
        return compiled._replace(entry_point=entry)


def connect(kernel: Any) -> None:
    """Let the helpers in a kernel that was just compiled find their constants.

    numba does the same for a cached kernel. Helpers need them for exceptions that hold values.
    """
    for environment in kernel._find_referenced_environments():
        kernel.codegen.set_env(environment.env_name, environment)


class InlinedCacheImpl(CompileResultCacheImpl):
    """Store and load helpers in the cache, in files beside those of callable functions."""

    _locator_classes: Any = (KernelCacheLocator,)

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        """Return the beginning of the names of a helper's files."""
        return f"{super().get_filename_base(fullname, abiflags)}-inlined"

    def rebuild(self, target_context: Any, payload: tuple[Any, ...]) -> Any:
        """Return the stored helper from what numba's `CompileResult._reduce` returned."""
        return rebuilt(
            target_context,
            (*payload[:-1], ()),
            _Library.restored(target_context.codegen(), payload[0]),
            _name_of,
        )
