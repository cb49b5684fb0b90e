"""Compiled kernels that read numbers from bytes."""
