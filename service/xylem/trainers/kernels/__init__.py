"""Kernels that train."""
