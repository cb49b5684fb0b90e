"""Give a combined version members with further labels; its ranker and its names stay."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from xylem.base import Dataset, LabelRows, SparseRows
from xylem.datasets import renumbered
from xylem.vocabulary.combined import CombinedParts, training_counts
from xylem.vocabulary.featurizers import matcher_of
from xylem.vocabulary.names import GROUP
from xylem.vocabulary.near_rows import draw_near_rows, place_near
from xylem_store import (
    CALIBRATION,
    I32,
    NEAR,
    REPORT,
    Draft,
    Model,
    NameTable,
    all_names,
    assemble_near,
    assemble_ranker,
    build_names,
    group_of,
    has_near,
    json_array,
    map_name,
    proposing_of,
    read_report,
)


def with_members(
    model: Model,
    members: Sequence[Model],
    first_rows: tuple[SparseRows, LabelRows] | None,
    report: Mapping[str, Any],
) -> Draft:
    """Return a combined version with other members: its own, with further labels.

    A further label that the version has, as a concept of its vocabulary, keeps its id. Others come
    after the version's labels.

    first_rows  the training rows of the first member, from which near rows are drawn again. None:
                they stay, and no row has a further label
    report      is added to the version's report

    Deterministic.
    """
    arrays = model.arrays
    manifest = model.manifest
    n_old = manifest.n_labels
    labels = {label: i for i, label in enumerate(all_names(model.labels))}
    maps: list[I32] = []
    for number, member in enumerate(members):
        old_map = arrays[map_name(number)]
        further = [
            labels.setdefault(name, len(labels))
            for name in all_names(member.labels)[len(old_map) :]
        ]
        maps.append(np.append(old_map, further).astype(np.int32))
    table = build_names(list(labels))
    counts, n_rows = training_counts(members, maps, len(labels))
    matcher = matcher_of(model)
    parts = CombinedParts(
        members=members,
        labels=table,
        maps=maps,
        counts=counts,
        n_rows=n_rows,
        proposing=proposing_of(arrays),
        warnings=[],
        name_arrays={name: array for name, array in arrays.items() if name.startswith(f"{GROUP}/")},
        name_parameters=None if matcher is None else matcher.parameters,
    )
    if has_near(arrays):
        near = assemble_near(n_old, arrays)
        if first_rows is not None:
            near = draw_near_rows(
                first_rows[0].without_tail(),
                _labels_in(table, members[0], first_rows[1]),
                manifest.seed,
            )
        elif len(labels) > n_old:
            old_ids = np.arange(len(labels), dtype=np.int32)
            near = place_near(near, np.where(old_ids < n_old, old_ids, np.int32(-1)))
        parts = replace(parts, near=group_of(NEAR, near))
    draft = parts.draft(
        assemble_ranker(manifest, arrays), manifest.seed, manifest.trainer.parameters
    )
    calibration = {
        name: array for name, array in arrays.items() if name.startswith(f"{CALIBRATION}/")
    }
    return replace(
        draft,
        data=manifest.data._replace(rows=n_rows),
        extra={
            **draft.extra,
            **calibration,
            REPORT: json_array(REPORT, {**read_report(arrays), **report}),
        },
    )


def _labels_in(table: NameTable, member: Model, labels: LabelRows) -> LabelRows:
    """Return a member's labels of rows with the ids of the combined version."""
    dataset = Dataset(
        source="",
        sha256="",
        n_rows=labels.n_rows,
        labels=labels,
        unknown_labels=np.zeros(labels.n_rows, np.int32),
        label_names=all_names(member.labels),
    )
    return renumbered(dataset, table).labels
