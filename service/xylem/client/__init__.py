"""Clients of a server: one for callers that block, one for asyncio, and what both return."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
