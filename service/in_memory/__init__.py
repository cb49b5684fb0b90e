"""Models of this process: what the Python face does. `xylem.local` shows it to callers."""

from model_store.compiled.processors import CONFIG

if CONFIG.DISABLE_JIT:  # as its variable or .numba_config.yaml says; the command removes the variable
    raise ImportError("xylem: NUMBA_DISABLE_JIT: expected numba to compile kernels, found it set")
