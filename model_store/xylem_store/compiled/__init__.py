"""Everything that uses the inner parts of numba and llvmlite."""
