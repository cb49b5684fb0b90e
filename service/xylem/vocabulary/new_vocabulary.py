"""`xylem models vocabulary`: give a combined version another vocabulary, without training.

The members, the ranker and the near rows stay as they are. New concepts are found by their names
from then on; concepts that the new vocabulary lacks are no longer labels. Labels are matched by
their keys, and keep what was learnt about them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadData, BadParameter, OnProgress, no_progress, one_step
from xylem.engine import members_of
from xylem.vocabulary.combined import CombinedParts
from xylem.vocabulary.concepts import Concepts, read_concepts
from xylem.vocabulary.featurizers import matcher_of
from xylem.vocabulary.label_info import read_label_info
from xylem.vocabulary.names import build_names as build_name_arrays, kept_frequencies
from xylem.vocabulary.near_rows import place_near
from xylem_store import (
    CALIBRATION,
    COMBINED,
    LABEL_COUNTS,
    NEAR,
    NO_LABEL,
    REPORT,
    URI,
    Draft,
    Model,
    Store,
    Subject,
    all_names,
    assemble_near,
    assemble_ranker,
    build_names,
    group_of,
    has_near,
    json_array,
    map_name,
    origin_arrays,
    parent_of,
    proposing_of,
    read_origin,
    read_report,
)


class NewVocabulary(NamedTuple):
    """A version that was published, and how its labels differ from those of the version before.

    findings  on the file of the vocabulary, as reports have them
    """

    model: str
    version: int
    parent: int
    labels: int
    added: int
    removed: int
    findings: list[dict[str, Any]]


@dataclass(frozen=True)
class VocabularyRequest:
    """A file of concepts that replace those of a combined version; its suffix tells the format.

    language, key_kind        as in `CombineRequest`; if left out, as in the version
    first_name                as in `CombineRequest`
    origin, latest, made_for  as in TrainRequest
    added                     as `read_concepts` takes them
    """

    file: Path
    language: str | None = None
    key_kind: str | None = None
    first_name: bool = False
    origin: Mapping[str, Any] = field(default_factory=dict)
    latest: bool = True
    made_for: str | None = None
    added: Sequence[Subject] = ()


def set_vocabulary(
    store: Store,
    name: str,
    reference: str | int,
    request: VocabularyRequest,
    on_progress: OnProgress = no_progress,
) -> NewVocabulary:
    """Publish a combined version with other concepts, which become the model's label info.

    Raises BadParameter for a version that is not combined, or has no names; BadData if no label of
    the version is among the concepts; and as `read_concepts` does.
    """
    model = store.open(name, reference)
    manifest = model.manifest
    if manifest.kind != COMBINED or not proposing_of(model.arrays).name_features:
        raise BadParameter(
            f"{manifest.full_name}: expected a combined version with a vocabulary, "
            "found one without"
        )
    parameters = manifest.trainer.parameters
    key_kind = request.key_kind or str(parameters.get("by", URI))
    language = request.language or str(parameters.get("language") or "") or None
    with one_step(on_progress, "read"):
        options: dict[str, Any] = {"first_name": request.first_name, "added": request.added}
        concepts = read_concepts(request.file, language, key_kind, **options)
        info = read_label_info(request.file, key_kind, language, **options)
    draft = _with_concepts(model, concepts)
    labels = set(all_names(draft.labels))
    old_labels = set(all_names(model.labels))
    if not labels & set(all_names(model.labels)[: proposing_of(model.arrays).concepts]):
        raise BadData(
            f"{request.file.name}: expected concepts of {manifest.full_name}, found none: say what "
            "labels are with --by"
        )
    old_calibration = {
        name: facts for name, facts in read_origin(model.arrays).items() if name == CALIBRATION
    }
    origin = {
        **old_calibration,
        "parent": parent_of(manifest),
        "vocabulary": request.file.name,
        **request.origin,
    }
    draft = replace(
        draft,
        trainer=draft.trainer._replace(
            parameters={**parameters, "by": key_kind, "language": language or ""}
        ),
        extra={**draft.extra, **origin_arrays(origin, request.made_for)},
        files=store.files_of(model, draft.extra),
    )
    with one_step(on_progress, "publish"):
        store.put_label_info(name, info)
        published = store.publish(name, draft, latest=request.latest)
    return NewVocabulary(
        model=name,
        version=published.version,
        parent=manifest.version,
        labels=len(labels),
        added=len(labels - old_labels),
        removed=len(old_labels - labels),
        findings=[finding.as_json() for finding in concepts.findings],
    )


def _with_concepts(model: Model, concepts: Concepts) -> Draft:
    """Return a combined version with other concepts."""
    arrays = model.arrays
    manifest = model.manifest
    old = all_names(model.labels)
    proposing = proposing_of(arrays)
    matcher = matcher_of(model)
    assert matcher is not None
    place = {key: i for i, key in enumerate(concepts.keys)}
    vocabulary_keys = place.keys() | concepts.retired
    retained_labels = [label for label in old[proposing.concepts :] if label not in vocabulary_keys]
    place |= {label: len(place) + i for i, label in enumerate(retained_labels)}
    labels = list(place)
    to_new = np.array([place.get(label, NO_LABEL) for label in old], np.int32)
    counts = np.zeros(len(labels), np.int64)
    is_retained = to_new != NO_LABEL
    counts[to_new[is_retained]] = arrays[LABEL_COUNTS][is_retained]
    old_maps = (arrays[map_name(number)] for number in range(len(manifest.members)))
    maps = [
        np.where(old_map == NO_LABEL, NO_LABEL, to_new[old_map]).astype(np.int32)
        for old_map in old_maps
    ]
    near: dict[str, NDArray[Any]] = {}
    if has_near(arrays):
        old_ids = np.full(len(labels), -1, np.int32)
        old_ids[to_new[is_retained]] = np.flatnonzero(is_retained)
        near = group_of(NEAR, place_near(assemble_near(len(old), arrays), old_ids))
    parts = CombinedParts(
        members=members_of(model),
        labels=build_names(labels),
        maps=maps,
        counts=counts,
        n_rows=manifest.data.rows,
        proposing=proposing._replace(concepts=len(concepts.keys)),
        warnings=[],
        name_arrays=build_name_arrays(
            concepts.placed(labels), matcher.parameters, kept_frequencies(arrays)
        ),
        name_parameters=matcher.parameters,
        near=near,
    )
    draft = parts.draft(
        assemble_ranker(manifest, arrays), manifest.seed, manifest.trainer.parameters
    )
    return replace(
        draft,
        data=manifest.data,
        metrics=manifest.metrics,
        extra={
            **draft.extra,
            **{name: array for name, array in arrays.items() if name.startswith(f"{CALIBRATION}/")},
            REPORT: json_array(REPORT, _report_with(concepts, read_report(arrays))),
        },
    )


def _report_with(concepts: Concepts, report: dict[str, Any]) -> dict[str, Any]:
    """Return a version's report with the findings on another vocabulary in place of the old ones.

    The findings on rows stay, as the figures do.
    """
    on_rows = (
        finding
        for finding in report.get("findings", ())
        if finding["code"] != "concepts-without-type"
    )
    return {
        **report,
        "findings": [*on_rows, *(finding.as_json() for finding in concepts.findings)],
    }
