"""Follower: brings the thresholds of served versions up to what the
database has, a few times a second.
"""

import contextlib
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable

from xylem.base import Database, DatabaseUnavailable, ForeignThresholds, Repeating, XylemError, log
from xylem.thresholds.live.served import ServedThresholds
from xylem.thresholds.store.state import Head, all_heads, lock_head

HANG_SECONDS = 10.0
"""Thresholds are stale so long after they should have been looked at, when the
database neither answers nor refuses to.
"""


class Follower:
    """Follows the database in a thread of its own, from `start` on.

    A database that does not answer leaves the thresholds as they are: `fault` says why, and
    `lag_seconds` for how long. It goes on trying.

    on_answer   called whenever the database has answered
    """

    def __init__(
        self, database: Database, refresh_seconds: float, on_answer: Callable[[], None]
    ) -> None:
        self.database = database
        self._refresh_seconds = refresh_seconds
        self._on_answer = on_answer
        self._followed: weakref.WeakSet[ServedThresholds] = weakref.WeakSet()
        self._adding = threading.Lock()
        self._following = Repeating("thresholds", self.look, refresh_seconds, at_once=False)
        self.start = self._following.start
        self._answered_at = time.monotonic()
        # what is waited for until it has answered or failed
        self.waits_for: str | None = "the database"
        self.fault: str | None = None
        """What the database said when it was last asked and did not answer."""

    @property
    def lag_seconds(self) -> float:
        """Return how long ago the database last answered."""
        return time.monotonic() - self._answered_at

    @property
    def followed(self) -> list[ServedThresholds]:
        """Return what is followed."""
        with self._adding:
            return list(self._followed)

    def add(self, live: ServedThresholds) -> None:
        """Follow a version, from its present thresholds on if the database answers. Blocking."""
        with self._adding:
            self._followed.add(live)
        if self.fault is None and not self._hangs:
            self._look([live])

    def check(self) -> None:
        """Raise DatabaseUnavailable while the database is known not to
        answer: to ask it would take long.
        """
        if self.fault is not None:
            raise DatabaseUnavailable.confidential(self.fault)
        if self._hangs:
            raise DatabaseUnavailable.confidential(
                "expected the database to answer, found that it has not for "
                f"{self.lag_seconds:.0f} seconds"
            )

    @property
    def _hangs(self) -> bool:
        """Return whether the look that is due neither ends nor fails."""
        return self._following.is_alive and self.lag_seconds > self._refresh_seconds + HANG_SECONDS

    def close(self) -> None:
        """Stop, and wait for it, unless the database hangs."""
        self._following.stop(HANG_SECONDS)

    def look(self) -> bool:
        """Bring all thresholds up to date; return whether the database answered.
        Blocking. Never raises: see `fault`.
        """
        return self._look(self.followed)

    def _look(self, followed: list[ServedThresholds]) -> bool:
        fault: DatabaseUnavailable | None = None
        try:
            with self.database.read() as connection:
                heads = {(head.model, head.version): head for head in all_heads(connection)}
            # one that can only be read has what it has
            with contextlib.suppress(DatabaseUnavailable):
                self._on_answer()
            self._answered_at = time.monotonic()
            if self._answered_at < self.database.failing_until:
                self.database.try_writing()
        except DatabaseUnavailable as error:
            fault = error
            heads = {}
        self.waits_for = None
        for live in followed:
            is_fresh = fault is None and self._refreshed(live, heads)
            next_look = time.monotonic() + self._refresh_seconds + HANG_SECONDS
            live.fresh_until = next_look if is_fresh else -math.inf
        with self._adding:  # of several threads that find the same, one says it
            previous_fault = self.fault
            self.fault = None if fault is None else str(fault)
        if fault is None and previous_fault is not None:
            log(logging.INFO, "database_answers")
        if fault is not None and previous_fault is None:
            log(logging.ERROR, "database_failed", detail=str(fault))
        return fault is None

    def _refreshed(self, live: ServedThresholds, heads: dict[tuple[str, int], Head]) -> bool:
        """Bring one version's thresholds up to its head; return whether they are."""
        live.is_known = True
        head = heads.get((live.model, live.version))
        is_ours = head is None or live.digest in (None, head.digest)
        if head is None or (
            is_ours and (head.epoch, head.base_epoch) == (live.epoch, live.base_epoch)
        ):
            return True
        try:
            if head.digest is None and live.digest is not None:
                # A database that can only be read keeps rows that have no digest.
                with (
                    contextlib.suppress(DatabaseUnavailable),
                    live.lock,
                    self.database.write() as connection,
                ):
                    lock_head(connection, live.model, live.version, live.digest)
            with live.lock, self.database.read() as connection:
                live.catch_up(connection)
        except Exception as error:  # whatever is there that cannot be read: others go on
            live.is_foreign = isinstance(error, ForeignThresholds)
            if not live.is_stale:
                is_said = isinstance(error, XylemError)
                log(
                    logging.ERROR,
                    "thresholds_failed",
                    error=None if is_said else error,
                    model=live.model,
                    version=live.version,
                    detail=str(error) if is_said else "the log of changes cannot be read",
                )
            return False
        live.is_foreign = False
        return True
