"""Receive feedback and count each event once; export and delete stored feedback rows."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from xylem.base import COMMIT, READ, Limits, StageTimings
from xylem.serving.batches.lines import Answered, LineBlock, dump_line, value_of
from xylem.serving.feedback.events import (
    CheckedEvent,
    check_event,
    not_counted,
    read_sparse,
    to_events,
    verdict_on,
)
from xylem.serving.feedback.schema import (
    DeleteRowsRequest,
    FeedbackAnswer,
    FeedbackLineResult,
)
from xylem.serving.learning import OnlineLearning
from xylem.serving.live.denied import denying_as
from xylem.serving.live.served import ServedVersion
from xylem.serving.parse import parse_feedback, validated
from xylem.thresholds import ALL_COUNT, Events, FeedbackRows, event_keys
from xylem_store import LATEST, Store, VersionNotFound, find_all


class StoredRows(NamedTuple):
    """Exports and deletes the stored feedback rows of a store's database, as `xylem.Client` does.

    All methods raise DatabaseUnavailable, and ModelNotFound for a model that does not exist and has
    no rows.
    """

    store: Store
    rows: FeedbackRows
    limits: Limits

    def pages(self, model: str, days: int | None) -> Iterator[bytes]:
        """Yield the lines of a model's rows of the last `days` in pages, the oldest first."""
        pages = self.rows.pages(self.rows.span(model, days))
        first = next(pages, b"")
        if not first:
            self.store.resolve(model)  # raises ModelNotFound if there is no such model
        return itertools.chain([first], pages)

    def export_feedback_rows(self, model: str, to: Path, days: int | None) -> int:
        """Write the lines to a file; return the number of bytes."""
        pages = self.pages(model, days)
        with to.open("wb") as out:
            return sum(map(out.write, pages))

    def corrections(
        self,
        model: str,
        label: str | None = None,
        key: str | None = None,
        limit: int = 50,
        before_number: int | None = None,
    ) -> Any:
        """Return a page of the rows, the newest first, as `xylem.Client` does.

        Each row names its labels that the version that `latest` names does not have.
        """
        labels = self.store.open(model, LATEST, verify=False).labels
        rows = self.rows.newest(model, limit + 1, before_number, label, key)
        for row in rows:
            row["gone_labels"] = list(
                itertools.compress(row["labels"], find_all(labels, row["labels"]) < 0)
            )
        return {
            "corrections": rows[:limit],
            "next": rows[limit - 1]["number"] if len(rows) > limit else None,
            "n_rows": self.rows.count(self.rows.span(model)),
        }

    def delete_feedback_rows(
        self,
        model: str,
        event_ids: Sequence[str] | None,
        day: str | None = None,
        key: str | None = None,
    ) -> Any:
        """Remove the rows of some events, of one day (UTC, such as 2026-11-23), or of a key.

        Raises BadRequest, LimitExceeded.
        """
        request = validated(
            {"event_ids": event_ids, "day": day, "key": key}, DeleteRowsRequest, self.limits
        )
        n = self.rows.forget(
            model, event_keys(model, request.event_ids or ()), request.midnight, request.key
        )
        if not n:
            self.store.resolve(model)
        return {"model": model, "deleted": n}


T = TypeVar("T")

# The most events of a stream that are committed together.
BLOCK_EVENTS_MAX = 64

SHORT_EVENTS = 4  # up to this many events are read on the event loop, more of them in a thread

# The most bytes of events that are read on the event loop.
SHORT_BYTES = 1 << 14


class FeedbackDesk:
    """Reads events, hands them to the writer, and returns the verdicts. Event loop only.

    find         returns the served version for a model and a number; raises VersionNotFound
    on_verdicts  called with a model's name, the version (None: it no longer exists) and the result
                 of each of its events
    """

    def __init__(
        self,
        find: Callable[[str, str], Awaitable[ServedVersion]],
        learning: OnlineLearning,
        limits: Limits,
        on_verdicts: Callable[[str, int | None, Iterable[str]], None],
    ) -> None:
        self._find = find
        self._learning = learning
        self._limits = limits
        self._on_verdicts = on_verdicts
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="xylem-events")

    def close(self) -> None:
        """Stop the threads, without waiting for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def count_body(
        self,
        body: bytes,
        served: ServedVersion,
        timings: StageTimings,
        *,
        sender: str | None = None,
    ) -> FeedbackAnswer:
        """Count the events of a body. An event is durable when the answer says that it was applied.

        sender  the name of the key whose instances are stored as rows to train on; empty: it is
                not known; None: no rows are stored

        Raises BadInput for a body that holds no events, Overloaded, DatabaseUnavailable.
        """
        parts = await self._read_sparse(body, served, are_lines=False) if sender is None else None
        if parts is None:
            is_long = len(body) > SHORT_BYTES
            parts = await self._read(
                await self._off_loop(is_long, parse_feedback, body, self._limits),
                served,
                is_long=is_long,
                sender=sender,
            )
        timings.end(READ)
        verdicts = await self._count(parts, served, may_wait=False)
        epoch = served.thresholds.epoch
        timings.end(COMMIT)
        return {
            "model": served.name,
            "version": served.version,
            "threshold_epoch": epoch or None,
            "results": [*verdicts],
        }

    async def count_values(
        self,
        values: Sequence[Any],
        served: ServedVersion,
        *,
        sender: str | None = None,
        may_wait: bool = True,
    ) -> list[FeedbackLineResult]:
        """Count events, and return the verdict on each.

        values  JSON values; a BadInput for a line that is not JSON

        Raises DatabaseUnavailable, and Overloaded if the queue is full and `may_wait` is false.
        """
        return await self._count(
            await self._read(values, served, is_long=True, sender=sender), served, may_wait=may_wait
        )

    async def begin_block(
        self,
        block: LineBlock,
        served: ServedVersion,
        timings: StageTimings,
        *,
        sender: str | None = None,
    ) -> asyncio.Task[Answered]:
        """Read the events of a block of lines; return the task that counts and answers them."""
        lines = [line for line in block.lines if line is not None]
        parts = (
            await self._read_sparse(b"\n".join(lines), served, are_lines=True)
            if len(lines) == len(block.lines) and sender is None
            else None
        )
        if parts is None:
            parts = await self._read(
                [value_of(line, self._limits) for line in block.lines],
                served,
                is_long=True,
                sender=sender,
            )
        timings.end(READ)
        return asyncio.create_task(self._lines(block.first, parts, served, timings))

    async def _read_sparse(
        self, body: bytes, served: ServedVersion, *, are_lines: bool
    ) -> "list[_Part] | None":
        """Read events the fast way (`read_sparse`); None if it does not apply to all of them."""
        read = partial(
            read_sparse, body, served, self._learning.tokens, self._limits, are_lines=are_lines
        )
        is_short = len(body) <= SHORT_BYTES and body.count(b'"event_id"') <= SHORT_EVENTS
        ids_and_events = await self._off_loop(not is_short, read)
        return (
            None
            if ids_and_events is None
            else [_Part(served, dict(enumerate(ids_and_events[0])), {}, ids_and_events[1])]
        )

    async def _off_loop(self, is_long: bool, function: Callable[..., T], *arguments: object) -> T:
        """Call a function, in a thread if the call may take long, and return its result."""
        if not is_long:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def _read(
        self, values: Sequence[Any], served: ServedVersion, *, is_long: bool, sender: str | None
    ) -> "list[_Part]":
        """Read events of any kind, and divide them by the version they belong to."""
        is_long = is_long or len(values) > SHORT_EVENTS or bool(served.featurizer.encoders)
        checked = await self._off_loop(is_long, self._check, values, served)
        by_version: dict[int, dict[int, CheckedEvent | FeedbackLineResult]] = {}
        for place, event in enumerate(checked):
            token = event.token if isinstance(event, CheckedEvent) else None
            by_version.setdefault(served.version if token is None else token.version, {})[place] = (
                event
            )
        parts = []
        for version, places in by_version.items():
            version_served = served
            try:
                if version != served.version:
                    version_served = denying_as(await self._find(served.name, str(version)), served)
            except VersionNotFound as error:
                late_result = partial(
                    not_counted, result="late", reason="version-gone", detail=str(error)
                )
                parts.append(
                    _Part(
                        None,
                        {},
                        {
                            i: late_result(event.feedback.event_id)
                            for i, event in places.items()
                            if isinstance(event, CheckedEvent)
                        },
                    )
                )
            else:
                parts.append(
                    await self._off_loop(is_long, _to_part, places, version_served, sender)
                )
        return parts

    def _check(
        self, values: Sequence[Any], served: ServedVersion
    ) -> list[CheckedEvent | FeedbackLineResult]:
        return [
            check_event(value, served.name, self._learning.tokens, self._limits) for value in values
        ]

    async def _count(
        self, parts: "Sequence[_Part]", served: ServedVersion, *, may_wait: bool
    ) -> list[FeedbackLineResult]:
        """Hand the events to the writer; return the verdicts in their order, once they are durable.

        Raises Overloaded.
        """
        writing = []
        for part in parts:
            if part.served is not None and part.events is not None:
                denied = part.served.denied
                writing.append(
                    asyncio.wrap_future(
                        self._learning.writer.submit(
                            part.served.thresholds,
                            part.events,
                            may_wait=may_wait,
                            allowed=ALL_COUNT if denied is None else denied.allowed,
                        )
                    )
                )
        # usually there is only one, and then gather would be a needless cost
        outcomes = iter([await writing[0]] if len(writing) == 1 else await asyncio.gather(*writing))
        verdicts: dict[int, FeedbackLineResult] = {}
        for part in parts:
            part_verdicts = {**part.verdicts}
            for (place, event_id), result in zip(
                part.ids.items(), [] if part.events is None else next(outcomes), strict=True
            ):
                part_verdicts[place] = verdict_on(event_id, result)
            verdicts |= part_verdicts
            self._on_verdicts(
                served.name,
                None if part.served is None else part.served.version,
                [verdict["result"] for verdict in part_verdicts.values()],
            )
        return [verdicts[place] for place in sorted(verdicts)]

    async def _lines(
        self, first: int, parts: "Sequence[_Part]", served: ServedVersion, timings: StageTimings
    ) -> Answered:
        """Return the lines that answer a block of a stream, once its events are durable."""
        verdicts = await self._count(parts, served, may_wait=True)
        timings.end(COMMIT)
        for line, verdict in enumerate(verdicts, first):
            if "reason" in verdict:
                verdict["line"] = line
        n_bad = sum(verdict["result"] == "rejected" for verdict in verdicts)
        return Answered(b"".join(map(dump_line, verdicts)), len(verdicts) - n_bad, n_bad)


class _Part(NamedTuple):
    """The events of a request that belong to one version.

    served    the version; None: it no longer exists
    ids       the ids of the events that can be counted, by their place in the request, in order
    verdicts  the verdicts on all other events, by place
    events    the events that can be counted; None if no event can be
    """

    served: ServedVersion | None
    ids: Mapping[int, str]
    verdicts: Mapping[int, FeedbackLineResult]
    events: Events | None = None


def _to_part(
    places: Mapping[int, CheckedEvent | FeedbackLineResult],
    served: ServedVersion,
    sender: str | None,
) -> _Part:
    """Read the events of one version, by their place; `sender` as for `to_events`."""
    ids, events, verdicts = to_events(
        {place: event for place, event in places.items() if isinstance(event, CheckedEvent)},
        served,
        sender=sender,
    )
    verdicts |= {
        place: event for place, event in places.items() if not isinstance(event, CheckedEvent)
    }
    return _Part(served, ids, verdicts, events if ids else None)
