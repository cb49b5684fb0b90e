"""Values in a few words, for messages."""

from __future__ import annotations

SHOWN = 60
"""Characters of a text that are shown."""


def what_is(value: object) -> str:
    """Return what a JSON value is, in a few words: never its whole content, and no deeper than itself."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f'"{shortened(value)}"'
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    return str(value)


def shortened(text: str) -> str:
    """Return the beginning of a text."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
