"""Trainers `fastxml` and `pfastrexml`, and their kernels: `separator`, `tree`."""
