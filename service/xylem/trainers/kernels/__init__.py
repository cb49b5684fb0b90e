"""Compiled kernels that several trainers share."""
