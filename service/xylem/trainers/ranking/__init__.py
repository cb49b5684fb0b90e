"""Trainers `fastxml` and `pfastrexml`, and their kernels: `split`, `separator`, `tree`."""
