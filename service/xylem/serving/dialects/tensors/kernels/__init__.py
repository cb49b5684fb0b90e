"""Compiled kernels of tensors as binary data."""
