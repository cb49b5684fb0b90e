"""The client for callers that block, made by `python -m tests.unasync`."""
