"""Clients of a server, blocking and for asyncio, and the types that both return."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
