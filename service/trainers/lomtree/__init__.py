"""Trainer `lomtree`, and its kernels: `tree`, `tables`, `regressors`, `learning`, `packing`."""
