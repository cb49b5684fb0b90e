"""The rows of combined versions: the members' rows of a text side by side, then features of names.

Rows of members with softmax nodes are dense: the member's embedding makes them of its sparse rows.
"""

from collections.abc import Sequence
from copy import copy
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from xylem.base import SparseRows, TextFields, offsets, writeable
from xylem.engine.features.characters import in_blocks
from xylem.engine.features.featurizer import Featurizer, TextFeaturizer
from xylem.engine.features.parameters import Norm, RawParameters, WordParameters
from xylem.engine.features.registry import load_featurizer
from xylem.engine.features.word_forms import WordForms
from xylem.engine.features.words import Words
from xylem.engine.kernels.search.embed_rows import embed_rows
from xylem_store import (
    COMBINED,
    F32,
    F64,
    I32,
    Embedding,
    Model,
    assemble,
    assemble_embedding,
    member_arrays,
    read_only,
)

# takes the place of the embedding's field `mean`, so that dense rows are sums instead of means
_SUMS = read_only(np.zeros(1, np.int32))


class CombinedParameters(RawParameters):
    """The parameters of a combined version, whose features are those of its members and names."""

    kind: ClassVar[str] = COMBINED

    norm: Norm = "none"


class RowEmbedding:
    """Makes dense rows of sparse rows by a model's embedding. Immutable.

    dim  the dimensions of a dense row
    """

    def __init__(self, embedding: Embedding) -> None:
        self._u = embedding.u.view(f"u{embedding.u.itemsize}")
        self._r = embedding.r
        self._mean = embedding.mean
        self.dim = embedding.u.shape[1]
        self._dims = np.arange(self.dim, dtype=np.int32)
        self._one_row = np.array([0, self.dim])

    def rows(self, rows: SparseRows) -> SparseRows:
        """Return the dense rows: each has all `dim` features, also those that are 0."""
        dense = embed_rows(
            writeable(rows.indptr),
            writeable(rows.indices),
            writeable(rows.values),
            self._u,
            self._r,
            self._mean,
        )
        n_rows = len(dense)
        if n_rows == 1:  # most requests have one row: it needs no new arrays
            return SparseRows(self._one_row, self._dims, dense[0], self.dim)
        return SparseRows(
            np.arange(n_rows + 1, dtype=np.int64) * self.dim,
            np.tile(self._dims, n_rows),
            dense.reshape(-1),
            self.dim,
        )

    def shares(self, indices: I32, values: F32) -> F64:
        """Return the contribution of each feature to a row's dense row, float64[features, dim]."""
        embedded = embed_rows(
            np.arange(len(indices) + 1),
            writeable(indices),
            np.ones(len(indices), np.float32),
            self._u,
            self._r,
            _SUMS,
        ).astype(np.float64)
        total = float(np.abs(values.astype(np.float64)).sum()) if self._mean[0] else 0.0
        return np.asarray(embedded * (values.astype(np.float64) / (total or 1.0))[:, None])


class ColumnBlock(NamedTuple):
    """The columns first .. end - 1 of a combined row: the features of one member, or of several
    members that have the same features.

    makes      the featurizer that makes the rows of texts
    embedding  makes the rows dense, if the member takes dense rows; else None
    """

    first: int
    end: int
    makes: Featurizer
    embedding: RowEmbedding | None

    def rows(
        self, texts: Sequence[str], words: Words | None = None, vectors: F32 | None = None
    ) -> SparseRows:
        """Return the rows of texts.

        words    the words of the texts in their forms, if they have been made already
        vectors  those of the texts, which a member that takes none does without
        """
        rows = (
            self.makes.rows_of_words(texts, words)
            if words is not None and isinstance(self.makes, TextFeaturizer)
            else self.makes.transform_with_vectors(
                texts, vectors if self.makes.vector_numbers else None
            )
        )
        return rows if self.embedding is None else self.embedding.rows(rows)

    def has_words(self, parameters: WordParameters) -> bool:
        """Return whether this block uses forms of words, and makes them as these parameters say."""
        return (
            isinstance(self.makes, TextFeaturizer)
            and self.makes.forms is not None
            and all(
                getattr(self.makes.parameters, name, None) == getattr(parameters, name)
                for name in WordParameters.model_fields.keys() - {"norm"}
            )
        )


def members_of(model: Model) -> list[Model]:
    """Return the members of a combined version as models of their own."""
    manifests = model.manifest.members
    of_members = [member_arrays(number, model.arrays) for number in range(len(manifests))]
    return [
        Model(manifest, *assemble(manifest, arrays), arrays)
        for manifest, arrays in zip(manifests, of_members, strict=True)
    ]


class NameRows(Protocol):
    """An object that finds names of concepts in texts (`xylem.vocabulary.matching`).

    n_features  the number of columns
    forms       makes stems or lemmas of words, as in a featurizer; None: words are not changed
    """

    n_features: int
    forms: WordForms | None

    @property
    def parameters(self) -> WordParameters:
        """Return the parameters by which texts are split into words."""

    def words(self, texts: Sequence[str]) -> Words:
        """Return the words of texts."""

    def rows_of_words(self, words: Words) -> SparseRows:
        """Return the rows of texts with these words."""


class CombinedFeaturizer(Featurizer):
    """Makes the rows of texts for a combined version.

    blocks     the columns of the members, ascending
    of_member  for each member the number of its block
    names      makes the features of names, whose columns are the last ones; None: there are none
    alone      the featurizer of the only block, if the rows are exactly its rows; else None

    Raises Corrupt if a member's features are damaged.
    """

    takes = "text or ids and values"

    def __init__(self, members: Sequence[Model], names: NameRows | None = None) -> None:
        self.blocks, self.of_member = _blocks(members)
        self.names = names
        end = self.blocks[-1].end
        super().__init__(CombinedParameters(), end if names is None else end + names.n_features)
        readers = [block.makes.forms for block in self.blocks] + (
            [] if names is None else [names.forms]
        )
        self.items_a_character = sum(
            1 if forms is None else forms.items_a_character for forms in readers
        )
        self.encoders = tuple(encoder for block in self.blocks for encoder in block.makes.encoders)
        self.vector_numbers = max(block.makes.vector_numbers for block in self.blocks)
        self._shares = [
            names is not None and block.has_words(names.parameters) for block in self.blocks
        ]

        first = self.blocks[0]
        self.alone = (
            first.makes
            if len(self.blocks) == 1 and first.embedding is None and names is None
            else None
        )
        self.fields = next(
            (block.makes.fields for block in self.blocks if block.makes.fields), TextFields()
        )

    def transform_texts(self, texts: Sequence[str]) -> SparseRows:
        return SparseRows.join([self._transform_block(block, None) for block in in_blocks(texts)])

    def transform_with_vectors(self, texts: Sequence[str], vectors: F32 | None) -> SparseRows:
        """Do as `Featurizer.transform_with_vectors`: members that take vectors take the same."""
        return (
            self._transform_block(texts, vectors)
            if self.vector_numbers and vectors is not None
            else super().transform_with_vectors(texts, vectors)
        )

    @property
    def continuation(self) -> Featurizer:
        featurizer = copy(self)
        featurizer.blocks = [
            block._replace(makes=block.makes.continuation) for block in self.blocks
        ]
        return featurizer

    def _transform_block(self, texts: Sequence[str], vectors: F32 | None) -> SparseRows:
        words = None if self.names is None else self.names.words(texts)
        parts = [
            block.rows(texts, words if shares else None, vectors)
            for block, shares in zip(self.blocks, self._shares, strict=True)
        ]
        if self.names is not None and words is not None:
            parts.append(self.names.rows_of_words(words))
        return side_by_side(parts)

    def member_rows(self, rows: SparseRows, row: int, member: int) -> SparseRows:
        """Return a member's part of one row of `rows`, as the only row."""
        block = self.blocks[self.of_member[member]]
        return part_of(rows, row, block.first, block.end)._replace(
            tail=0 if block.embedding else block.makes.tail_features
        )


def side_by_side(parts: Sequence[SparseRows]) -> SparseRows:
    """Return rows that have the columns of all parts, one part after the other.

    There is at least one part, and all have the same number of rows.
    """
    if len(parts) == 1:
        return parts[0]
    firsts = offsets([part.n_features for part in parts])
    indices = np.concatenate(
        [
            part.indices + np.int32(first)
            for part, first in zip(parts, firsts.tolist(), strict=False)
        ]
    )
    values = np.concatenate([part.values for part in parts])
    n_rows = parts[0].n_rows
    if n_rows == 1:  # most requests have one row: it needs no sorting
        return SparseRows(np.array((0, len(indices))), indices, values, int(firsts[-1]))
    sizes = np.stack([np.diff(part.indptr) for part in parts])
    row = np.concatenate([np.repeat(np.arange(n_rows), counts) for counts in sizes])
    order = np.argsort(row, kind="stable")
    return SparseRows(offsets(sizes.sum(0)), indices[order], values[order], int(firsts[-1]))


def part_of(rows: SparseRows, row: int, first: int, end: int) -> SparseRows:
    """Return the columns first .. end - 1 of one row, numbered from 0, as the only row."""
    low, high = rows.indptr[row : row + 2].tolist()
    low, high = (low + np.searchsorted(rows.indices[low:high], (first, end))).tolist()
    return SparseRows(
        np.array((0, high - low)),
        rows.indices[low:high] - np.int32(first),
        rows.values[low:high],
        end - first,
    )


def _blocks(members: Sequence[Model]) -> tuple[list[ColumnBlock], list[int]]:
    """Return the members' blocks of columns, and for each member the number of its block."""
    blocks: list[ColumnBlock] = []
    owners: list[Model] = []
    of_member = []
    for member in members:
        same = [i for i, owner in enumerate(owners) if _have_same_features(owner, member)]
        if not same:
            first = blocks[-1].end if blocks else 0
            manifest = member.manifest
            featurizer = load_featurizer(manifest.features, member.arrays, manifest.n_features)
            embedding = None
            n_columns = featurizer.n_features
            if manifest.link == "softmax":
                embedding = RowEmbedding(assemble_embedding(manifest.n_features, member.arrays))
                n_columns = embedding.dim
            blocks.append(ColumnBlock(first, first + n_columns, featurizer, embedding))
            owners.append(member)
        of_member.append(same[0] if same else len(blocks) - 1)
    return blocks, of_member


def _have_same_features(model: Model, other: Model) -> bool:
    """Return whether two versions make the same sparse rows, so that they can share columns."""
    names = {
        name
        for name in model.arrays.keys() | other.arrays.keys()
        if name.startswith(("features/", "vectors/"))
    }
    return (
        "softmax" not in (model.manifest.link, other.manifest.link)
        and model.manifest.n_features == other.manifest.n_features
        and dict(model.manifest.features) == dict(other.manifest.features)
        and names <= model.arrays.keys() & other.arrays.keys()
        and all(np.array_equal(model.arrays[name], other.arrays[name]) for name in names)
    )
