"""The client for asyncio, of which the blocking one is made: `python -m tests.unasync`."""
