"""Models in this process: they are trained, loaded and combined here, and answer
without a server.
"""

from xylem_store import CONFIG, face_of

# as its variable or .numba_config.yaml says; the command removes the variable
if CONFIG.DISABLE_JIT:
    raise ImportError("xylem: NUMBA_DISABLE_JIT: expected numba to compile kernels, found it set")

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
