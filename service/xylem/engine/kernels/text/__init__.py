"""Kernels that read and write text: JSON, numbers, digests."""
