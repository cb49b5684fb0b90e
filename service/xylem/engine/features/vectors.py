"""Vectors beside the words of a text: they become the dense tail of a row.

A row is `[features of the text | weight * P (v - mean) / |v - mean|]`: v is the vector of the text,
mean that of the training rows, and P are their first principal components. The features of the tail
have the last ids of the model. Every row has all of them, also those that are 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from xylem.base import (
    BadInstance,
    BadParameter,
    Parameters,
    RowArrays,
    Scalar,
    SparseRows,
    writeable,
)
from xylem.engine.features.encoding import TextEncoder
from xylem.engine.features.featurizer import Featurizer, TextFeaturizer
from xylem_store import (
    F32,
    F64,
    I32,
    I64,
    Corrupt,
    EncoderArrays,
    inlined,
    kernel,
    read_only,
    take,
)

# The prefix of the names of parameters of vectors, also in the features of a manifest.
VECTORS = "vectors."

# The arrays of a version with vectors.
MEAN = "vectors/mean"
BASIS = "vectors/basis"

DIMS_MAX = 4096
VECTORS_WEIGHT_MAX = 100.0

# The source of vectors that stand beside the texts, in files and requests.
BESIDE_TEXTS = "given"

# The source of vectors that a sentence encoder of the version makes.
BY_ENCODER = "encoder"


class VectorParameters(Parameters):
    """Parameters of vectors beside the features of texts."""

    name_prefix: ClassVar[str] = VECTORS

    dims: int = Field(
        default=128,
        ge=0,
        le=DIMS_MAX,
        description="principal components of vectors in a row; 0: all numbers of a vector",
    )
    weight: Literal["auto"] | Annotated[float, Field(gt=0, le=VECTORS_WEIGHT_MAX)] = Field(
        default=0.5,
        description="length of a vector in a row, where words have length 1; auto: 0, 0.3, 0.6 or "
        "1, by held-out rows; 0 leaves vectors out",
    )
    max_tokens: int = Field(
        default=128,
        ge=8,
        le=8192,
        description="tokens of a text that a sentence encoder reads",
    )
    prefix: str = Field(
        default="", description="text before each text that a sentence encoder reads, as `query: `"
    )

    def encoder(self, name: str, arrays: EncoderArrays) -> "TextEncoder":
        """Return an encoder that reads texts as these parameters say."""
        return TextEncoder(name, arrays, self.prefix, self.max_tokens)


class Tail(NamedTuple):
    """Makes the tails of rows.

    mean    float32[numbers]
    basis   float32[numbers, dims]  the principal components; [numbers, 0]: the tail is the vector
            itself, centred
    weight  the length of a tail that its components explain whole
    """

    mean: F32
    basis: F32
    weight: float

    @property
    def dims(self) -> int:
        """Return the number of features of a tail."""
        return self.basis.shape[1] or len(self.mean)

    def tails(self, vectors: F32) -> F32:
        """Return float32[n, dims]: weight * P (v - mean) / |v - mean| for each vector v.

        A vector that is the mean has a tail of zeros. Each row is computed by itself, in a fixed
        order of additions. BLAS would be the alternative, but it adds in another order for one row
        than for many.
        """
        return tails_of(writeable(vectors), self.mean, self.basis, np.float32(self.weight))


@kernel
def tails_of(vectors: F32, mean: F32, basis: F32, weight: np.float32) -> F32:
    """Do as `Tail.tails`."""
    n_rows, n_numbers = vectors.shape
    dims = basis.shape[1]
    tails = np.zeros((n_rows, dims if dims else n_numbers), np.float32)
    for row in range(n_rows):
        square = 0.0
        for i in range(n_numbers):
            difference = np.float64(vectors[row, i] - mean[i])
            square += difference * difference
        if not 0.0 < square < np.inf:
            continue
        scale = np.float32(weight / np.sqrt(square))
        for i in range(n_numbers):
            share = (vectors[row, i] - mean[i]) * scale
            if dims == 0:
                tails[row, i] = share
            for j in range(dims):
                tails[row, j] += share * basis[i, j]
    return tails


@kernel
def join_tails(indptr: I64, indices: I32, values: F32, tails: F32, first: int) -> RowArrays:
    """Return rows (indptr, indices, values) with a tail each, whose features begin with `first`."""
    n_rows, dims = tails.shape
    joined_ptr = np.zeros(n_rows + 1, np.int64)
    joined = np.empty(len(indices) + n_rows * dims, np.int32)
    joined_values = np.empty(len(joined), np.float32)
    position = 0

    for row in range(n_rows):
        for i in range(indptr[row], indptr[row + 1]):
            joined[position] = indices[i]
            joined_values[position] = values[i]
            position += 1
        for j in range(dims):
            joined[position] = first + j
            joined_values[position] = tails[row, j]
            position += 1
        joined_ptr[row + 1] = position
    return joined_ptr, joined, joined_values


# How often the components are multiplied with the covariance: then they hold the variance that the
# exact ones hold, but for a thousandth, where it falls from component to component. An exact solver
# of LAPACK has other bits for another number of processors.
PASSES = 20

# So many more components are followed than are wanted, which makes the last ones as exact.
SPARE = 32


def fit_tail(blocks: Iterable[F32], parameters: VectorParameters) -> Tail:
    """Return the tail that fits the vectors of training rows, one row at least, in blocks.

    parameters  their weight is a number

    Source of the components: orthogonal iteration (Golub and Van Loan, Matrix Computations, 8.2).
    Deterministic. Cost: n * numbers^2, and numbers^2 * dims a pass.
    """
    sums = products = np.zeros(0)
    n_rows = 0
    for vectors in blocks:
        n_rows += len(vectors)
        if not len(sums):
            sums = np.zeros(vectors.shape[1])
            products = np.zeros((len(sums), len(sums)))
        _add_products(writeable(vectors), sums, products)
    n_numbers = len(sums)
    mean = sums / n_rows
    dims = parameters.dims if 0 < parameters.dims < n_numbers else 0
    start = np.random.default_rng(0).normal(size=(min(dims + SPARE, n_numbers), n_numbers))
    covariance = products / n_rows - np.outer(mean, mean)
    components = _principal(covariance, start)[:dims] if dims else np.empty((0, n_numbers))
    assert parameters.weight != "auto"
    return Tail(
        read_only(mean.astype(np.float32)),
        read_only(np.ascontiguousarray(components.T, np.float32)),
        parameters.weight,
    )


@kernel
def _add_products(vectors: F32, sums: F64, products: F64) -> None:
    """Add vectors to their sum, and their products of two numbers to the matrix of those."""
    n_rows, n_numbers = vectors.shape
    for row in range(n_rows):
        vector = vectors[row].astype(np.float64)
        for i in range(n_numbers):
            sums[i] += vector[i]
            for j in range(n_numbers):
                products[i, j] += vector[i] * vector[j]


@kernel
def _principal(covariance: F64, start: F64) -> F64:
    """Return the principal components of a covariance, the first ones first, each of length 1.

    start  float64[components, numbers], from which the iteration starts

    Components without variance are zeros.
    """
    components = start
    least = 1e-9 * max(1e-30, np.trace(covariance))
    for _ in range(PASSES):
        products = np.zeros_like(components)
        for c in range(len(components)):
            for i in range(components.shape[1]):
                for j in range(components.shape[1]):
                    products[c, j] += components[c, i] * covariance[i, j]
            for turn in range(2 * c):  # twice: the first time leaves rounding errors
                _remove(products[c], products[turn % c])
            length = np.sqrt((products[c] * products[c]).sum())
            if length > least:
                products[c] /= length
            else:
                products[c] = 0.0
        components = products
    return components


@inlined
def _remove(vector: F64, direction: F64) -> None:
    """Remove from a vector its part in a direction, which has length 1 or 0."""
    share = (vector * direction).sum()
    for i in range(len(vector)):
        vector[i] -= share * direction[i]


class VectorFeaturizer(Featurizer):
    """Makes rows of texts and their vectors: the features of the words, then the tail. Immutable.

    words    makes the features of the texts
    tail     makes the tails
    encoder  makes the vectors of texts; None: they are given beside the texts
    """

    def __init__(
        self, words: TextFeaturizer, tail: Tail, encoder: TextEncoder | None = None
    ) -> None:
        super().__init__(words.parameters, words.n_features + tail.dims, words.forms)
        self.fields = words.fields
        self.words = words
        self.tail = tail
        self.encoder = encoder
        self.encoders = () if encoder is None else (encoder,)
        self._opened = None if encoder is None else encoder.workspace()
        self.tail_features = tail.dims
        self.vector_numbers = 0 if encoder else len(tail.mean)
        self.takes = (
            "text, or ids and values"
            if encoder
            else f"text with a vector of {len(tail.mean)} numbers, or ids and values"
        )

    @property
    def continuation(self) -> Featurizer:
        featurizer = copy(self)
        featurizer.words = self.words.continuation
        return featurizer

    def encoded_by(self, encoder: TextEncoder | None) -> Featurizer:
        return VectorFeaturizer(self.words, self.tail, encoder)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the words, the mean and the components."""
        arrays = {**self.words.arrays(), MEAN: self.tail.mean, BASIS: self.tail.basis}
        return arrays if self.encoder is None else {**arrays, **self.encoder.arrays.by_name}

    def config(self) -> dict[str, Any]:
        """Return the configuration of the words, and that of the vectors by prefixed names."""
        vectors: dict[str, Scalar] = {
            "source": BESIDE_TEXTS,
            "numbers": len(self.tail.mean),
            "dims": self.tail.dims,
            "weight": self.tail.weight,
        }
        if self.encoder is not None:
            vectors |= {
                "source": BY_ENCODER,
                "encoder": self.encoder.name,
                "prefix": self.encoder.prefix,
                "max_tokens": self.encoder.max_tokens,
            }
        return self.words.config() | {VECTORS + name: value for name, value in vectors.items()}

    def transform_texts(self, texts: Sequence[str]) -> SparseRows:
        """Return a row for each text; the encoder makes its vector.

        Raises BadInstance if the model has no encoder.
        """
        return self.transform_with_vectors(texts, None)

    def transform_with_vectors(self, texts: Sequence[str], vectors: F32 | None) -> SparseRows:
        if self.encoder is not None:
            if vectors is not None:
                raise self._refuse(f"a vector of {vectors.shape[1]} numbers")
            vectors = self.encoder.run(texts, self._opened)
        if vectors is None:
            raise self._refuse("no vector")
        check_vectors(vectors, len(self.tail.mean))
        return self.with_tails(self.words.transform_texts(texts), vectors)

    def with_tails(self, rows: SparseRows, vectors: F32) -> SparseRows:
        """Return the rows of texts with the tails of their vectors."""
        joined = join_tails(
            writeable(rows.indptr),
            writeable(rows.indices),
            writeable(rows.values),
            self.tail.tails(vectors),
            self.words.n_features,
        )
        return SparseRows(*joined, self.n_features, tail=self.tail.dims)


def check_vectors(vectors: F32, n_numbers: int) -> None:
    """Raise BadInstance, with the instance's path, unless each vector has n_numbers finite ones."""
    if vectors.shape[1] != n_numbers:
        raise BadInstance(
            f"expected a vector of {n_numbers} numbers, found one of {vectors.shape[1]}"
        )
    if not np.isfinite(vectors).all():
        row, position = np.argwhere(~np.isfinite(vectors))[0].tolist()
        fault = f"expected a vector of finite 32-bit numbers, found {vectors[row, position]}"
        raise BadInstance(fault).with_path(f"instances[{row}]")


def load_vectors(
    config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, Any], Tail | None, TextEncoder | None]:
    """Return the configuration of a version without that of vectors, the tail and the encoder.

    The latter are None if the version has none.

    Raises Corrupt for vectors that do not fit their arrays.
    """
    vectors = {
        name.removeprefix(VECTORS): value
        for name, value in config.items()
        if name.startswith(VECTORS)
    }
    words = {name: value for name, value in config.items() if not name.startswith(VECTORS)}
    if not vectors:
        return words, None, None
    source = vectors.get("source")
    if source not in (BESIDE_TEXTS, BY_ENCODER):
        raise Corrupt(
            "manifest", f"features.{VECTORS}source to be {BESIDE_TEXTS} or {BY_ENCODER}", source
        )
    try:
        options = VectorParameters(
            **{
                name: vectors[name]
                for name in VectorParameters.model_fields
                if name in vectors and name != "dims"
            }
        )
    except BadParameter as error:
        raise Corrupt("manifest", "features as a training makes them", str(error)) from error
    if options.weight == "auto":
        raise Corrupt("manifest", f"features.{VECTORS}weight that was chosen", "auto")
    mean = take(arrays, MEAN, "float32", (None,))
    tail = Tail(mean, take(arrays, BASIS, "float32", (len(mean), None)), float(options.weight))
    if (
        vectors != {**vectors, "numbers": len(mean), "dims": tail.dims}
        or vectors.keys() != _NAMES[source]
    ):
        raise Corrupt("manifest", f"features.{VECTORS}dims to be {tail.dims}", vectors)
    if source == BESIDE_TEXTS:
        return words, tail, None
    return words, tail, options.encoder(str(vectors["encoder"]), EncoderArrays.among(arrays))


_VECTOR_NAMES = {"source", "numbers", "dims", "weight"}
_NAMES = {
    BESIDE_TEXTS: _VECTOR_NAMES,
    BY_ENCODER: _VECTOR_NAMES | {"encoder", "prefix", "max_tokens"},
}
