"""Follower: updates the thresholds of served versions from the database, a few times a second."""

import contextlib
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable

from xylem.base import Database, DatabaseUnavailable, Repeating, XylemError, log
from xylem.thresholds.live.served import ServedThresholds
from xylem.thresholds.store.state import ForeignThresholds, Head, all_heads, lock_head

# The time after which a look at the database that is due, and has not ended, counts as hanging.
#
# Thresholds count as stale from then on.
HANG_SECONDS = 10.0


class Follower:
    """Follows the database in a thread, after `start`.

    If the database does not answer, the thresholds stay as they are, and `fault` says why and
    `lag_seconds` for how long. It continues to try.

    on_answer   called each time that the database has answered
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
        # for readiness: the name of what has neither answered nor failed yet; then None
        self.waits_for: str | None = "the database"
        # Why the database did not answer when it was last asked; None if it did.
        self.fault: str | None = None

    @property
    def lag_seconds(self) -> float:
        """Return how many seconds ago the database last answered."""
        return time.monotonic() - self._answered_at

    @property
    def followed(self) -> list[ServedThresholds]:
        """Return the thresholds that are followed."""
        with self._adding:
            return list(self._followed)

    def add(self, live: ServedThresholds) -> None:
        """Follow a version; update its thresholds now if the database answers. Blocking."""
        with self._adding:
            self._followed.add(live)
        if self.fault is None and not self._hangs:
            self.look(live)

    def check(self) -> None:
        """Raise DatabaseUnavailable if the database is known not to answer.

        It is not asked, because the answer of a database that fails takes long.
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
        """Return whether a look is overdue that neither ends nor fails."""
        return self._following.is_alive and self.lag_seconds > self._refresh_seconds + HANG_SECONDS

    def close(self) -> None:
        """Stop, and wait for the thread, unless the database hangs."""
        self._following.stop(HANG_SECONDS)

    def look(self, only: ServedThresholds | None = None) -> bool:
        """Update all thresholds, or those of one version; return whether the database answered.

        Blocking. Never raises: see `fault`.
        """
        followed = self.followed if only is None else [only]
        fault: DatabaseUnavailable | None = None
        try:
            with self.database.read() as connection:
                heads = {(head.model, head.version): head for head in all_heads(connection)}
            # `on_answer` may write: a database that can only be read is followed all the same
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
            live.fresh_until = (
                time.monotonic() + self._refresh_seconds + HANG_SECONDS
                if fault is None and self._refreshed(live, heads)
                else -math.inf
            )
        with self._adding:  # if several threads find the same fault, only one logs it
            previous_fault = self.fault
            self.fault = None if fault is None else str(fault)
        if fault is None and previous_fault is not None:
            log(logging.INFO, "database_answers")
        if fault is not None and previous_fault is None:
            log(logging.ERROR, "database_failed", detail=str(fault))
        return fault is None

    def _refreshed(self, live: ServedThresholds, heads: dict[tuple[str, int], Head]) -> bool:
        """Update one version's thresholds to its head; return whether they are up to date."""
        live.is_known = True
        head = heads.get((live.model, live.version))
        is_same_version = head is None or live.digest in (None, head.digest)
        if head is None or (
            is_same_version and (head.epoch, head.base_epoch) == (live.epoch, live.base_epoch)
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
        except Exception as error:  # one version that cannot be read must not stop the others
            live.is_foreign = isinstance(error, ForeignThresholds)
            if not live.is_stale:
                is_known_error = isinstance(error, XylemError)
                log(
                    logging.ERROR,
                    "thresholds_failed",
                    error=None if is_known_error else error,
                    model=live.model,
                    version=live.version,
                    detail=str(error) if is_known_error else "the log of changes cannot be read",
                )
            return False
        live.is_foreign = False
        return True
