"""Kernels of texts and rows: characters are made ready, features are sorted and summed."""
