"""Import a model of another library and publish it as a version.

A version that takes feature ids can become one that takes texts, with a vectorizer of scikit-learn.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from xylem.base import BadData, BadModel, BadParameter
from xylem.datasets import read_label_names
from xylem.engine import (
    N_FEATURES_MAX,
    CharsFeaturizer,
    CharsParameters,
    Featurizer,
    Norm,
    RawParameters,
    TfidfFeaturizer,
    TfidfParameters,
    WeightedNames,
    as_config,
    forms_of_list,
    parameters_of,
)
from xylem.extras.importers.files import ModelFiles
from xylem.extras.importers.foreign import Imported
from xylem.extras.importers.libmultilabel import read_libmultilabel
from xylem.extras.importers.napkinxc import read_napkinxc
from xylem.extras.importers.omikuji import read_omikuji
from xylem.extras.importers.pecos import read_pecos
from xylem.extras.importers.vectorizer import SavedVectorizer, read_vectorizer as read_vectorizer
from xylem.workflows import store_as
from xylem_store import (
    EMBEDDING,
    ORIGIN,
    U32,
    WEIGHTS,
    DataInfo,
    Draft,
    Manifest,
    Model,
    NameTable,
    Store,
    TrainerInfo,
    TreeEnsemble,
    build_ensemble,
    build_names,
    check_model,
    draft_of,
    json_array,
    n_groups,
    parent_of,
)

# The function that reads a library's models, by the library's name; it raises BadModel.
IMPORTERS: dict[str, Callable[[ModelFiles], Imported]] = {
    "pecos": read_pecos,
    "omikuji": read_omikuji,
    "napkinxc": read_napkinxc,
    "libmultilabel": read_libmultilabel,
}


# the tables of a model's labels and features may take this many times the bytes of its files
GROWTH_MAX = 64
MODEL_BYTES_LEAST = 1 << 24  # ... but always this many bytes, even if the files are smaller
_LABEL_BYTES = 32  # the most bytes of a label in the tables of a tree


def import_model(
    store: Store,
    system: str,
    path: Path,
    label_names: Path | None = None,
    model: str | None = None,
    n_features: int | None = None,
    weights: str = "float32",
) -> Manifest:
    """Publish the model that a library saved at `path` as a model's next version.

    system       the library, a key of IMPORTERS
    label_names  a file whose line i + 1 is the name of label i; None: labels are named by their ids
    model        the model that gets the version; None: the base name of `path`
    n_features   the number of features of rows; None: that of the files, which may be less, as some
                 libraries write only features that have a weight
    weights      the type that weights are stored in, one of WEIGHTS; they are rounded to it

    Raises BadModel for files that are not such a model, BadData for label names that do not fit the
    model, BadParameter for another system, too few features, or weights that cannot be stored in
    that type, StoreError if the version cannot be published.
    """
    if system not in IMPORTERS:
        raise BadParameter(f"--from: expected one of {', '.join(IMPORTERS)}, found {system!r}")
    if weights not in WEIGHTS:
        raise BadParameter(f"--weights: expected one of {', '.join(WEIGHTS)}, found {weights!r}")
    name = path.resolve().name if model is None else model
    check_model(name)
    files = ModelFiles(path)
    try:
        foreign_model = IMPORTERS[system](files)
    except (MemoryError, RecursionError) as error:
        raise BadModel(
            f"{path}: expected a model that fits the memory, found a larger one"
        ) from error
    if n_features is not None:
        if not foreign_model.n_features <= n_features <= N_FEATURES_MAX:
            raise BadParameter(
                f"--features: expected {foreign_model.n_features}, which {path} has, to "
                f"{N_FEATURES_MAX}, found {n_features}"
            )
        foreign_model = foreign_model._replace(n_features=n_features)
    n_chunks = sum(chunk is not None for tree in foreign_model.trees for chunk in tree.chunks)
    n_bytes = (
        8 * n_chunks * n_groups(foreign_model.n_features)
        + _LABEL_BYTES * len(foreign_model.trees) * foreign_model.n_labels
    )
    # the tables have an entry for each id up to the largest: in a small file, one huge id would
    # take all memory
    if n_bytes > max(MODEL_BYTES_LEAST, GROWTH_MAX * files.n_bytes):
        raise BadModel(
            f"{path}: expected ids that fit {files.n_bytes} bytes of files, "
            f"found {foreign_model.n_labels} labels and {foreign_model.n_features} features "
            f"in {n_chunks} nodes"
        )
    labels = _label_table(foreign_model, path, label_names)
    return store.publish(
        name,
        Draft(
            kind="label-tree",
            link=foreign_model.link,
            weights=weights,
            n_features=foreign_model.n_features,
            trainer=TrainerInfo(f"import-{system}", foreign_model.settings),
            seed=0,
            data=DataInfo(path.resolve().name, 0, files.sha256),
            metrics={},
            features=as_config(RawParameters(norm=foreign_model.norm)),
            ensemble=store_as(
                build_ensemble(foreign_model.trees, labels.n_names, foreign_model.n_features),
                weights,
            ),
            labels=labels,
        ),
    )


def _label_table(foreign_model: Imported, path: Path, label_names: Path | None) -> NameTable:
    """Return the names in a file, or the ids as names. Raises BadData for a wrong number."""
    if label_names is None:
        return build_names(map(str, range(foreign_model.n_labels)))
    names = read_label_names(label_names)
    if len(names) < foreign_model.n_labels or (
        foreign_model.all_labels and len(names) > foreign_model.n_labels
    ):
        least = "" if foreign_model.all_labels else "at least "
        raise BadData(
            f"{label_names}: expected {least}{foreign_model.n_labels} names, "
            f"one for each label of {path}, found {len(names)}"
        )
    return build_names(names)


# The name in the manifest of a vectorizer's stop words, which the version stores.
STOP_WORDS = "scikit-learn.txt"


def text_draft(model: Model, vectorizer: SavedVectorizer) -> Draft:
    """Return a draft that predicts for texts, with a model that was trained on a vectorizer's rows.

    Raises BadModel if the version does not take feature ids, or has more features than the
    vectorizer has terms.
    """
    manifest, (file, sha256) = model.manifest, vectorizer.source
    if manifest.features.get("kind") != RawParameters.kind:
        raise BadModel(
            f"{manifest.full_name}: expected a version that takes feature ids, "
            f"found {manifest.features['kind']}"
        )
    featurizer = featurizer_of(vectorizer, parameters_of(manifest.features).norm)
    n_added = featurizer.n_features - manifest.n_features
    if n_added < 0 or (
        n_added and any(array.startswith(f"{EMBEDDING}/") for array in model.arrays)
    ):
        raise BadModel(
            f"{file}: expected the vocabulary of the {manifest.n_features} features of "
            f"{manifest.full_name}, found {featurizer.n_features} terms (was the matrix stacked "
            "with others, or written with ids from 1?)"
        )
    origin = {"parent": parent_of(manifest), "vectorizer": {"file": file, "sha256": sha256}}
    draft = draft_of(model)
    return replace(
        draft,
        n_features=featurizer.n_features,
        features=featurizer.config(),
        ensemble=widen(model.ensemble, featurizer.n_features) if n_added else model.ensemble,
        extra={**draft.extra, **featurizer.arrays(), ORIGIN: json_array(ORIGIN, origin)},
    )


def featurizer_of(vectorizer: SavedVectorizer, trained_norm: Norm) -> Featurizer:
    """Return a featurizer that makes rows of texts as the vectorizer does.

    trained_norm  how the library scaled these rows in training; "none": only the vectorizer's own
                  norm is used
    """
    config = vectorizer.parameters.model_dump()
    if vectorizer.stop_words:
        config["stop_words"] = STOP_WORDS
    parameters = parameters_of(
        {
            "kind": vectorizer.parameters.kind,
            **config,
            "norm": config["norm"] if trained_norm == "none" else trained_norm,
        }
    )
    if isinstance(parameters, CharsParameters):
        return CharsFeaturizer(parameters, WeightedNames(vectorizer.names, vectorizer.idf))
    assert isinstance(parameters, TfidfParameters)
    return TfidfFeaturizer(
        parameters,
        vectorizer.names,
        vectorizer.idf,
        forms_of_list(parameters, vectorizer.stop_words) if vectorizer.stop_words else None,
    )


def widen(ensemble: TreeEnsemble, n_features: int) -> TreeEnsemble:
    """Return an ensemble for rows with n_features features; the new ones have no weights."""
    directory = ensemble.directory
    added_groups: U32 = np.zeros(
        (len(directory), n_groups(n_features) - directory.shape[1], 2), np.uint32
    )
    # a group starts at the block after those of the groups before it: here after all of the chunk's
    added_groups[:, :, 1] = np.diff(ensemble.block_ptr)[:, None]
    return ensemble._replace(directory=np.concatenate([directory, added_groups], axis=1))
