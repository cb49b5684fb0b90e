"""All kernels compiled before they are needed: `python -m
xylem.warm`, for images and before a restart.
"""
