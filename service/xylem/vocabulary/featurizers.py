"""The featurizer of an opened version, whatever its kind."""

from typing import Any

from xylem.base import Dataset, SparseRows
from xylem.engine import (
    CombinedFeaturizer,
    Featurizer,
    check_complete,
    load_featurizer,
    members_of,
)
from xylem.vocabulary.candidates import NAME_FEATURES
from xylem.vocabulary.matching import NameMatcher
from xylem.vocabulary.names import NameParameters
from xylem_store import COMBINED, Corrupt, Model, proposing_of


def featurizer_of(model: Model) -> Featurizer:
    """Return the featurizer of an opened version: it makes rows of instances. Raises Corrupt.

    For a combined version of one member without names it is the member's own featurizer.
    """
    manifest = model.manifest
    if manifest.kind != COMBINED:
        return load_featurizer(manifest.features, model.arrays, manifest.n_features)
    combined = CombinedFeaturizer(members_of(model), matcher_of(model))
    if combined.n_features != manifest.n_features:
        raise Corrupt("manifest.json: n_features", f"{combined.n_features}", manifest.n_features)
    return combined.alone or combined


def rows_of_member(member: Model, dataset: Dataset) -> SparseRows:
    """Return the rows of a data set for one of several versions. Raises BadInstance.

    Vectors beside texts are for those of the versions that take vectors.
    """
    featurizer = featurizer_of(member)
    return featurizer.transform_dataset(featurizer.drop_unused_vectors(dataset))


def matcher_of(model: Model) -> NameMatcher | None:
    """Return the matcher of a combined version's names, None if it has no names. Raises Corrupt."""
    n_features = proposing_of(model.arrays).name_features
    if n_features == 0:
        return None
    if n_features != len(NAME_FEATURES):
        raise Corrupt(
            "ranker.proposing.npy[2]",
            f"{len(NAME_FEATURES)} features of names, as this release makes them: combine anew",
            n_features,
        )
    settings: dict[str, Any] = {
        name: value for name, value in model.manifest.features.items() if name != "kind"
    }
    check_complete(settings, NameParameters)
    matcher = NameMatcher(model.arrays, NameParameters(**settings))
    if matcher.n_concepts > model.manifest.n_labels:
        raise Corrupt("names", f"at most {model.manifest.n_labels} concepts", matcher.n_concepts)
    return matcher
