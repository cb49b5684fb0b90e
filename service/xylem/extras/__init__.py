"""Optional parts: each is for few users, or needs an optional dependency.

Nothing imports them. `xylem.base.extras` finds them by name, so an installation may lack this
folder, and all else works.
"""
