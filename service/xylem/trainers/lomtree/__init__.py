"""Trainer `lomtree`, and its kernels: `tree`, `tables`, `learning`."""
