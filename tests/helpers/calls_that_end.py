"""Calls that must come to an end."""

import threading
from collections.abc import Callable


def ends(call: Callable[[], None]) -> bool:
    """Whether a call comes to an end."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(120.0)
    return not thread.is_alive()
