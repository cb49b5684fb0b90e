"""Compiled kernels that dialects, lines of batches and feedback share: JSON of rows, seals."""
