"""Compiled kernels of predict: a body of JSON becomes rows, and rows become an answer."""
