"""Compiled traversals and solvers: numpy and numba only, plain arrays in and out."""
