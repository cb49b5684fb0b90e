"""Fit and load featurizers of every kind."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from numpy.typing import NDArray

from xylem.base import BadData, BadParameter, Crew, Dataset, SparseRows, TextFields
from xylem.engine.features.characters import in_blocks
from xylem.engine.features.chars import fit_chars, load_chars
from xylem.engine.features.context import load_context
from xylem.engine.features.featurizer import Featurizer, TextFeaturizer
from xylem.engine.features.hashing import HashingFeaturizer
from xylem.engine.features.named import NamedFeaturizer, fit_named
from xylem.engine.features.parameters import (
    AutoParameters,
    CharsParameters,
    ContextParameters,
    FeatureParameters,
    HashingParameters,
    NamedParameters,
    RawParameters,
    TfidfParameters,
    WordsCharsParameters,
    check_complete,
    parameters_of,
    whole_config,
)
from xylem.engine.features.tables import CHARS, NAMES, FeatureNames, take_feature_names
from xylem.engine.features.tfidf import fit_tfidf, load_tfidf
from xylem.engine.features.vectors import (
    MEAN,
    VectorFeaturizer,
    VectorParameters,
    fit_tail,
    load_vectors,
)
from xylem.engine.features.word_forms import fit_forms, load_forms
from xylem_store import F32, U8, Corrupt, names_in

# The kinds whose features are words or names, which a version stores.
NAMED_KINDS = (
    TfidfParameters.kind,
    WordsCharsParameters.kind,
    NamedParameters.kind,
    ContextParameters.kind,
)


def default_kind(dataset: Dataset) -> str:
    """Return the default kind of features: tfidf for texts, named for names, raw for ids."""
    if dataset.texts is not None:
        return TfidfParameters.kind
    return RawParameters.kind if dataset.named_rows is None else NamedParameters.kind


def fit_featurizer(
    dataset: Dataset,
    parameters: FeatureParameters,
    crew: Crew | None = None,
    vectors: VectorParameters | None = None,
) -> tuple[Featurizer, SparseRows]:
    """Return a featurizer fitted to a training set, and the rows of the set.

    crew     the workers that count the words of texts and make their rows, block by block; None:
             this thread does it
    vectors  parameters of the vectors beside texts, whose weight is a number; None: they are left
             out of the rows

    Raises BadParameter if the parameters are for another kind of instances than the data set's,
    BadData if its instances have no feature. Deterministic.
    """
    words, rows = _fit_words(dataset, parameters, crew)
    featurizer = words.with_fields(dataset.fields)
    if vectors is None or dataset.vectors is None:
        return featurizer, rows
    with_vectors = beside_vectors(featurizer, [dataset.vectors], vectors)
    return with_vectors, with_vectors.with_tails(rows, dataset.vectors)


def beside_vectors(
    words: Featurizer, blocks: Iterable[F32], parameters: VectorParameters
) -> VectorFeaturizer:
    """Return a featurizer of texts with vectors, fitted to those of the training rows."""
    assert isinstance(words, TextFeaturizer)
    return VectorFeaturizer(words, fit_tail(blocks, parameters))


def _fit_words(
    dataset: Dataset, parameters: FeatureParameters, crew: Crew | None
) -> tuple[Featurizer, SparseRows]:
    if dataset.texts is not None and type(parameters) is TfidfParameters:
        return fit_tfidf(dataset.texts, parameters, crew, _weights_of(dataset))
    featurizer = _fitted(dataset, parameters, crew)
    if dataset.texts is None:
        return featurizer, featurizer.transform_dataset(dataset)
    blocks: Iterator[TextBlock] = ((texts, None) for texts in in_blocks(dataset.texts))
    return featurizer, SparseRows.join(
        list((crew or Crew(1)).mapped(MakeRows.from_featurizer(featurizer), blocks))
    )


def _weights_of(dataset: Dataset) -> F32 | None:
    """Return the weights of the rows; None if all are 1."""
    return dataset.labels.weights and dataset.labels.weights.rows


def _fitted(dataset: Dataset, parameters: FeatureParameters, crew: Crew | None) -> Featurizer:
    if dataset.texts is not None and isinstance(parameters, CharsParameters | WordsCharsParameters):
        return fit_chars(dataset.texts, parameters, crew, _weights_of(dataset))
    if dataset.rows is None and isinstance(parameters, HashingParameters):
        return HashingFeaturizer(parameters, fit_forms(parameters))
    if dataset.named_rows is not None and isinstance(parameters, NamedParameters):
        return fit_named(dataset.named_rows, parameters)
    if dataset.rows is not None and isinstance(parameters, RawParameters):
        if dataset.rows.n_features < 1:
            raise BadData("expected instances with a feature, found none")
        return Featurizer(parameters, dataset.rows.n_features)
    raise BadParameter(
        f"features.kind: expected a kind for this data, for example {default_kind(dataset)}, "
        f"found {parameters.kind}"
    )


# Some texts, and their vectors if they have any.
TextBlock: TypeAlias = tuple[Sequence[str], F32 | None]


@dataclass(frozen=True)
class MakeRows:
    """A step of a crew that makes the rows of blocks of texts.

    Its fields are the parameters of `load_featurizer`, because the featurizer itself cannot go to
    another process.
    """

    config: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    n_features: int

    @classmethod
    def from_featurizer(cls, featurizer: Featurizer) -> Self:
        """Return the step that makes rows as a featurizer does."""
        return cls(featurizer.config(), featurizer.arrays(), featurizer.n_features)

    def workspace(self) -> Featurizer:
        """Return the featurizer, which each worker makes once."""
        return load_featurizer(self.config, self.arrays, self.n_features)

    def run(self, block: TextBlock, featurizer: Featurizer, stop: U8) -> SparseRows:
        """Return the rows of a block of texts."""
        return featurizer.transform_with_vectors(*block)


def streaming_featurizer(
    dataset: Dataset,
    values: Mapping[str, Any],
    n_features: int,
    vectors: VectorParameters | None = None,
    vector_blocks: Iterable[F32] = (),
) -> Featurizer:
    """Return the featurizer of instances that are streamed: texts or names are hashed, ids kept.

    dataset        some of the instances; all of them are of the same kind
    values         values of parameters by name, with or without `kind`
    n_features     for instances with ids, the largest id plus 1
    vectors        parameters of vectors beside texts, as `fit_featurizer` takes them
    vector_blocks  the vectors of all instances, if they have any

    Raises BadParameter for a kind that must see all instances first: tfidf and named.
    """
    kind = HashingParameters.kind if dataset.rows is None else RawParameters.kind
    parameters = parameters_of({"kind": kind, **values})
    if isinstance(parameters, HashingParameters) and dataset.rows is None:
        words = HashingFeaturizer(parameters, fit_forms(parameters)).with_fields(dataset.fields)
        return (
            words
            if vectors is None or dataset.vectors is None
            else beside_vectors(words, vector_blocks, vectors)
        )
    if isinstance(parameters, RawParameters) and dataset.rows is not None:
        return Featurizer(parameters, n_features)
    raise BadParameter(
        f"features.kind: expected {kind}, because this data is streamed, found {parameters.kind}"
    )


def load_featurizer(
    config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], n_features: int
) -> Featurizer:
    """Return the featurizer of a model version.

    config  the features of its manifest

    Raises Corrupt if a parameter or array is missing, unknown, out of range or damaged.
    """
    words, tail, encoder = load_vectors(config, arrays)
    if tail is None:
        return _load_words(words, arrays, n_features)
    featurizer = _load_words(words, arrays, n_features - tail.dims)
    if not isinstance(featurizer, TextFeaturizer):
        raise Corrupt("manifest", "features of texts beside vectors", featurizer.kind)
    return VectorFeaturizer(featurizer, tail, encoder)


def _load_words(
    config: dict[str, Any], arrays: Mapping[str, NDArray[Any]], n_features: int
) -> Featurizer:
    stored = config.pop(TextFields.key, [])
    try:
        fields = TextFields.of_options(stored)
        parameters = parameters_of(whole_config(config))
    except (BadParameter, TypeError) as error:
        raise Corrupt("manifest", "features that this release knows", str(error)) from error
    if fields.options != stored or fields.unweighted is not None:
        raise Corrupt("manifest", "fields with their weights", str(stored))
    return _loaded(whole_config(config), parameters, arrays, n_features).with_fields(fields)


def _loaded(
    config: Mapping[str, Any],
    parameters: FeatureParameters,
    arrays: Mapping[str, NDArray[Any]],
    n_features: int,
) -> Featurizer:
    check_complete(config, type(parameters))
    if isinstance(parameters, AutoParameters):
        raise Corrupt("manifest", "the features that were chosen", "features.kind auto")
    if isinstance(parameters, CharsParameters | WordsCharsParameters):
        return load_chars(parameters, arrays, n_features)
    if isinstance(parameters, TfidfParameters):
        return load_tfidf(parameters, arrays, n_features)
    if isinstance(parameters, NamedParameters):
        return NamedFeaturizer(parameters, take_feature_names(arrays, n_features))
    if isinstance(parameters, ContextParameters):
        return load_context(parameters, arrays, n_features)
    if isinstance(parameters, RawParameters):
        return Featurizer(parameters, n_features)
    if parameters.n_features != n_features:
        raise Corrupt(
            "manifest", f"features.n_features to be {n_features}", str(parameters.n_features)
        )
    return HashingFeaturizer(parameters, load_forms(parameters, arrays))


def feature_names(
    config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> FeatureNames | None:
    """Return the names of a model version's features, None if its kind has none. Raises Corrupt.

    For windows of words they are the words: feature f is word f modulo their number.
    """
    kind = config.get("kind")
    names = names_in(arrays, NAMES) if kind in NAMED_KINDS else None
    has_chars = kind in (CharsParameters.kind, WordsCharsParameters.kind)
    chars = names_in(arrays, CHARS) if has_chars else None
    if MEAN in arrays:
        return FeatureNames(
            names,
            chars,
            config.get(
                "n_features", sum(table.n_names for table in (names, chars) if table is not None)
            ),
        )
    return None if names is None and chars is None else FeatureNames(names, chars)
