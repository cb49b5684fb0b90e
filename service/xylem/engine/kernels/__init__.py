"""Compiled kernels of numpy and numba, which take and return plain arrays."""
