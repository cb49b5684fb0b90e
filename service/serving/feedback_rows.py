"""Rows of feedback for who asks for them: exported, and removed by event or by day. Blocking."""

import itertools
from collections.abc import Iterator

from model_store.store import Store
from service.serving.schemas.feedback import DeleteRowsRequest, RowsDeleted, RowsQuery
from service.thresholds.live.events import event_keys
from service.thresholds.store.feedback_rows import PAGE_ROWS, FeedbackRows


def export_rows(store: Store, rows: FeedbackRows, model: str, query: RowsQuery) -> Iterator[bytes]:
    """Return pages of the lines of a model's rows, the oldest first.

    Raises ModelNotFound for a model that is not there, and has no rows; DatabaseUnavailable.
    """
    lines = rows.lines(rows.span(model, query.days))
    first = _page(lines)
    if not first:
        store.resolve(model)  # which says that it is not there
    return itertools.chain([first], iter(lambda: _page(lines), b""))


def delete_rows(store: Store, rows: FeedbackRows, model: str, wanted: DeleteRowsRequest) -> RowsDeleted:
    """Remove rows of a model; return how many there were. Raises as `export_rows`."""
    if wanted.event_ids is not None:
        n = rows.forget(model, event_keys(model, wanted.event_ids))
    else:
        n = rows.forget_day(model, wanted.midnight)
    if not n:
        store.resolve(model)
    return {"model": model, "deleted": n}


def _page(lines: Iterator[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in itertools.islice(lines, PAGE_ROWS))
