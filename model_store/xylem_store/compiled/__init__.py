"""All that touches the inner parts of numba and llvmlite."""
