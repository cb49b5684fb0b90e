"""A thread that does the same again and again, until it is told to stop."""

import threading
from collections.abc import Callable


class Repeating:
    """Calls `action`, which must not raise, in a thread of its own, so many seconds after each call.

    stopping  set once it is told to stop; an action that takes long looks at it
    """

    def __init__(self, name: str, action: Callable[[], object], seconds: float, *, at_once: bool) -> None:
        """Take what is done, and whether it is done at the start already or after the first pause."""
        self._action = action
        self._seconds = seconds
        self._at_once = at_once
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float | None = None) -> None:
        """Stop, and wait for the call under way, at most so long. Blocking."""
        self.stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        if self._at_once:
            self._action()
        while not self.stopping.wait(self._seconds):
            self._action()
