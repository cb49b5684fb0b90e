"""Describe a served version for the API: its labels, its thresholds, and its figures."""

from contextlib import suppress
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from xylem.api.schemas.labels import (
    LabelFeatures,
    LabelFeaturesQuery,
    LabelPage,
    LabelQuery,
    LabelsQuery,
    LabelSummary,
    ShadowSummary,
    ThresholdHistory,
    ThresholdQuery,
    Thresholds,
)
from xylem.api.schemas.models import ValidationFigures, VersionFigures, VersionSummary
from xylem.base import BadRequest, Database, NotTuned, UnknownLabel
from xylem.serving import (
    LabelInfoOptions,
    ServedVersion,
    label_description,
    label_features,
    label_info_options,
    labels_with_name_part,
    languages_of,
)
from xylem.thresholds import Shadow, Tuned, checkpoints, find_head, label_history
from xylem_store import NameTable, Store, name_of, names_with, read_report


def describe_labels(served: ServedVersion, query: LabelsQuery) -> LabelPage:
    """Return one page of the labels that a query selects.

    Cost: one pass over all names if the query searches, or orders by name.

    Raises UnsupportedOption for names that the model does not have.
    """
    info = label_info_options(query, served.info)
    live = served.thresholds
    with live.lock:
        epoch, tuned = (None, None) if live.prepared is None else (live.epoch, live.snapshot())
    counts = served.opened.arrays.get("labels/counts")
    allowed = None if served.denied is None else served.denied.allowed
    ids = np.arange(served.labels.n_names)
    if query.search:
        matches = names_with(served.labels.offsets, served.labels.utf8, query.search)
        if info is not None:
            matches |= labels_with_name_part(info, query.search)
        ids = np.flatnonzero(matches)
    if query.marks_below and tuned is not None:
        ids = ids[tuned.counters.marks[ids] < query.marks_below]
    ids = _ordered(ids, query, served.labels, counts, tuned)
    page_ids = ids[query.offset : query.offset + query.limit].tolist()
    end = query.offset + len(page_ids)
    return {
        "model": served.name,
        "version": served.version,
        "threshold_epoch": epoch,
        "n_labels": served.labels.n_names,
        "n_found": len(ids),
        "n_denied": 0 if allowed is None else int(len(allowed) - np.count_nonzero(allowed)),
        "languages": list(languages_of(served.info.current)[0]),
        "labels": [_summary(served, i, counts, tuned, info) for i in page_ids],
        "next_offset": end if page_ids and end < len(ids) else None,
    }


def describe_features(served: ServedVersion, query: LabelFeaturesQuery) -> LabelFeatures:
    """Return the features that count most for a label and against it.

    Raises UnknownLabel, UnsupportedOption, BadRequest.
    """
    explanation = label_features(served.opened, _label_of(served, query), query.top)
    return {
        "model": served.name,
        "version": served.version,
        "label": explanation["label"],
        "id": explanation["id"],
        "n_trees": len(explanation["trees"]),
        "features": explanation["features"],
    }


def describe_history(
    served: ServedVersion, database: Database, query: LabelQuery
) -> ThresholdHistory:
    """Return the threshold of a label over time. Blocking.

    Raises NotTuned, UnknownLabel, BadRequest, DatabaseUnavailable.
    """
    label = _label_of(served, query)
    with database.read() as connection:
        head = find_head(connection, served.name, served.version, served.thresholds.digest)
        if head is None or not head.epoch:
            raise NotTuned(
                f"model {served.name} version {served.version}: expected thresholds, found none"
            )
        points: list[Any] = [
            point._asdict()
            for point in label_history(connection, head, label, served.labels.n_names)
        ]
    return {
        "model": served.name,
        "version": served.version,
        "label": name_of(served.labels, label),
        "id": label,
        "threshold_epoch": head.epoch,
        "points": points,
    }


def _label_of(served: ServedVersion, query: LabelQuery) -> int:
    """Return the id of the label that a query gives by its id, itself, or its name.

    Raises BadRequest, UnknownLabel.
    """
    if (query.id is None) == (query.label is None):
        raise BadRequest(
            f"expected a label's id or its name, found {'neither' if query.id is None else 'both'}"
        ).with_path("label")
    if query.label is not None:
        return int(served.info.label_ids([query.label], lambda _: "label")[0][0])
    n_labels = served.labels.n_names
    if query.id is None or not 0 <= query.id < n_labels:
        raise UnknownLabel(f"expected one of {n_labels} labels, found {query.id!r:.80}").with_path(
            "label"
        )
    return query.id


def _ordered(
    ids: NDArray[np.int64],
    query: LabelsQuery,
    names: NameTable,
    counts: NDArray[Any] | None,
    tuned: Tuned | None,
) -> NDArray[np.int64]:
    """Return the ids in the order of the query; by id if there are no values to order by."""
    if query.order == "label":
        return np.array(
            sorted(ids.tolist(), key=lambda i: name_of(names, i), reverse=query.descending),
            np.int64,
        )
    columns = {"training_rows": counts}
    if tuned is not None:
        columns |= {"threshold": tuned.thresholds, **tuned.counters._asdict()}
    values = columns.get(query.order)
    if values is None:
        return ids[::-1] if query.order == "id" and query.descending else ids
    return ids[np.argsort(-values[ids] if query.descending else values[ids], kind="stable")]


def _summary(
    served: ServedVersion,
    label: int,
    counts: NDArray[Any] | None,
    tuned: Tuned | None,
    info: LabelInfoOptions | None,
) -> LabelSummary:
    summary = {
        "label": name_of(served.labels, label),
        "id": label,
        "training_rows": None if counts is None else int(counts[label]),
        "threshold": None if tuned is None else tuned.thresholds[label],
        "hits": None if tuned is None else int(tuned.counters.hits[label]),
        "marks": None if tuned is None else int(tuned.counters.marks[label]),
        "denied": served.denied is not None and not served.denied.allowed[label],
        **({} if info is None else label_description(info, label)),
    }
    return cast(LabelSummary, summary)


def describe_thresholds(
    served: ServedVersion, database: Database, query: ThresholdQuery
) -> Thresholds:
    """Return the thresholds of a version, for one page of labels, and their counts. Blocking.

    Raises NotTuned, DatabaseUnavailable, ForeignThresholds.
    """
    live = served.thresholds
    with database.read() as connection:
        # raises ForeignThresholds if the database has thresholds of another version
        find_head(connection, served.name, served.version, live.digest)
    with live.lock:
        if live.prepared is None:
            raise NotTuned(
                f"model {served.name} version {served.version}: expected thresholds, found none"
            )
        epoch = live.epoch
        tuned = live.snapshot()
        macro_f = live.served.macro_f()
        shadow = None if live.shadow is None else _describe_shadow(live.shadow)
    checkpoint_rows: list[Any] = []
    n_events = 0
    with database.read() as connection:
        head = find_head(connection, served.name, served.version, served.thresholds.digest)
        if head is not None:
            n_events = head.n_events
            checkpoint_rows = [checkpoint._asdict() for checkpoint in checkpoints(connection, head)]
    instance_f = tuned.aim.instance_f()
    marks = tuned.counters.marks
    ids = np.flatnonzero(marks < query.marks_below) if query.marks_below else np.arange(len(marks))
    page_ids = ids[query.offset : query.offset + query.limit].tolist()
    end = query.offset + len(page_ids)
    return {
        "model": served.name,
        "version": served.version,
        "threshold_epoch": epoch,
        "method": tuned.method,
        "objective": tuned.aim.objective,
        "limit": tuned.aim.limit,
        "start": tuned.start._asdict(),
        "n_events": n_events,
        "macro_f": 100 * macro_f,
        "micro_f": 100 * tuned.counters.micro_f(),
        "instance_f": None if instance_f is None else 100 * instance_f,
        "shadow": shadow,
        "checkpoints": checkpoint_rows,
        "n_labels": len(ids),
        "labels": [
            {
                "label": name_of(served.labels, i),
                "id": i,
                "threshold": tuned.thresholds[i],
                "hits": int(tuned.counters.hits[i]),
                "marks": int(marks[i]),
            }
            for i in page_ids
        ],
        "next_offset": end if page_ids and end < len(ids) else None,
    }


def _describe_shadow(shadow: Shadow) -> ShadowSummary:
    macro_f, served_macro_f = shadow.macro_f()
    micro_f, served_micro_f = (counters.micro_f() for counters in shadow.scores)
    return {
        "since_epoch": shadow.since,
        "created_at": shadow.created_at,
        "method": shadow.candidate.method,
        "objective": shadow.candidate.aim.objective,
        "start": shadow.candidate.start._asdict(),
        "n_events": shadow.n_events,
        "macro_f": 100 * macro_f,
        "served_macro_f": 100 * served_macro_f,
        "micro_f": 100 * micro_f,
        "served_micro_f": 100 * served_micro_f,
        "empty_label_convention": shadow.candidate.convention,
    }


_FIGURES: TypeAdapter[ValidationFigures] = TypeAdapter(ValidationFigures)


def describe_figures(store: Store, model: str, version: int) -> VersionFigures:
    """Return the manifest of a version and its figures on validation rows. Blocking.

    Only the report is read, not the other arrays of the version.

    Raises NotFound, Corrupt, StoreUnreadable.
    """
    opened = store.open(model, version, verify=False)
    figures = None
    # there is no report, or one of another release, whose fields differ
    with suppress(KeyError, ValidationError):
        figures = _FIGURES.validate_python(read_report(opened.arrays)["validation"])
    return VersionFigures(
        **dict(VersionSummary.model_validate(opened.manifest)),
        model=opened.manifest.model,
        validation=figures,
    )
