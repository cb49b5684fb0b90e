"""The libraries whose models can be imported, and the way from their files to a published version.

A version of feature ids becomes one that takes texts: its rows are made as a vectorizer made them.
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
from xylem.extras.importers.vectorizer import SavedVectorizer
from xylem.workflows import store_as, weight_type
from xylem_store import (
    EMBEDDING,
    ORIGIN,
    U32,
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

IMPORTERS: dict[str, Callable[[ModelFiles], Imported]] = {
    "pecos": read_pecos,
    "omikuji": read_omikuji,
    "napkinxc": read_napkinxc,
    "libmultilabel": read_libmultilabel,
}
"""By the library's name, what reads its models; raises BadModel."""


# a model may take so many times the bytes of its files in tables of its labels and features
GROWTH_MAX = 64
MODEL_BYTES_LEAST = 1 << 24  # ... or so many bytes, however small its files
_LABEL_BYTES = 32  # what a label takes in the tables of a tree, at most


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

    label_names  line i + 1 is the name of label i; without it labels are named by their ids
    model        the model to add a version to; the base name of `path` when None
    n_features   the features that rows have, where the files know of fewer: those that have a
                 weight
    weights      the type that weights are stored in, one of WEIGHTS; they are rounded to it
    Raises BadModel for files that are not such a model, BadData for label names that do not fit it,
    BadParameter for another system, too few features, or weights that cannot be stored in that
    type, StoreError when it cannot be published.
    """
    if system not in IMPORTERS:
        raise BadParameter(f"--from: expected one of {', '.join(IMPORTERS)}, found {system!r}")
    stored_type = weight_type(weights)
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
            fault = f"expected {foreign_model.n_features}, which {path} has, to {N_FEATURES_MAX}"
            raise BadParameter(f"--features: {fault}, found {n_features}")
        foreign_model = foreign_model._replace(n_features=n_features)
    n_chunks = sum(chunk is not None for tree in foreign_model.trees for chunk in tree.chunks)
    n_bytes = (
        8 * n_chunks * n_groups(foreign_model.n_features)
        + _LABEL_BYTES * len(foreign_model.trees) * foreign_model.n_labels
    )
    # each id costs what it counts to
    if n_bytes > max(MODEL_BYTES_LEAST, GROWTH_MAX * files.n_bytes):
        raise BadModel(
            f"{path}: expected ids that fit {files.n_bytes} bytes of files, "
            f"found {foreign_model.n_labels} labels and {foreign_model.n_features} features in {n_chunks} nodes"
        )
    labels = _label_table(foreign_model, path, label_names)
    draft = Draft(
        kind="label-tree",
        link=foreign_model.link,
        weights=stored_type,
        n_features=foreign_model.n_features,
        trainer=TrainerInfo(f"import-{system}", foreign_model.settings),
        seed=0,
        data=DataInfo(path.resolve().name, 0, files.sha256),
        metrics={},
        features=as_config(RawParameters(norm=foreign_model.norm)),
        ensemble=store_as(
            build_ensemble(foreign_model.trees, labels.n_names, foreign_model.n_features),
            stored_type,
        ),
        labels=labels,
    )
    return store.publish(name, draft)


def _label_table(foreign_model: Imported, path: Path, label_names: Path | None) -> NameTable:
    if label_names is None:
        return build_names(map(str, range(foreign_model.n_labels)))
    names = read_label_names(label_names)
    if len(names) < foreign_model.n_labels or (
        foreign_model.all_labels and len(names) > foreign_model.n_labels
    ):
        least = "" if foreign_model.all_labels else "at least "
        raise BadData(
            f"{label_names}: expected {least}{foreign_model.n_labels} names, one for each label of {path}, "
            f"found {len(names)}"
        )
    return build_names(names)


def text_draft(model: Model, vectorizer: SavedVectorizer) -> Draft:
    """Return a draft that answers texts as a version answers the rows that the vectorizer makes.

    Raises BadModel where the version does not take feature ids, or has more features than there are
    terms.
    """
    manifest, (file, sha256) = model.manifest, vectorizer.source
    place = manifest.shown
    if manifest.features.get("kind") != RawParameters.kind:
        raise BadModel(
            f"{place}: expected a version that takes feature ids, found {manifest.features['kind']}"
        )
    trained_parameters = parameters_of(manifest.features)
    featurizer = featurizer_of(vectorizer, trained_parameters.norm)
    n_added = featurizer.n_features - manifest.n_features
    if n_added < 0 or (
        n_added and any(array.startswith(f"{EMBEDDING}/") for array in model.arrays)
    ):
        raise BadModel(
            f"{file}: expected the vocabulary of the {manifest.n_features} features of "
            f"{place}, found "
            f"{featurizer.n_features} terms (was the matrix stacked with others, or written "
            "with ids from 1?)"
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
    """Return what makes rows of texts as the vectorizer does, then
    scales them as rows were in training.
    """
    config = vectorizer.parameters.model_dump()
    norm = config["norm"] if trained_norm == "none" else trained_norm
    if vectorizer.stop_words:
        # as the manifest calls them: the version has them
        config["stop_words"] = "scikit-learn.txt"
    parameters = parameters_of({"kind": vectorizer.parameters.kind, **config, "norm": norm})
    if isinstance(parameters, CharsParameters):
        return CharsFeaturizer(parameters, WeightedNames(vectorizer.names, vectorizer.idf))
    assert isinstance(parameters, TfidfParameters)
    forms = forms_of_list(parameters, vectorizer.stop_words) if vectorizer.stop_words else None
    return TfidfFeaturizer(parameters, vectorizer.names, vectorizer.idf, forms)


def widen(ensemble: TreeEnsemble, n_features: int) -> TreeEnsemble:
    """Return an ensemble whose rows may have features up to
    n_features - 1: no node has a weight there.
    """
    directory = ensemble.directory
    n_added = n_groups(n_features) - directory.shape[1]
    added_groups: U32 = np.zeros((len(directory), n_added, 2), np.uint32)
    # all of a chunk's blocks stand before them
    added_groups[:, :, 1] = np.diff(ensemble.block_ptr)[:, None]
    return ensemble._replace(directory=np.concatenate([directory, added_groups], axis=1))
