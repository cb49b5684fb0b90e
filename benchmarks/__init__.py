"""Benchmarks: figures beside those of other systems, measured in the same call on the same rows."""
