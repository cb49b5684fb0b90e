"""Rows of feedback for who asks for them: exported, and removed by event or by day. Blocking."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from model_store.store import Store
from service.base.settings import Limits
from service.serving.parse import validated
from service.serving.schemas.feedback import DeleteRowsRequest, RowsDeleted
from service.thresholds.live.events import event_keys
from service.thresholds.store.feedback_rows import PAGE_ROWS, FeedbackRows


class KeptRows(NamedTuple):
    """The rows of a store's database, with the calls that `xylem.Client` has for them.

    All raise ModelNotFound for a model that is not there and has no rows, and DatabaseUnavailable.
    """

    store: Store
    rows: FeedbackRows
    limits: Limits

    def pages(self, model: str, days: int | None) -> Iterator[bytes]:
        """Return pages of the lines of a model's rows, of the last `days`, the oldest first."""
        lines = self.rows.lines(self.rows.span(model, days))
        pages = iter(lambda: b"".join(line + b"\n" for line in itertools.islice(lines, PAGE_ROWS)), b"")
        first = next(pages, b"")
        if not first:
            self.store.resolve(model)  # which says that it is not there
        return itertools.chain([first], pages)

    def export_feedback_rows(self, model: str, to: Path, days: int | None) -> int:
        """Write the lines to a file; return its bytes."""
        pages = self.pages(model, days)
        with to.open("wb") as out:
            return sum(map(out.write, pages))

    def delete_feedback_rows(
        self, model: str, event_ids: Sequence[str] | None, day: str | None
    ) -> RowsDeleted:
        """Remove the rows of some events, or of a day as 2026-11-23. Raises BadRequest, LimitExceeded."""
        wanted = validated({"event_ids": event_ids, "day": day}, DeleteRowsRequest, self.limits)
        if wanted.event_ids is not None:
            n = self.rows.forget(model, event_keys(model, wanted.event_ids))
        else:
            n = self.rows.forget_day(model, wanted.midnight)
        if not n:
            self.store.resolve(model)
        return {"model": model, "deleted": n}
