"""`xylem feedback`: a file of events to a server, or to a store's database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from typer import Context, Option, Typer
from typer.core import TyperGroup

from xylem import base, datasets, serving, thresholds
from xylem.cli.console import (
    print_facts,
    print_json,
    print_list,
    print_result,
    print_table,
    progress,
)
from xylem.cli.options import Json, Model, ModelName, grouped, parse_reference
from xylem.cli.places import (
    Place,
    connect_server,
    open_model,
    opened_learning,
    opened_place,
    read_key,
)


class SendsByDefault(TyperGroup):
    """A group in which `xylem feedback NAME` is short for `xylem feedback send NAME`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the command `send` if none is named."""
        is_named = not args or args[0] in self.commands or args[0] == "--help"
        return super().parse_args(ctx, args if is_named else ["send", *args])


app = Typer(
    cls=SendsByDefault,
    no_args_is_help=True,
    help="Feedback: true labels, from which thresholds learn, and the rows that are stored.",
)

EVENTS_A_BLOCK = 64
VERSIONS_MAX = 16  # versions that are open at a time because events name their predictions
FAULTS_MAX = 10  # the most uncounted events that are listed with the reason

DETAIL_MAX = 300
TEXT_MAX = 60  # the most characters of a text in a list
RESULTS = ("applied", "duplicate", "late", "rejected")

# Sends events as JSON values, and returns the outcome of each.
#
# An item may also be the error of a line without a value.
Send = Callable[[list[Any]], Sequence[Mapping[str, Any]]]


@app.command()
@grouped
def send(
    model: Model,
    place: Place,
    data: Annotated[
        str,
        Option("--data", metavar="FILE", help="Lines of events, also as .gz; - is standard input."),
    ] = serving.STDIN,
    json: Json = False,
) -> None:
    """Send true labels, so that thresholds learn: one JSON object a line.

    A line is {"event_id": ..., "labels": [...]} with "instance" or "prediction_id"
    (docs/feedback.md). Each event counts once: a file that was sent in part can be sent again as a
    whole. Events that were not counted are listed by reason, the first ones with their lines. The
    exit status is 2 if some were rejected.
    """

    limits = base.read_settings().limits
    tally = _Tally()
    sender = (
        _to_database(model, place.store, limits)
        if place.url is None
        else _to_server(model, place.url, read_key(place.key_file), limits)
    )
    try:
        with (
            serving.opened(data) as source,
            progress(json or data == serving.STDIN) as show,
            sender as send,
        ):
            for block in serving.blocks_of(source, limits.line_bytes_max, EVENTS_A_BLOCK):
                values = [serving.value_of(line, limits) for line in block.lines]
                for number, verdict in enumerate(send(values), block.first):
                    tally.add(number, verdict)
                show("feedback", source.raw.tell() if source.n_bytes else 0, source.n_bytes)
    except base.Unavailable as error:
        raise type(error)(
            f"{error}; {sum(tally.results.values())} lines of the file had been answered: "
            "send it again, each event counts once"
        ) from error
    tally.show(json=json)
    if tally.first_rejected:
        raise base.BadData(
            f"{data}: expected events that can be used, found {tally.results['rejected']} others, "
            f"at first {tally.first_rejected}"
        )


@app.command("export")
@grouped
def export_rows(
    context: Context,
    model: ModelName,
    file: Annotated[
        Path, Option("--file", metavar="FILE", help="The file to write, lines of JSON.")
    ],
    place: Place,
    days: Annotated[
        int | None, Option(min=1, max=36_500, help="Rows of the last N days; default: all.")
    ] = None,
    json: Json = False,
) -> None:
    """Write the stored rows of feedback (XYLEM_FEEDBACK_ROWS) as training data, oldest first."""
    with opened_place(context, place, _local_rows) as rows:
        n_bytes = rows.export_feedback_rows(model, file, days)
    if n_bytes:
        # rows of ids of features are no lines that a training reads
        with progress(json), suppress(base.BadData):
            datasets.read_dataset(file)
    print_result(
        json,
        f"rows of {model} -> {file} ({n_bytes} bytes)",
        model=model,
        file=str(file),
        bytes=n_bytes,
    )


@app.command("list")
@grouped
def list_rows(
    context: Context,
    model: ModelName,
    place: Place,
    label: Annotated[str | None, Option(metavar="LABEL", help="Only rows with this label.")] = None,
    key: Annotated[
        str | None, Option(metavar="NAME", help="Only rows that came with the key of this name.")
    ] = None,
    limit: Annotated[int, Option(min=1, max=200, help="Show the newest N rows.")] = 50,
    json: Json = False,
) -> None:
    """List the stored rows of feedback, the newest first."""
    with opened_place(context, place, _local_rows) as rows:
        page = rows.corrections(model, label, key, limit)
    cells = [
        [
            row["event_id"],
            datetime.fromtimestamp(row["at"], UTC).isoformat(" ", "minutes"),
            row["key"] or "",
            ", ".join(row["labels"]),
            ", ".join(row["gone_labels"]),
            (row["text"] or "")[:TEXT_MAX],
        ]
        for row in page["corrections"]
    ]
    print_list(
        json,
        page,
        (
            f"{len(cells)} of {page['n_rows']} rows of {model}",
            ("event", "time", "key", "labels", "gone", "text"),
            cells,
        ),
        f"No such rows of {model}",
    )


@app.command("delete")
@grouped
def delete_rows(
    context: Context,
    model: ModelName,
    place: Place,
    event_id: Annotated[
        list[str] | None, Option(metavar="ID", help="The row of an event; may repeat.")
    ] = None,
    day: Annotated[
        str | None, Option(metavar="DATE", help="All rows of a day (UTC), such as 2026-11-23.")
    ] = None,
    key: Annotated[
        str | None, Option(metavar="NAME", help="All rows that came with the key of this name.")
    ] = None,
    json: Json = False,
) -> None:
    """Remove rows of feedback: of some events, of a day, or of a key.

    Versions that were trained on them stay.
    """
    with opened_place(context, place, _local_rows) as rows:
        answer = rows.delete_feedback_rows(model, event_id, day, key)
    print_result(json, f"{answer['deleted']} rows of {model} deleted", **answer)


def _local_rows(database: base.Database, settings: base.Settings) -> serving.StoredRows:
    return serving.StoredRows(
        serving.store_of(settings.store),
        thresholds.FeedbackRows(database, settings),
        settings.limits,
    )


class _Tally:
    """Counts of the outcomes of a file's events, in memory that does not grow with the file."""

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()
        self.first_rejected = ""
        self._reasons: Counter[str] = Counter()
        self._faults: list[dict[str, object]] = []

    def add(self, line: int, verdict: Mapping[str, Any]) -> None:
        """Count an event by its outcome."""
        result = verdict["result"]
        self.results[result] += 1
        if result not in ("late", "rejected"):
            return
        reason = str(verdict.get("reason"))
        detail = str(verdict.get("detail"))[:DETAIL_MAX]
        self._reasons[reason] += 1
        if result == "rejected" and not self.first_rejected:
            self.first_rejected = f"line {line}: {detail}"
        if len(self._faults) < FAULTS_MAX:
            self._faults.append(
                {"line": line, "result": result, "reason": reason, "detail": detail}
            )

    def show(self, *, json: bool) -> None:
        """Print the counts, as a JSON object or for a person."""
        results = {result: self.results[result] for result in RESULTS}
        reasons = dict(self._reasons.most_common())
        if json:
            print_json({**results, "reasons": reasons, "faults": self._faults})
            return
        print_facts("", {**results, **{f"because of {reason}": n for reason, n in reasons.items()}})
        if self._faults:
            n = len(self._faults)
            print_table(
                "Not counted:" if n == sum(reasons.values()) else f"Not counted, the first {n}:",
                ("line", "result", "reason", "detail"),
                [tuple(fault.values()) for fault in self._faults],
            )


@contextmanager
def _to_server(model: str, url: str, key: str | None, limits: base.Limits) -> Iterator[Send]:
    """Yield the function that sends events to a server, with the retries of the client.

    Raises as `connect_server`.
    """
    name, reference = parse_reference(model)
    version = int(reference) if reference.isdigit() else None
    with connect_server(url, key) as client:

        def send(values: list[Any]) -> list[Mapping[str, Any]]:
            faults = [_fault_of(value, limits) for value in values]
            events = [value for value, fault in zip(values, faults, strict=True) if fault is None]
            verdicts = iter(
                client.feedback(
                    name, events, version, reference if version is None else None
                ).results
                if events
                else ()
            )
            return [asdict(next(verdicts)) if fault is None else fault for fault in faults]

        yield send


def _fault_of(value: Any, limits: base.Limits) -> Mapping[str, Any] | None:
    """Return the verdict on a value that is not an event with an id; None for such an event.

    Without an id an event would count again when the file is sent again.
    """

    if isinstance(value, dict) and "event_id" in value:
        return None
    try:
        if isinstance(value, base.BadInput):
            raise value
        serving.validated(value, serving.FeedbackEvent, limits)
    except base.BadInput as error:
        return serving.refused(None, error)
    return None


@contextmanager
def _to_database(model: str, store: Path, limits: base.Limits) -> Iterator[Send]:
    """Yield the function that counts events in the database of the store.

    Servers that share the database follow. Events are counted as a server does: those with an
    instance for the version that the command names, those with a prediction_id for the version that
    predicted.
    """
    import asyncio

    opened_model = open_model(store, model)
    with opened_learning(store, create=True) as learning, asyncio.Runner() as runner:
        assert learning is not None
        served = serving.open_version(opened_model, learning)
        home = serving.store_of(store)

        @lru_cache(VERSIONS_MAX)
        def opened_version(name: str, ref: str) -> serving.ServedVersion:
            return serving.open_version(home.open(name, ref), learning)

        async def find(name: str, ref: str) -> serving.ServedVersion:
            return opened_version(name, ref)

        with closing(serving.FeedbackDesk(find, learning, limits, lambda *counted: None)) as desk:
            sender = "" if learning.rows.is_on else None
            yield lambda values: runner.run(desk.count_values(values, served, sender=sender))
