"""Trainer `ldsm`, and its kernels: `objective`, `regressors`, `split`."""
