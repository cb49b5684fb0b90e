"""Compile all kernels before they are needed, for images and before a restart.

`python -m xylem.warm` calls it.
"""
