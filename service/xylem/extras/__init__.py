"""Optional parts: each is for few users, or needs an optional dependency.

Only the command line imports them, when a command needs them.
"""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
