"""The client for asyncio; `python -m tests.unasync` makes the blocking client from it."""
