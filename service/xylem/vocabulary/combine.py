"""`xylem combine`: make one version of several versions and of names of concepts.

A ranker, fitted to labelled rows, orders the labels that the members and the names propose.

Source of the idea: Annif's fusion backends (Suominen, Inkinen and Lehtinen 2022, "Annif and Finto
AI"), and re-ranking of candidates by boosted trees (Burges 2010, "From RankNet to LambdaRank to
LambdaMART", section 7; here each candidate is fitted by itself).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xylem.base import (
    DEFAULT_COLUMNS,
    BadData,
    BadParameter,
    DataReport,
    Dataset,
    OnProgress,
    TableColumns,
    TextFields,
    no_progress,
    offsets,
    one_step,
)
from xylem.datasets import read_dataset, renumbered
from xylem.engine import CombinedFeaturizer, CombinedPredictor, make_predictor
from xylem.evaluation import Labelled, PredictedRows, labelled_dataset, rows_of
from xylem.vocabulary.beams import BEAMS, MeasuredBeam, measure_beams, with_beam
from xylem.vocabulary.combined import (
    CombinedParts,
    NamesToMatch,
    check_members,
    combined_parts,
    name_parameters_for,
)
from xylem.vocabulary.concepts import Concepts, read_concepts
from xylem.vocabulary.featurizers import featurizer_of
from xylem.vocabulary.folds import PartTrainer, candidates_by_folds, seen_rows
from xylem.vocabulary.label_info import note_without_concept, read_label_info
from xylem.vocabulary.names import count_words
from xylem.vocabulary.near_rows import near_of, near_or_not
from xylem.vocabulary.ranker import (
    BOOSTED_ROWS,
    ROWS_MIN,
    Candidates,
    best_of,
    candidates_of,
    fit_ranker,
    rank_by_folds,
    ranking_figures,
)
from xylem_store import (
    MEMBER_FEATURES,
    REPORT,
    URI,
    Draft,
    Model,
    Parameter,
    Store,
    check_model,
    json_array,
    member_prefix,
    origin_arrays,
    parent_of,
)

RANKERS = ("auto", "boosted", "linear")


@dataclass(frozen=True)
class CombineRequest:
    """A request to combine versions: what to combine, and how.

    members     names and references of versions in the store
    data        labelled rows that no member was trained on
    vocabulary  a file of concepts whose names are searched for in texts; None: there are no names
    language    of the names; None: all
    first_name  whether the first of two prefLabels of SKOS in a language is the name
    key_kind    what labels are: "uri", "notation", or a language, in which they are the names
    candidates  number of labels of each member that are ranked
    beam_width  of the members' searches; None: chosen on the labelled rows, as `measure_beams` says
    ranker      one of RANKERS; "auto": boosted trees from BOOSTED_ROWS rows on
    rerank      the rows that the first member was trained on: near rows help to rank candidates, if
                that gains
    trainer_of  returns what trains a member by folds of the rows, as it was trained on them; None
                for a member that has seen none. None: no member is trained again
    origin, latest, made_for  as in TrainRequest
    """

    members: Sequence[tuple[str, str | int]]
    data: Path
    vocabulary: Path | None = None
    language: str | None = None
    first_name: bool = False
    key_kind: str = URI
    candidates: int = 50
    beam_width: int | None = None
    ranker: str = "auto"
    rerank: Path | None = None
    trainer_of: Callable[[Model, Dataset], PartTrainer | None] | None = None
    columns: TableColumns = DEFAULT_COLUMNS
    seed: int = 0
    origin: Mapping[str, Any] = field(default_factory=dict)
    latest: bool = True
    made_for: str | None = None


def combine_and_publish(
    store: Store, model: str, request: CombineRequest, on_progress: OnProgress = no_progress
) -> dict[str, Any]:
    """Publish the combination of versions of a store as a model's next version; return a report.

    The vocabulary becomes the model's label info if the model has none.

    Raises BadInput for members or rows that cannot be combined, and StoreError.
    """
    check_model(model)
    store.prepare()
    info = (
        read_label_info(
            request.vocabulary, request.key_kind, request.language, first_name=request.first_name
        )
        if request.vocabulary is not None and store.label_info(model) is None
        else None
    )
    members = [store.open(name, reference) for name, reference in request.members]
    concepts, dataset, trained_on = _read(members, request, on_progress)
    draft, report = combine_dataset(
        members, concepts, dataset, trained_on, request, on_progress, store
    )
    files = {
        name: file
        for number, member in enumerate(members)
        for name, file in store.files_of(member, draft.extra, member_prefix(number)).items()
    }
    origin = {"members": [parent_of(member.manifest) for member in members], **request.origin}
    draft = replace(
        draft, extra={**draft.extra, **origin_arrays(origin, request.made_for)}, files=files
    )
    with one_step(on_progress, "publish"):
        manifest = store.publish(model, draft, latest=request.latest)
        if info is not None:
            store.put_label_info(model, info)
    return {
        "model": model,
        "version": manifest.version,
        "model_bytes": manifest.model_bytes,
        "labels": manifest.n_labels,
        **report,
    }


def unranked_version(members: Sequence[Model], request: CombineRequest) -> Model:
    """Return the combination of opened versions, before a ranker is fitted: all candidates equal.

    The members that the request names are ignored, because they are passed directly. Raises
    BadInput.
    """
    return unranked_parts(members, *_read(members, request), request).unranked(request.seed)


def _read(
    members: Sequence[Model], request: CombineRequest, on_progress: OnProgress = no_progress
) -> tuple[Concepts | None, Dataset, Dataset | None]:
    """Return the concepts, the rows, and the first member's rows of a request.

    Raises BadInput for these files, and for members that cannot be combined.
    """
    concepts = (
        None
        if request.vocabulary is None
        else read_concepts(
            request.vocabulary, request.language, request.key_kind, first_name=request.first_name
        )
    )
    check_members(members, request.language, concepts is not None)
    columns = request.columns
    for member in reversed(members):  # those of the first one that has fields are read
        columns = columns.for_version(TextFields.of_options(member.manifest.fields))
    dataset = read_dataset(request.data, columns=columns, on_progress=partial(on_progress, "read"))
    return (
        concepts,
        dataset,
        None if request.rerank is None else read_dataset(request.rerank, columns=columns),
    )


def combine_dataset(
    members: Sequence[Model],
    concepts: Concepts | None,
    dataset: Dataset,
    trained_on: Dataset | None,
    request: CombineRequest,
    on_progress: OnProgress = no_progress,
    store: Store | None = None,
) -> tuple[Draft, dict[str, Any]]:
    """Return the combination of opened versions as a draft, which can be published, and a report.

    The report has "members", the figures of each member alone, and "combined", both by folds of the
    rows; "rows", "ranker", "warnings"; "beam_width", and, if it was chosen, "beams": what each
    measured one is worth ("f1_at_5"), and its time ("us_per_row"), which a version does not keep.
    The files that the request names are ignored, because concepts and rows are passed directly.

    Rows that a member was trained on are left out, unless the request has a trainer of that member,
    or too few others are left: then the report warns that the figures are too good.

    trained_on  the rows that the first member was trained on: near rows help to rank candidates, if
                that gains
    store       keeps the vectors of texts that members encode, as those of trainings

    Raises BadInput. Deterministic.
    """
    if request.ranker not in RANKERS:
        raise BadParameter(
            f"ranker: expected one of {', '.join(RANKERS)}, found {request.ranker[:40]!r}"
        )
    if dataset.n_rows < ROWS_MIN:
        raise BadData(
            f"combine: expected at least {ROWS_MIN} labelled rows to fit a ranker to, found "
            f"{dataset.n_rows}"
        )
    dataset.labels.refuse_weights("combine")
    check_members(members, request.language, concepts is not None)
    trainers = [
        None if request.trainer_of is None else request.trainer_of(member, dataset)
        for member in members
    ]
    if request.trainer_of is not None and not any(trainers):
        raise BadParameter(
            f"folds: expected a member that was trained on {dataset.source}, found none"
        )
    with ExitStack() as stack:
        for encoder in CombinedFeaturizer(members).encoders:
            texts = filter(None, (dataset, trained_on))
            stack.enter_context(encoder.remembering(texts, on_progress, store))
        dataset, warnings = _unseen(
            [member for member, train in zip(members, trainers, strict=True) if train is None],
            dataset,
        )
        is_boosted = dataset.n_rows >= BOOSTED_ROWS
        kind = (
            ("boosted" if is_boosted else "linear") if request.ranker == "auto" else request.ranker
        )
        parts = unranked_parts(members, concepts, dataset, trained_on, request)
        if concepts is not None and dataset.report is not None:
            for finding in concepts.findings:
                dataset.report.note(finding, strict=request.columns.strict)
            known_labels = {*concepts.keys, *concepts.retired}
            note_without_concept(
                dataset.report,
                [name for name in dataset.names if name not in known_labels],
                len(dataset.names),
                strict=request.columns.strict,
            )
        warnings = [*parts.warnings, *warnings]
        beams: list[MeasuredBeam] = []
        candidates = None
        if any(trainers):
            folded = candidates_by_folds(
                dataset,
                members,
                trainers,
                lambda models, training: unranked_parts(
                    models,
                    concepts,
                    training,
                    trained_on and (trained_on if trainers[0] is None else training),
                    request,
                ),
                parts.labels,
                kind=kind if request.beam_width is None else None,
                seed=request.seed,
                on_progress=on_progress,
            )
            candidates = folded.candidates
            beams = folded.beams
            dataset = dataset.take(folded.rows)
        trial = parts.unranked(request.seed)
        with one_step(on_progress, "features"):
            labelled = labelled_dataset(renumbered(dataset, trial.labels), featurizer_of(trial))
        if request.beam_width is None:
            beams = beams or measure_beams(parts, labelled, kind, request.seed, on_progress)
            parts = with_beam(parts, beams[-1].beam_width)
        if candidates is None:
            predictor = make_predictor(parts.unranked(request.seed))
            assert isinstance(predictor, CombinedPredictor)
            candidates = candidates_of(predictor, labelled, on_progress)
        parts = replace(parts, warnings=warnings)
        draft, report = _fit_combination(parts, candidates, labelled, kind, request, on_progress)
        return draft, {
            **report,
            "beam_width": parts.proposing.beam_width,
            "beams": [beam._asdict() for beam in beams],
        }


def _unseen(members: Sequence[Model], dataset: Dataset) -> tuple[Dataset, list[str]]:
    """Return the rows that no member was trained on, and a warning for each that has seen some.

    If fewer than ROWS_MIN are left, all rows are returned.
    """
    is_seen = np.zeros(dataset.n_rows, np.bool_)
    counts: dict[str, int] = {}
    for member in members:
        seen = seen_rows(member, dataset)
        is_seen |= seen
        if seen.any():
            counts[member.manifest.full_name] = int(seen.sum())
    unseen = np.flatnonzero(~is_seen)
    consequence = "they are left out"
    if len(unseen) >= ROWS_MIN:
        dataset = dataset.take(unseen)
    else:
        consequence = (
            f"fewer than {ROWS_MIN} others are left, so these figures are better than those of "
            "later rows, and the ranker trusts it too much: give other rows, or --folds"
        )
    return dataset, [
        f"{name} was trained on {n:,} of the {len(is_seen):,} rows: {consequence}"
        for name, n in counts.items()
    ]


def unranked_parts(
    members: Sequence[Model],
    concepts: Concepts | None,
    dataset: Dataset,
    trained_on: Dataset | None,
    request: CombineRequest,
) -> CombinedParts:
    """Return the parts of a combination before a ranker is fitted, as `combine_dataset` takes them.

    dataset  its texts tell how frequent words are

    Raises BadInput.
    """
    names = None
    if concepts is not None:
        if dataset.texts is None:
            raise BadData(
                "combine: expected texts to look for names of concepts in, found other instances"
            )
        parameters = name_parameters_for(members, request.language)
        names = NamesToMatch(concepts, parameters, count_words(dataset.texts, parameters))
    beam_width = BEAMS[0] if request.beam_width is None else request.beam_width
    parts = combined_parts(members, names, request.candidates, beam_width)
    if trained_on is not None:
        parts = replace(
            parts,
            near=near_of(
                members[0], trained_on, renumbered(trained_on, parts.labels).labels, request.seed
            ),
        )
        if trained_on.sha256 != members[0].manifest.data.sha256:
            warning = (
                f"{trained_on.source}, whose rows rank candidates, is not what "
                f"{members[0].manifest.full_name} was trained on"
            )
            parts = replace(parts, warnings=[*parts.warnings, warning])
    return parts


def _fit_combination(
    parts: CombinedParts,
    candidates: Candidates,
    labelled: Labelled,
    kind: str,
    request: CombineRequest,
    on_progress: OnProgress,
) -> tuple[Draft, dict[str, Any]]:
    """Return the combination with a ranker of a kind, fitted to candidates, and a report."""
    assert labelled.source is not None
    on_progress("fit", 0, 2)
    margins = rank_by_folds(kind, candidates, request.seed)
    reranked = None
    if parts.near:
        candidates, margins, reranked = near_or_not(kind, candidates, margins, request.seed)
        parts = parts if reranked["kept"] else replace(parts, near={})
    by_folds = best_of(candidates, margins)
    on_progress("fit", 1, 2)
    ranker = fit_ranker(kind, candidates, np.arange(labelled.n_rows), request.seed)
    on_progress("fit", 2, 2)

    def figures(ranked: PredictedRows) -> dict[str, float]:
        return ranking_figures(ranked, labelled.labels, labelled.unknown)

    alone = {
        member.manifest.full_name: figures(_member_ranking(candidates, i))
        for i, member in enumerate(parts.members)
    }
    report: dict[str, Any] = {"rows": labelled.n_rows, "ranker": kind}
    report |= {"combined": figures(by_folds), "members": alone}
    if reranked is not None:
        report["rerank"] = reranked
    warnings = list(parts.warnings)
    if n_unknown := len(labelled.unknown_names):
        warnings.append(
            f"no member has {n_unknown} of the labels of the rows, as "
            f"{labelled.unknown_names[0]!r:.80}: each counts as missed"
        )
    parameters: dict[str, Parameter] = {"ranker": kind}
    if parts.name_parameters is not None:
        parameters |= {"by": request.key_kind, "language": request.language or ""}
    draft = parts.draft(ranker, request.seed, parameters)
    stored_report = {
        "combined": report,
        **({"warnings": warnings} if warnings else {}),
        **DataReport.result_of([labelled.report]),
    }
    draft = replace(
        draft,
        data=labelled.source._replace(rows=draft.data.rows),
        metrics=report["combined"],
        extra={**draft.extra, REPORT: json_array(REPORT, stored_report)},
    )
    return draft, {**report, "warnings": warnings}


def _member_ranking(candidates: Candidates, number: int) -> PredictedRows:
    member_features = candidates.features[:, len(MEMBER_FEATURES) * number :]
    is_proposed = member_features[:, 2] > 0
    ptr = offsets(
        np.bincount(rows_of(candidates.ptr)[is_proposed], minlength=len(candidates.ptr) - 1)
    )
    return best_of(
        Candidates(
            ptr,
            candidates.labels[is_proposed],
            candidates.features[is_proposed],
            candidates.are_true[is_proposed],
        ),
        -member_features[is_proposed, 1].astype(np.float64),
    )
