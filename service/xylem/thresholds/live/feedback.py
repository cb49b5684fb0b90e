"""Write feedback into the database and the live thresholds: each process has one writer.

One transaction takes the blocks that wait for the same version.
"""

import logging
import threading
import time
from collections import deque
from concurrent.futures import Future
from itertools import compress, islice
from typing import NamedTuple

import numpy as np

from xylem.base import (
    AgeClock,
    Database,
    DatabaseUnavailable,
    Overloaded,
    Unavailable,
    XylemError,
    log,
    now,
)
from xylem.thresholds.live.events import Events, Result, join
from xylem.thresholds.live.served import ServedThresholds
from xylem.thresholds.live.shadow import keep_shadow
from xylem.thresholds.live.threshold_counters import ALL_COUNT
from xylem.thresholds.live.transaction import FeedbackTransaction
from xylem.thresholds.store import state
from xylem.thresholds.store.counted_events import add_events, forget_events
from xylem.thresholds.store.feedback_rows import DAY_SECONDS, add_rows
from xylem_store import U8, Bools

GROUP_EVENTS_MAX = 1024  # the most events of one transaction
# After this many epochs the state is stored, so that a starting replica has a short log to apply.
CHECKPOINT_EPOCHS = 4096

# The least number of events that are visited to forget old ones: no fewer than were added.
FORGET_EVENTS = 512

FORGET_SECONDS = 1.0  # with few new events, old ones are looked for this often
# How long `close` waits for blocks in the queue; nobody has been told that these were counted.
CLOSE_SECONDS = 10.0


class _Block(NamedTuple):
    live: ServedThresholds
    events: Events
    allowed: U8
    done: Future[list[Result]]


class FeedbackWriter:
    """Takes blocks of events, and counts each event once.

    The results of a block's events, in order, are available when the events are committed. Blocks
    of one version that wait while a transaction runs share the next transaction. If a transaction
    fails, none of its events is counted, neither in the database nor in memory, and its blocks fail
    with DatabaseUnavailable.

    queue_max   the most events that wait
    days_max    days for which events are remembered
    halve_events  as `FeedbackTransaction` takes it
    """

    def __init__(
        self, database: Database, *, queue_max: int, days_max: int, halve_events: int | None = None
    ) -> None:
        self._database = database
        self._halve_events = halve_events
        self._queue_max = queue_max
        self._days_max = days_max
        self._blocks: deque[_Block] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._n_waiting = 0
        self._checkpoints: dict[tuple[str, int], int] = {}
        self._forget_at = 0.0
        self._n_added = 0
        self._last_visited = b""
        self._clock = AgeClock()
        self._thread: threading.Thread | None = None

    def submit(
        self, live: ServedThresholds, events: Events, *, may_wait: bool, allowed: U8 = ALL_COUNT
    ) -> Future[list[Result]]:
        """Submit a block; the results of its events come when they are committed.

        allowed    as `ThresholdCounters.count` takes it
        may_wait   whether the block is accepted even if the queue is full, because the caller
                   submits one block after another

        Raises Overloaded if too many events wait. A block with more events than may wait is
        accepted if none waits. Raises Unavailable after `close`.
        """
        block = _Block(live, events, allowed, Future())
        with self._changed:
            if self._closed:
                raise Unavailable(
                    "expected a writer of feedback, found it closed: the service stops"
                )
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="xylem-feedback", daemon=True
                )
                self._thread.start()
            is_full = self._n_waiting > 0 and self._n_waiting + len(events.keys) > self._queue_max
            if is_full and not may_wait:
                raise Overloaded(
                    f"expected at most {self._queue_max} events of feedback to wait, found more"
                )
            self._n_waiting += len(events.keys)
            self._blocks.append(block)
            self._changed.notify()
        return block.done

    def close(self) -> None:
        """Count the events that wait, then stop; give up if the database hangs."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while self._write_next():
            pass

    def _write_next(self) -> bool:
        """Count the next blocks; return False if the writer is closed and nothing waits.

        Between two calls the thread holds no version, which may be closed meanwhile.
        """
        blocks = self._take()
        if not blocks:
            return False
        blocks = [block for block in blocks if block.done.set_running_or_notify_cancel()]
        if not blocks:  # all were cancelled: nobody waits for the results
            return True
        try:
            results = iter(self._count(blocks))
        except Exception as error:
            for block in blocks:
                block.done.set_exception(error)
            if not isinstance(error, XylemError):
                log(logging.ERROR, "feedback_failed", error=error)
            return True
        for block in blocks:
            block.done.set_result(list(islice(results, len(block.events.keys))))
        self._keep_house(blocks[0].live)
        return True

    def _take(self) -> list[_Block]:
        """Return blocks that wait for the same version as the first, with the same `allowed`.

        Waits for a block. Empty if the writer is closed and nothing waits.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._blocks or self._closed)
            group: list[_Block] = []
            n_events = 0
            while self._blocks:
                block = self._blocks[0]
                first = group[0] if group else block
                n_events += len(block.events.keys)
                is_alike = block.live is first.live and block.allowed is first.allowed
                if not is_alike or (group and n_events > GROUP_EVENTS_MAX):
                    break
                group.append(self._blocks.popleft())
            self._n_waiting -= sum(len(block.events.keys) for block in group)
            return group

    def _count(self, blocks: list[_Block]) -> list[Result]:
        """Count the events of blocks of one version in one transaction; return their results."""
        live = blocks[0].live
        events = join([block.events for block in blocks])
        counting: FeedbackTransaction | None = None
        with live.lock:
            was_empty = live.prepared is None
            try:
                with self._database.write() as connection:
                    head = state.lock_head(connection, live.model, live.version, live.digest)
                    if head.epoch == 0:
                        tuned = live.start_state()
                        head = state.replace_state(connection, head, state.STARTED, tuned)
                        live.replace(tuned, head)
                    else:
                        live.refresh(connection, head)
                    timely = (events.epochs < 0) | (events.epochs >= head.base_epoch)
                    new = add_events(
                        connection,
                        list(dict.fromkeys(compress(events.keys, timely))),
                        int(now(connection) // DAY_SECONDS),
                    )
                    results = _results(events, timely, new)
                    counting = FeedbackTransaction(connection, live, head, self._halve_events)
                    counting.count(
                        events,
                        np.flatnonzero([result == "applied" for result in results]),
                        blocks[0].allowed,
                    )
                    counting.log()
                    # not strict: events that are not stored as rows have no lines
                    add_rows(
                        connection,
                        live.model,
                        {
                            key: line
                            for key, line, result in zip(
                                events.keys, events.lines, results, strict=False
                            )
                            if line and result == "applied"
                        },
                    )
            except BaseException:
                if counting is not None:
                    counting.undo()
                if was_empty:
                    live.forget()
                raise
            counting.keep()
            live.epoch = counting.head.epoch
        self._n_added += results.count("applied")
        return results

    def _keep_house(self, live: ServedThresholds) -> None:
        """Store a checkpoint and forget old events when due; log a failure, and retry next time."""
        try:
            self._checkpoint(live)
            self._forget()
        except DatabaseUnavailable as error:
            log(logging.ERROR, "checkpoint_failed", detail=str(error))
        except Exception as error:  # whatever the database holds must not end the writer
            log(logging.ERROR, "checkpoint_failed", error=error)

    def _forget(self) -> None:
        """Delete old events from the database, if a search for them is due.

        The search visits the next stored events in the order of their keys, twice as many as were
        added since the previous search. Nothing is deleted while the time is uncertain: an event
        that is forgotten too early could be counted twice.
        """
        if self._n_added < FORGET_EVENTS and time.monotonic() < self._forget_at:
            return
        n_most = max(FORGET_EVENTS, 2 * self._n_added)
        with self._database.write() as connection:
            seconds = self._clock.trusted_now(connection)
            if seconds is not None:
                _, self._last_visited = forget_events(
                    connection,
                    int(seconds // DAY_SECONDS) - self._days_max,
                    self._last_visited,
                    n_most,
                )
        self._n_added = 0
        self._forget_at = time.monotonic() + FORGET_SECONDS

    def _checkpoint(self, live: ServedThresholds) -> None:
        key = live.model, live.version
        if live.epoch - self._checkpoints.setdefault(key, live.epoch) < CHECKPOINT_EPOCHS:
            return
        with live.lock, self._database.write() as connection:
            head = state.lock_head(connection, *key, live.digest)
            live.refresh(connection, head)
            last = next((checkpoint.epoch for checkpoint in state.checkpoints(connection, head)), 0)
            if head.epoch - last >= CHECKPOINT_EPOCHS:
                if live.shadow is not None:
                    keep_shadow(connection, head, live.shadow.snapshot())
                state.keep_state(connection, head, state.REGULAR, live.snapshot())
        self._checkpoints[key] = live.epoch


def _results(events: Events, timely: Bools, new: set[bytes]) -> list[Result]:
    """Return the result of each event. Of several events with one new key, the first is applied."""
    results: list[Result] = []
    for key, is_timely in zip(events.keys, timely.tolist(), strict=True):
        if not is_timely:
            results.append("late")
        elif key in new:
            new.remove(key)
            results.append("applied")
        else:
            results.append("duplicate")
    return results
