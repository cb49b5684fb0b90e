"""`xylem combine`: versions and names of concepts made one version, whose ranker is fitted to labelled rows.

Source of the idea: Annif's fusion backends (Suominen, Inkinen and Lehtinen 2022, "Annif and Finto AI"), and
re-ranking of candidates by boosted trees (Burges 2010, "From RankNet to LambdaRank to LambdaMART", section 7;
here each candidate is fitted by itself).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.checks import LABEL_COUNTS
from model_store.ensemble import no_trees
from model_store.identifiers import check_model
from model_store.label_info import URI
from model_store.manifest import COMBINED, MEMBERS_MAX, WORD_FORMS, Parameter, TrainerInfo, member_prefix
from model_store.members import (
    BEAM_MAX,
    CANDIDATES_MAX,
    MEMBER_FEATURES,
    NO_LABEL,
    Proposing,
    Ranker,
    candidate_features,
    ranker_arrays,
)
from model_store.names import NameTable, all_names, build_names, find_all
from model_store.near import near_features
from model_store.origin import (
    MADE_FOR,
    ORIGIN,
    REPORT,
    made_for_array,
    origin_array,
    parent_of,
    report_array,
)
from model_store.store import Store
from model_store.version import Draft, Model, StoredArray, model_of
from service.base.columns import DEFAULT_COLUMNS, TableColumns
from service.base.errors import BadData, BadParameter
from service.base.rows import Dataset, LabelRows, offsets
from service.datasets import read_dataset
from service.evaluation.ranking import PredictedRows
from service.features.combined import CombinedFeaturizer
from service.features.languages import FILE_SUFFIX
from service.features.parameters import ContextParameters, NamedParameters, RawParameters
from service.inference.combined_predictor import CombinedPredictor
from service.inference.predictors import make_predictor
from service.vocabulary.candidates import NAME_FEATURES
from service.vocabulary.concepts import Concepts, read_concepts
from service.vocabulary.featurizers import featurizer_of
from service.vocabulary.matching import NameMatcher
from service.vocabulary.names import build_names as build_name_arrays
from service.vocabulary.words import NameParameters, WordFrequencies, count_words
from service.workflows.labelled import Labelled, OnProgress, labelled_dataset, no_progress
from service.workflows.near_rows import near_of, near_or_not
from service.workflows.ranker import (
    BOOSTED_ROWS,
    ROWS_MIN,
    Candidates,
    best_of,
    candidates_of,
    fit_ranker,
    rank_by_folds,
    ranking_figures,
)

RANKERS = ("auto", "boosted", "linear")
_LEFT_OUT = (REPORT, ORIGIN, MADE_FOR)
"""Arrays of a member that tell of it, and are of no use to answer."""


@dataclass(frozen=True)
class CombineRequest:
    """What to combine, and how.

    members     names and references of versions in the store
    data        labelled rows that no member was trained on
    vocabulary  a file of concepts, whose names are found in texts; None: no names are
    language    of the names; None: all
    by          what labels are: "uri", "notation", or a language, in which they are the names
    candidates  labels of each member that are ranked; beam_width: of the members' searches
    rerank      the rows that the first member was trained on: near ones rank candidates, if that gains
    ranker      one of RANKERS; "auto": boosted trees from BOOSTED_ROWS rows on
    origin, latest, made_for  as in TrainRequest
    """

    members: Sequence[tuple[str, str | int]]
    data: Path
    vocabulary: Path | None = None
    language: str | None = None
    by: str = URI
    candidates: int = 100
    beam_width: int = 10
    ranker: str = "auto"
    rerank: Path | None = None
    columns: TableColumns = DEFAULT_COLUMNS
    seed: int = 0
    threads: int = 1
    origin: Mapping[str, Any] = field(default_factory=dict)
    latest: bool = True
    made_for: str | None = None


class Combined(NamedTuple):
    """What can be published, and what is told of it.

    report  by folds of the rows: "members", the figures of each alone, and "combined"; "folds", "rows",
            "ranker"; "warnings"
    """

    draft: Draft
    report: dict[str, Any]


def combine_and_publish(
    store: Store, model: str, request: CombineRequest, on_progress: OnProgress = no_progress
) -> dict[str, Any]:
    """Publish the combination of versions of a store as a model's next version; return what is told of it.

    Raises BadInput for members or rows that cannot be combined, and StoreError.
    """
    check_model(model)
    store.prepare()
    members = [store.open(name, reference) for name, reference in request.members]
    made = combine_members(members, request, on_progress)
    files = {}
    for number, member in enumerate(members):
        files.update(_files_of(store, member, member_prefix(number)))
    origin = {"members": [parent_of(member.manifest) for member in members], **request.origin}
    extra = {**made.draft.extra, ORIGIN: origin_array(origin)}
    if request.made_for is not None:
        extra[MADE_FOR] = made_for_array(request.made_for)
    on_progress("publish", 0, 1)
    draft = replace(made.draft, extra=extra, files=files)
    manifest = store.publish(model, draft, latest=request.latest)
    on_progress("publish", 1, 1)
    return {
        "model": model,
        "version": manifest.version,
        "model_bytes": manifest.model_bytes,
        "labels": manifest.n_labels,
        **made.report,
    }


def _files_of(store: Store, member: Model, prefix: str) -> dict[str, StoredArray]:
    """Return where the arrays of a version stand, by their names in a combined version."""
    manifest = member.manifest
    return {
        f"{prefix}{name}": StoredArray(store.array_path(manifest, name), info)
        for name, info in manifest.arrays.items()
        if name not in _LEFT_OUT
    }


def combine_members(
    members: Sequence[Model], request: CombineRequest, on_progress: OnProgress = no_progress
) -> Combined:
    """Return the combination of opened versions. Raises BadInput. Deterministic."""
    concepts = None
    if request.vocabulary is not None:
        concepts = read_concepts(request.vocabulary, request.language, request.by)
    _check_members(members, request.language, concepts is not None)
    dataset = read_dataset(
        request.data,
        columns=request.columns,
        on_progress=lambda done, total: on_progress("read", done, total),
    )
    return combine_dataset(members, concepts, dataset, request, on_progress)


def combine_dataset(
    members: Sequence[Model],
    concepts: Concepts | None,
    dataset: Dataset,
    request: CombineRequest,
    on_progress: OnProgress = no_progress,
) -> Combined:
    """Do as `combine_members`, with concepts and rows that are at hand."""
    if request.ranker not in RANKERS:
        raise BadParameter(f"ranker: expected one of {', '.join(RANKERS)}, found {request.ranker[:40]!r}")
    if dataset.n_rows < ROWS_MIN:
        raise BadData(
            f"combine: expected at least {ROWS_MIN} labelled rows to fit a ranker to, found {dataset.n_rows}"
        )
    names = None
    if concepts is not None:
        if dataset.texts is None:
            raise BadData("combine: expected texts, in which names of concepts are found, found none")
        parameters = _name_parameters(members, request.language)
        names = Names(concepts, parameters, count_words(dataset.texts, parameters))
    parts = combined_parts(members, names, request.candidates, request.beam_width)
    if request.rerank is not None:
        parts = _with_near(parts, request.rerank, request)
    trial = model_of(parts.draft(no_ranker(parts), request.seed, {}))
    on_progress("features", 0, 1)
    labelled = labelled_dataset(renumbered(dataset, trial.labels), featurizer_of(trial))
    on_progress("features", 1, 1)
    return _fitted(parts, trial, labelled, request, on_progress)


def _with_near(parts: CombinedParts, data: Path, request: CombineRequest) -> CombinedParts:
    """Return the parts with near rows of the file that the first member was trained on. Raises BadInput."""
    dataset, warnings = read_dataset(data, columns=request.columns), list(parts.warnings)
    member = parts.members[0]
    if dataset.sha256 != member.manifest.data.sha256:
        warnings.append(
            f"{data.name}, whose rows rank candidates, is not what {_name(member)} was trained on"
        )
    labels = renumbered(dataset, parts.labels).labels
    return replace(parts, near=near_of(member, dataset, labels, request.seed), warnings=warnings)


def _fitted(
    parts: CombinedParts, trial: Model, labelled: Labelled, request: CombineRequest, on_progress: OnProgress
) -> Combined:
    """Return the combination with a ranker that is fitted to labelled rows of the trial."""
    kind = request.ranker
    if kind == "auto":
        kind = "boosted" if labelled.n_rows >= BOOSTED_ROWS else "linear"
    predictor = make_predictor(trial)
    assert isinstance(predictor, CombinedPredictor) and labelled.source is not None
    found = candidates_of(predictor, labelled, on_progress)
    on_progress("fit", 0, 2)
    margins, reranked = rank_by_folds(kind, found, request.seed), None
    if parts.near:
        found, margins, reranked = near_or_not(kind, found, margins, request.seed)
        parts = parts if reranked["kept"] else replace(parts, near={})
    by_folds = best_of(found, margins)
    on_progress("fit", 1, 2)
    ranker = fit_ranker(kind, found, np.arange(labelled.n_rows), request.seed)
    on_progress("fit", 2, 2)

    def figures(ranked: PredictedRows) -> dict[str, float]:
        return ranking_figures(ranked, labelled.labels, labelled.unknown)

    alone = {_name(member): figures(_of_member(found, i)) for i, member in enumerate(parts.members)}
    report: dict[str, Any] = {"rows": labelled.n_rows, "ranker": kind}
    report |= {"combined": figures(by_folds), "members": alone}
    if reranked is not None:
        report["rerank"] = reranked
    warnings = [*parts.warnings, *_warnings(parts.members, labelled)]
    draft = parts.draft(ranker, request.seed, {"ranker": kind})
    told = {"combined": report, **({"warnings": warnings} if warnings else {})}
    draft = replace(
        draft,
        data=labelled.source._replace(rows=draft.data.rows),
        metrics=report["combined"],
        extra={**draft.extra, REPORT: report_array(told)},
    )
    return Combined(draft, {**report, "warnings": warnings})


@dataclass(frozen=True)
class CombinedParts:
    """A combined version but for its ranker.

    labels   the vocabulary's concepts first, then labels of the members that it lacks
    maps     of each member its labels' ids, NO_LABEL
    near     arrays of near rows; none
    counts   int64[K], training rows of each label; n_rows: all of them, of files that differ
    """

    members: Sequence[Model]
    labels: NameTable
    maps: list[NDArray[np.int32]]
    counts: NDArray[np.int64]
    n_rows: int
    proposing: Proposing
    warnings: list[str]
    name_arrays: Mapping[str, NDArray[Any]]
    name_parameters: NameParameters | None
    near: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def draft(self, ranker: Ranker, seed: int, parameters: Mapping[str, Parameter]) -> Draft:
        """Return what can be published with a ranker; `parameters` are told besides the parts' own."""
        manifests = tuple(member.manifest for member in self.members)
        extra: dict[str, NDArray[Any]] = {LABEL_COUNTS: self.counts}
        extra |= ranker_arrays(ranker, self.proposing, self.maps)
        for number, member in enumerate(self.members):
            kept = {name: array for name, array in member.arrays.items() if name not in _LEFT_OUT}
            extra |= {f"{member_prefix(number)}{name}": array for name, array in kept.items()}
        extra |= {**self.name_arrays, **self.near}
        features: dict[str, Any] = {}
        n_features = CombinedFeaturizer(self.members).n_features
        if self.name_parameters is not None:
            features = self.name_parameters.model_dump(exclude_none=True)
            n_features += NameMatcher(self.name_arrays, self.name_parameters).n_features
        own: dict[str, Parameter] = {
            "members": [_name(member) for member in self.members],
            "candidates": self.proposing.candidates,
            "beam_width": self.proposing.beam_width,
        }
        return Draft(
            kind="combined",
            link="logistic",
            weights=manifests[0].weights,
            n_features=n_features,
            trainer=TrainerInfo("combine", {**own, **parameters}),
            seed=seed,
            data=manifests[0].data._replace(rows=self.n_rows),
            metrics={},
            features={**features, "kind": COMBINED},
            ensemble=no_trees(),
            labels=self.labels,
            extra=extra,
            members=manifests,
        )


class Names(NamedTuple):
    """Concepts, how their names become words, and in how many texts each word stands."""

    concepts: Concepts
    parameters: NameParameters
    frequencies: WordFrequencies


def combined_parts(
    members: Sequence[Model], names: Names | None, candidates: int, beam_width: int
) -> CombinedParts:
    """Return what members and names make together. Raises BadParameter for numbers out of range, BadData."""
    for name, value, most in (
        ("candidates", candidates, CANDIDATES_MAX),
        ("beam_width", beam_width, BEAM_MAX),
    ):
        if not 1 <= value <= most:
            raise BadParameter(f"{name}: expected 1 to {most}, found {value}")
    labels: dict[str, int] = {} if names is None else {key: i for i, key in enumerate(names.concepts.keys)}
    n_concepts, maps, warnings = len(labels), [], []
    for member in members:
        own = all_names(member.labels)
        maps.append(np.array([labels.setdefault(name, len(labels)) for name in own], np.int32))
    n_kept = len(labels) - n_concepts
    if names is not None and n_kept:
        if all(int(labels_of.min()) >= n_concepts for labels_of in maps):
            raise BadData(
                f"vocabulary: expected concepts that are labels of the members, found none of their {n_kept} "
                f"labels, as {list(labels)[n_concepts]!r:.80}: say what labels are with --by, uri, notation "
                "or a language"
            )
        warnings.append(f"{n_kept} labels of the members are no concepts of the vocabulary: they are kept")
    counts, n_rows = _counted(members, maps, len(labels))
    arrays: Mapping[str, NDArray[Any]] = {}
    if names is not None:
        arrays = build_name_arrays(names.concepts.placed(list(labels)), names.parameters, names.frequencies)
    n_named = 0 if names is None else len(NAME_FEATURES)
    proposing = Proposing(candidates, beam_width, n_named, n_concepts)
    table, parameters = build_names(list(labels)), None if names is None else names.parameters
    return CombinedParts(members, table, maps, counts, n_rows, proposing, warnings, arrays, parameters)


def _name_parameters(members: Sequence[Model], language: str | None) -> NameParameters:
    """Return how names become words: as a member's texts do, else by the stems of their language."""
    for member in members:
        said: dict[str, Any] = {
            name: value for name, value in member.manifest.features.items() if name in WORD_FORMS
        }
        if said.get("stem") or said.get("lemmas"):
            return NameParameters(**{name: said[name] for name in said if name != "stop_words"})
    try:
        return NameParameters(stem=None if language is None else language.partition("-")[0])
    except BadParameter:  # there is no stemmer of that language
        return NameParameters()


def _counted(
    members: Sequence[Model], maps: Sequence[NDArray[np.int32]], n_labels: int
) -> tuple[NDArray[np.int64], int]:
    """Return the training rows of each label, int64[n_labels], and of all; a file counts once."""
    counts, n_rows = np.zeros(n_labels, np.int64), 0
    seen = set()
    for member, labels in zip(members, maps, strict=True):
        data = member.manifest.data
        if data.sha256 in seen or LABEL_COUNTS not in member.arrays:
            continue
        seen.add(data.sha256)
        n_rows += data.rows
        is_there = labels != NO_LABEL
        counts[labels[is_there]] += member.arrays[LABEL_COUNTS][is_there]
    return counts, n_rows


def no_ranker(parts: CombinedParts) -> Ranker:
    """Return a ranker for which all candidates are equal: what serves until one is fitted."""
    ids, numbers = np.empty(0, np.int32), np.empty(0, np.float32)
    n_features = candidate_features(len(parts.members), parts.proposing) + near_features(parts.near)
    linear = np.zeros(n_features + 1, np.float32)
    return Ranker(linear, np.zeros(1, np.int32), ids, numbers, ids, numbers)


def renumbered(dataset: Dataset, table: NameTable) -> Dataset:
    """Return labelled rows whose labels have the ids of a table; those that it lacks are unknown ones."""
    rows = dataset.labels
    names = dataset.label_names or [str(i) for i in range(rows.n_labels)]
    ids = find_all(table, names)
    found = ids[rows.indices]
    is_known = found >= 0
    row = np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))
    order = np.lexsort((found[is_known], row[is_known]))
    labels = LabelRows(offsets(is_known)[rows.indptr], found[is_known][order], table.n_names)
    unknown = np.bincount(row[~is_known], minlength=rows.n_rows).astype(np.int32)
    unknown_names = [names[i] for i in np.flatnonzero(ids < 0).tolist()]
    return replace(
        dataset, labels=labels, unknown_labels=unknown, unknown_names=unknown_names, label_names=None
    )


def _of_member(found: Candidates, number: int) -> PredictedRows:
    """Return the ranking of a member alone."""
    own = found.features[:, len(MEMBER_FEATURES) * number :]
    is_own = own[:, 2] > 0
    rows = np.repeat(np.arange(len(found.ptr) - 1), np.diff(found.ptr))[is_own]
    ptr = offsets(np.bincount(rows, minlength=len(found.ptr) - 1))
    part = Candidates(ptr, found.labels[is_own], found.features[is_own], found.are_true[is_own])
    return best_of(part, -own[is_own, 1].astype(np.float64))


def _name(member: Model) -> str:
    return f"{member.manifest.model}@{member.manifest.version}"


def _check_members(members: Sequence[Model], language: str | None, has_names: bool) -> None:
    """Raise BadParameter for versions that cannot be combined."""
    if not 1 <= len(members) <= MEMBERS_MAX:
        raise BadParameter(f"member: expected 1 to {MEMBERS_MAX} of them, found {len(members)}")
    for member in members:
        manifest = member.manifest
        if manifest.kind == COMBINED:
            raise BadParameter(
                f"member {_name(member)}: expected a version of trees, found a combined one: "
                "name its members instead"
            )
        if manifest.features["kind"] == ContextParameters.kind:
            raise BadParameter(
                f"member {_name(member)}: expected a version that labels instances, found one that predicts "
                "the next word"
            )
        for name in WORD_FORMS:
            found = manifest.features.get(name)
            if str(found).endswith(FILE_SUFFIX):
                continue
            if language is not None and found not in (None, language, language.partition("-")[0]):
                raise BadParameter(
                    f"member {_name(member)}: expected words of {language}, found features.{name} of {found}"
                )
    if has_names or len(CombinedFeaturizer(members).blocks) > 1:
        for member in members:
            if member.manifest.features["kind"] in (RawParameters.kind, NamedParameters.kind):
                raise BadParameter(
                    f"member {_name(member)}: expected one that takes texts, or members whose features are "
                    f"all the same, found features of kind {member.manifest.features['kind']}"
                )


def _warnings(members: Sequence[Model], labelled: Labelled) -> list[str]:
    """Return what may be wrong with the rows that the ranker is fitted to."""
    assert labelled.source is not None
    found = [
        f"{_name(member)} was trained on these rows: its scores are better there than elsewhere, and the "
        "ranker trusts it too much"
        for member in members
        if member.manifest.data.sha256 == labelled.source.sha256
    ]
    if n_unknown := len(labelled.unknown_names):
        found.append(
            f"{n_unknown} labels of the rows are labels of no member, as {labelled.unknown_names[0]!r:.80}: "
            "they count as missed"
        )
    return found
