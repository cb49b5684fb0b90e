"""Clients of a server: one for callers that block, one for asyncio, and what both return."""
