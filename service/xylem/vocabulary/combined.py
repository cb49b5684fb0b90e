"""The parts of a combined version but for its ranker: members, labels, names of concepts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadData, BadParameter
from xylem.engine import (
    FILE_SUFFIX,
    WORD_FORMS,
    CombinedFeaturizer,
    ContextParameters,
    NamedParameters,
    RawParameters,
    as_config,
)
from xylem.vocabulary.candidates import NAME_FEATURES
from xylem.vocabulary.concepts import Concepts
from xylem.vocabulary.matching import NameMatcher
from xylem.vocabulary.names import NameParameters, WordFrequencies, build_names as build_name_arrays
from xylem_store import (
    BEAM_MAX,
    CANDIDATES_MAX,
    COMBINED,
    I32,
    I64,
    LABEL_COUNTS,
    MADE_FOR,
    MEMBERS_MAX,
    NO_LABEL,
    Draft,
    Model,
    NameTable,
    Parameter,
    Proposing,
    Ranker,
    TrainerInfo,
    all_names,
    build_names,
    candidate_features,
    member_prefix,
    model_of,
    near_features,
    no_trees,
    ranker_arrays,
)


@dataclass(frozen=True)
class CombinedParts:
    """A combined version without its ranker.

    labels   the vocabulary's concepts, then the labels of the members that it lacks
    maps     for each member the ids of its labels here, NO_LABEL for those left out
    near     arrays of near rows; empty if there are none
    counts   int64[K], training rows of each label
    n_rows   number of training rows of all members; a file counts once
    """

    members: Sequence[Model]
    labels: NameTable
    maps: list[I32]
    counts: I64
    n_rows: int
    proposing: Proposing
    warnings: list[str]
    name_arrays: Mapping[str, NDArray[Any]]
    name_parameters: NameParameters | None
    near: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def draft(self, ranker: Ranker, seed: int, parameters: Mapping[str, Parameter]) -> Draft:
        """Return a draft with a ranker, which can be published.

        parameters  recorded as the trainer's, besides those of the parts
        """
        manifests = tuple(member.manifest for member in self.members)
        extra: dict[str, NDArray[Any]] = {LABEL_COUNTS: self.counts}
        extra |= ranker_arrays(ranker, self.proposing, self.maps)
        for number, member in enumerate(self.members):
            member_arrays = {
                name: array for name, array in member.arrays.items() if name != MADE_FOR
            }
            extra |= {
                f"{member_prefix(number)}{name}": array for name, array in member_arrays.items()
            }
        extra |= {**self.name_arrays, **self.near}
        features: dict[str, Any] = {}
        n_features = CombinedFeaturizer(self.members).n_features
        if self.name_parameters is not None:
            features = as_config(self.name_parameters)
            n_features += NameMatcher(self.name_arrays, self.name_parameters).n_features
        settings: dict[str, Parameter] = {
            "members": [member.manifest.full_name for member in self.members],
            "candidates": self.proposing.candidates,
            "beam_width": self.proposing.beam_width,
        }
        return Draft(
            kind="combined",
            link="logistic",
            weights=manifests[0].weights,
            n_features=n_features,
            trainer=TrainerInfo("combine", {**settings, **parameters}),
            seed=seed,
            data=manifests[0].data._replace(rows=self.n_rows),
            metrics={},
            features={**features, "kind": COMBINED},
            ensemble=no_trees(),
            labels=self.labels,
            extra=extra,
            members=manifests,
        )

    def unranked(self, seed: int) -> Model:
        """Return the combined version with a ranker that ranks all candidates equal."""
        return model_of(self.draft(no_ranker(self), seed, {}))


class NamesToMatch(NamedTuple):
    """Concepts, how their names become words, and in how many texts each word stands."""

    concepts: Concepts
    parameters: NameParameters
    frequencies: WordFrequencies


def combined_parts(
    members: Sequence[Model], names: NamesToMatch | None, candidates: int, beam_width: int
) -> CombinedParts:
    """Return the parts of the combination of members and names.

    Raises BadParameter for numbers out of range, and BadData.
    """
    for name, value, limit in (
        ("candidates", candidates, CANDIDATES_MAX),
        ("beam_width", beam_width, BEAM_MAX),
    ):
        if type(value) is not int or not 1 <= value <= limit:
            raise BadParameter(f"{name}: expected 1 to {limit}, found {value!r:.40}")
    labels: dict[str, int] = (
        {} if names is None else {key: i for i, key in enumerate(names.concepts.keys)}
    )
    retired = frozenset() if names is None else names.concepts.retired
    n_concepts = len(labels)
    maps = []
    warnings = []
    for member in members:
        ids = [
            NO_LABEL if name in retired else labels.setdefault(name, len(labels))
            for name in all_names(member.labels)
        ]
        maps.append(np.array(ids, np.int32))
    n_kept = len(labels) - n_concepts
    if names is not None and n_kept:
        if not any(((of_member >= 0) & (of_member < n_concepts)).any() for of_member in maps):
            raise BadData(
                "vocabulary: expected concepts that are labels of the members, found none of "
                f"their {n_kept} labels, as {list(labels)[n_concepts]!r:.80}: say what labels are "
                "with --by, uri, notation or a language"
            )
        warnings.append(f"the vocabulary lacks {n_kept} of the members' labels: they are kept")
    n_retired = sum(int((of_member == NO_LABEL).sum()) for of_member in maps)
    if n_retired:
        warnings.append(
            f"{n_retired} of the members' labels are deprecated concepts: they are left out"
        )
    counts, n_rows = training_counts(members, maps, len(labels))
    arrays = dict[str, NDArray[Any]]()
    parameters = None
    n_named = 0
    if names is not None:
        parameters = names.parameters
        n_named = len(NAME_FEATURES)
        arrays = build_name_arrays(
            names.concepts.placed(list(labels)), parameters, names.frequencies
        )
    proposing = Proposing(candidates, beam_width, n_named, n_concepts)
    return CombinedParts(
        members=members,
        labels=build_names(list(labels)),
        maps=maps,
        counts=counts,
        n_rows=n_rows,
        proposing=proposing,
        warnings=warnings,
        name_arrays=arrays,
        name_parameters=parameters,
    )


def name_parameters_for(members: Sequence[Model], language: str | None) -> NameParameters:
    """Return how names become words: as a member's texts do, else by stems of their language."""
    for member in members:
        word_forms: dict[str, Any] = {
            name: value for name, value in member.manifest.features.items() if name in WORD_FORMS
        }
        if word_forms.get("stem") or word_forms.get("lemmas"):
            return NameParameters(
                **{name: word_forms[name] for name in word_forms if name != "stop_words"}
            )
    try:
        return NameParameters(stem=None if language is None else language.partition("-")[0])
    except BadParameter:  # there is no stemmer of that language
        return NameParameters()


def training_counts(
    members: Sequence[Model], maps: Sequence[I32], n_labels: int
) -> tuple[I64, int]:
    """Return the number of training rows of each label, int64[n_labels], and of all labels.

    A file that several members were trained on counts once.
    """
    counts = np.zeros(n_labels, np.int64)
    n_rows = 0
    counted_digests = set()
    for member, labels in zip(members, maps, strict=True):
        data = member.manifest.data
        if data.sha256 in counted_digests or LABEL_COUNTS not in member.arrays:
            continue
        counted_digests.add(data.sha256)
        n_rows += data.rows
        is_there = labels != NO_LABEL
        counts[labels[is_there]] += member.arrays[LABEL_COUNTS][is_there]
    return counts, n_rows


def no_ranker(parts: CombinedParts) -> Ranker:
    """Return a ranker that ranks all candidates equal; it is used until one is fitted."""
    ids = np.empty(0, np.int32)
    numbers = np.empty(0, np.float32)
    n_features = candidate_features(len(parts.members), parts.proposing) + near_features(parts.near)
    linear = np.zeros(n_features + 1, np.float32)
    return Ranker(
        linear=linear,
        tree_ptr=np.zeros(1, np.int32),
        feature=ids,
        threshold=numbers,
        child=ids,
        value=numbers,
    )


def check_members(members: Sequence[Model], language: str | None, has_names: bool) -> None:
    """Raise BadParameter for versions that cannot be combined."""
    if not 1 <= len(members) <= MEMBERS_MAX:
        raise BadParameter(f"member: expected 1 to {MEMBERS_MAX} of them, found {len(members)}")
    names = [member.manifest.full_name for member in members]
    for number, member in enumerate(members):
        manifest = member.manifest
        subject = f"member {names[number]}"
        if names[number] in names[:number]:
            raise BadParameter(f"{subject}: expected each version once, found it twice")
        if manifest.kind == COMBINED:
            raise BadParameter(
                f"{subject}: expected a version of trees, found a combined one: name its "
                "members instead"
            )
        if manifest.features["kind"] == ContextParameters.kind:
            raise BadParameter(
                f"{subject}: expected a version that labels instances, found one that predicts "
                "the next word"
            )
        for name in WORD_FORMS:
            setting = manifest.features.get(name)
            if str(setting).endswith(FILE_SUFFIX):
                continue
            if language is not None and setting not in (None, language, language.partition("-")[0]):
                raise BadParameter(
                    f"{subject}: expected words of {language}, found features.{name} of {setting}"
                )
    if has_names or len(CombinedFeaturizer(members).blocks) > 1:
        for member in members:
            if member.manifest.features["kind"] in (RawParameters.kind, NamedParameters.kind):
                raise BadParameter(
                    f"member {member.manifest.full_name}: expected one that takes texts, or "
                    "members whose features are all the same, found features of kind "
                    f"{member.manifest.features['kind']}"
                )
