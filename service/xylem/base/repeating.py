"""Actions that a thread repeats: followers look at the store and the database again and again."""

import logging
import threading
import time
from collections.abc import Callable

from xylem.base.errors import XylemError
from xylem.base.logs import log

# The time of each follower's last success or start, by its name; by the monotonic clock.
succeeded_at: dict[str, float] = {}


class Repeating:
    """Calls `action` in its own thread, again and again, whatever the action raises.

    The first error is logged, and the first success after it. An action that returns False has
    failed, and has logged that itself.

    stopping  set by `stop`; an action that takes long looks at it
    """

    def __init__(
        self, name: str, action: Callable[[], object], seconds: float, *, at_once: bool
    ) -> None:
        """Take the action, and the pause in seconds after each call.

        at_once  whether the first call comes at the start, not after the first pause
        """
        self._name = name
        self._action = action
        self._is_failing = False
        self._seconds = seconds
        self._at_once = at_once
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        succeeded_at[self._name] = time.monotonic()
        self._thread.start()

    def stop(self, seconds: float | None = None) -> None:
        """Stop, and wait at most `seconds` for a call that is running. Blocking."""
        self.stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        succeeded_at.pop(self._name, None)

    def _run(self) -> None:
        if self._at_once:
            self._call()
        while not self.stopping.wait(self._seconds):
            self._call()

    def _call(self) -> None:
        try:
            if self._action() is False:
                return
        except Exception as error:
            if not self._is_failing:
                log(
                    logging.ERROR,
                    "follower_failed",
                    follower=self._name,
                    detail=str(error) if isinstance(error, XylemError) else None,
                    error=error,
                )
            self._is_failing = True
            return
        succeeded_at[self._name] = time.monotonic()
        if self._is_failing:
            log(logging.INFO, "follower_works_again", follower=self._name)
        self._is_failing = False
