"""A version of feature ids becomes one that takes texts: its rows are made as a vectorizer made them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.bits import n_groups
from model_store.embedding import EMBEDDING
from model_store.ensemble import TreeEnsemble
from model_store.manifest import Manifest
from model_store.origin import MADE_FOR, ORIGIN, origin_array, parent_of
from model_store.store import Store
from model_store.version import Draft, Model
from service.base.errors import BadModel
from service.features import Featurizer
from service.features.chars import CharsFeaturizer, WeightedNames, no_names
from service.features.parameters import CharsParameters, Norm, RawParameters, TfidfParameters, parameters_of
from service.features.tfidf import TfidfFeaturizer
from service.features.word_forms import forms_of_list
from service.importers.vectorizer import SavedVectorizer

_OWN = ("ensemble/", "labels/offsets", "labels/utf8", "labels/slots")
"""Arrays that a draft has by itself."""

STOP_WORDS = "scikit-learn.txt"
"""What the manifest calls a vectorizer's stop words; the version has them."""


def publish_with_texts(store: Store, name: str, version: int, vectorizer: SavedVectorizer) -> Manifest:
    """Publish a version that answers texts as the given one answers the rows that the vectorizer makes.

    Raises BadModel where the version does not take feature ids, or has more features than there are terms;
    StoreError when it cannot be published.
    """
    return store.publish(name, text_draft(store.open(name, version), vectorizer))


def text_draft(model: Model, vectorizer: SavedVectorizer) -> Draft:
    """Return a version's draft with the vectorizer's features in place of ids. Raises BadModel."""
    manifest, (file, sha256) = model.manifest, vectorizer.source
    place = f"{manifest.model}@{manifest.version}"
    if manifest.features.get("kind") != RawParameters.kind:
        raise BadModel(
            f"{place}: expected a version that takes feature ids, found {manifest.features['kind']}"
        )
    trained = parameters_of(manifest.features)
    featurizer = featurizer_of(vectorizer, trained.norm)
    more = featurizer.n_features - manifest.n_features
    if more < 0 or (more and any(array.startswith(f"{EMBEDDING}/") for array in model.arrays)):
        raise BadModel(
            f"{file}: expected the vocabulary of the {manifest.n_features} features of {place}, found "
            f"{featurizer.n_features} terms (was the matrix stacked with others, or written with ids from 1?)"
        )
    kept = {
        key: array
        for key, array in model.arrays.items()
        if not key.startswith(_OWN) and key not in (MADE_FOR, ORIGIN)
    }
    origin = {"parent": parent_of(manifest), "vectorizer": {"file": file, "sha256": sha256}}
    return Draft(
        kind=manifest.kind,
        link=manifest.link,
        weights=manifest.weights,
        n_features=featurizer.n_features,
        trainer=manifest.trainer,
        seed=manifest.seed,
        data=manifest.data,
        metrics=manifest.metrics,
        features=featurizer.config(),
        ensemble=widened(model.ensemble, featurizer.n_features) if more else model.ensemble,
        labels=model.labels,
        extra={**kept, **featurizer.arrays(), ORIGIN: origin_array(origin)},
    )


def featurizer_of(vectorizer: SavedVectorizer, trained_norm: Norm) -> Featurizer:
    """Return what makes rows of texts as the vectorizer does, then scales them as rows were in training."""
    config = vectorizer.parameters.model_dump()
    norm = config["norm"] if trained_norm == "none" else trained_norm
    if vectorizer.stop_words:
        config["stop_words"] = STOP_WORDS
    parameters = parameters_of({"kind": vectorizer.parameters.kind, **config, "norm": norm})
    if isinstance(parameters, CharsParameters):
        return CharsFeaturizer(parameters, no_names(), WeightedNames(vectorizer.names, vectorizer.idf))
    assert isinstance(parameters, TfidfParameters)
    forms = forms_of_list(parameters, vectorizer.stop_words) if vectorizer.stop_words else None
    return TfidfFeaturizer(parameters, vectorizer.names, vectorizer.idf, forms)


def widened(ensemble: TreeEnsemble, n_features: int) -> TreeEnsemble:
    """Return an ensemble whose rows may have features up to n_features - 1: no node has a weight there."""
    directory = ensemble.directory
    more = n_groups(n_features) - directory.shape[1]
    added: NDArray[np.uint32] = np.zeros((len(directory), more, 2), np.uint32)
    added[:, :, 1] = np.diff(ensemble.block_ptr)[:, None]  # all of a chunk's blocks stand before them
    return ensemble._replace(directory=np.concatenate([directory, added], axis=1))
