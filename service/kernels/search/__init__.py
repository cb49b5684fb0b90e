"""Kernels that search trees."""
