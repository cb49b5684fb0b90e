"""The inner parts of numba that the other modules of this directory use.

They may change with any release. If one is missing, kernels work without it: slower, but correct.
docs/adr/0018-numbas-inner-parts.md says what each of them gains.
"""

import pkgutil

# As module:name. `enable_caching` stands for a dispatcher's `_cache`, which it sets.
PARTS = (
    "numba._dynfunc:make_function",
    "numba.core.base:BaseContext.insert_user_function",
    "numba.core.caching:CompileResultCacheImpl.get_filename_base",
    "numba.core.caching:CompileResultCacheImpl.rebuild",
    "numba.core.caching:FunctionCache._load_overload",
    "numba.core.caching:FunctionCache.save_overload",
    "numba.core.caching:IndexDataCacheFile._load_data",
    "numba.core.caching:IndexDataCacheFile._load_index",
    "numba.core.caching:IndexDataCacheFile._open_for_write",
    "numba.core.caching:_CacheLocator",
    "numba.core.codegen:JITCPUCodegen.set_env",
    "numba.core.codegen:JITCodeLibrary._finalize_dynamic_globals",
    "numba.core.codegen:JITCodeLibrary._finalize_final_module",
    "numba.core.codegen:JITCodeLibrary._get_module_for_linking",
    "numba.core.codegen:JITCodeLibrary._optimize_final_module",
    "numba.core.codegen:JITCodeLibrary._set_compiled_object",
    "numba.core.codegen:JITCodeLibrary._verify_declare_only_symbols",
    "numba.core.codegen:JITCodeLibrary.enable_object_caching",
    "numba.core.compiler:CompileResult._find_referenced_environments",
    "numba.core.compiler:CompileResult._rebuild",
    "numba.core.compiler:Compiler.compile_extra",
    "numba.core.compiler_lock:global_compiler_lock",
    "numba.core.dispatcher:Dispatcher.compile",
    "numba.core.dispatcher:Dispatcher.enable_caching",
    "numba.core.dispatcher:Dispatcher.get_call_template",
    "numba.core.dispatcher:Dispatcher.get_overload",
    "numba.core.dispatcher:_FunctionCompiler",
    "numba.core.runtime.nrt:rtsys",
    "numba.core.sigutils:normalize_signature",
)

# Options of `njit` that its documentation does not mention.
OPTIONS = ("_nrt", "forceinline", "no_cfunc_wrapper")


def missing_parts() -> list[str]:
    """Return the PARTS that this numba does not have."""
    return [name for name in PARTS if not _is_there(name)]


def missing_options() -> list[str]:
    """Return the OPTIONS that this numba does not know."""
    return [name for name in OPTIONS if not _is_there(f"numba.core.options:DefaultOptions.{name}")]


def _is_there(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True
