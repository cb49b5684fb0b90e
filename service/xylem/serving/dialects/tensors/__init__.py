"""Dialect of the Open Inference Protocol: tensors, in JSON or as binary data behind it."""
