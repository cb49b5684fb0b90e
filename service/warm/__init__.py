"""All kernels compiled before they are needed: `python -m service.warm`, for images and before a restart."""
