"""Train, load and combine models in this process, and predict with them without a server."""

from xylem_store import CONFIG, face_of

# set by the environment variable or .numba_config.yaml; only the command line removes the variable
if CONFIG.DISABLE_JIT:
    raise ImportError("xylem: NUMBA_DISABLE_JIT: expected numba to compile kernels, found it set")

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
