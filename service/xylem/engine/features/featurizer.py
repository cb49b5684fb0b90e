"""What every kind of features offers: instances in, sparse rows out."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from xylem.base import BadInstance, Dataset, Scalar, SparseRows
from xylem.engine.features.parameters import FeatureParameters, RawParameters, as_config
from xylem.engine.features.rows import NORM_CODES, normalise_rows, rows_of_csr
from xylem.engine.features.word_forms import WordForms


class Featurizer:
    """Turns instances into rows of one model; immutable, so any number of threads may share it.

    Every kind takes ids and values (`transform_csr`); texts and named features only where the kind
    has a meaning for them, else BadInstance says which instances the model takes. All rows are
    normalised as `parameters.norm` says. Rows may be empty: a text without known words is a row of
    none.

    items_a_character  how often a character of a text counts where work is bounded by items, as
                       `SHORT_ITEMS`
    """

    takes: str = "ids and values"
    """What it takes; the kind raw, which fits nothing, is the class itself."""

    def __init__(
        self, parameters: FeatureParameters, n_features: int, forms: WordForms | None = None
    ) -> None:
        self.parameters = parameters
        self.n_features = n_features
        self.forms = forms
        self.items_a_character = 1 if forms is None else forms.items_a_character

    @property
    def kind(self) -> str:
        """Return the kind: raw, named, tfidf or hashing."""
        return self.parameters.kind

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the fitted state, all of it, under the names that
        a version stores it by; here none.
        """
        return {}

    def config(self) -> dict[str, Scalar]:
        """Return what a manifest keeps: the kind and its parameters."""
        return as_config(self.parameters)

    def transform_texts(self, texts: Sequence[str]) -> SparseRows:
        """Return a row for each text. Raises BadInstance when the kind takes none."""
        raise self._refuse("text")

    def transform_named(self, instances: Sequence[dict[str, float]]) -> SparseRows:
        """Return a row for each dict of values by feature name; unknown names are left out.

        Raises BadInstance when the kind takes none, or for a value that is no number or not finite.
        """
        raise self._refuse("named features")

    def transform_csr(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> SparseRows:
        """Return rows for compressed sparse rows of feature ids in any order, checked and copied.

        Values of a repeated id are summed. Raises BadInstance for arrays that are no such rows, an
        id out of range, a value that is not finite.
        """
        return self.normalised(rows_of_csr(indptr, indices, values, self.n_features))

    def transform_dataset(self, dataset: Dataset) -> SparseRows:
        """Return the rows of a data set. Raises BadInstance when its
        instances are of a kind not taken.

        Feature ids of a file are another numbering than that of words or names, so that only models
        of such files take them.
        """
        if dataset.texts is not None:
            return self.transform_texts(dataset.texts)
        if dataset.named_rows is not None:
            return self.transform_named(dataset.named_rows)
        if not isinstance(self.parameters, RawParameters):
            raise self._refuse("a file of feature ids")
        assert dataset.rows is not None
        return self.transform_csr(dataset.rows.indptr, dataset.rows.indices, dataset.rows.values)

    def normalised(self, rows: SparseRows) -> SparseRows:
        """Scale rows as `parameters.norm` says, in place; a row of zeros stays as it is."""
        normalise_rows(rows.indptr, rows.values, NORM_CODES[self.parameters.norm])
        return rows

    def _refuse(self, instances: str) -> BadInstance:
        return BadInstance(f"expected {self.takes}, which this model takes, found {instances}")
