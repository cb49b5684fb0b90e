"""Named features: turn instances that are values by feature name into rows."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadData, SparseRows, offsets
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.parameters import NamedParameters
from xylem.engine.features.rows import finish_rows, finite_values, tidied
from xylem.engine.features.tables import NAMES
from xylem_store import F32, I32, I64, BadNames, NameTable, build_names, find_all, group_of, kernel


class NamedFeaturizer(Featurizer):
    """Makes rows whose features are the names that occur in training.

    The ids number the names in the order of their bytes.
    """

    takes = "named features or ids and values"
    parameters: NamedParameters

    def __init__(self, parameters: NamedParameters, names: NameTable) -> None:
        super().__init__(parameters, names.n_names)
        self.names = names

    def arrays(self) -> dict[str, NDArray[Any]]:
        return group_of(NAMES, self.names)

    def transform_named(self, instances: Sequence[dict[str, float]]) -> SparseRows:
        """Return a row for each instance; names that do not occur in training are left out."""
        values = finite_values(instances)
        indptr = offsets(map(len, instances))
        ids = find_all(self.names, chain.from_iterable(instances))
        n = _finish_known_names(self.norm_code, indptr, ids, values)
        if n < 0:  # raises, also for unknown names: what is refused must not depend on the model
            tidied(indptr, np.arange(len(values), dtype=np.int32), values, len(values))
        return SparseRows(indptr, ids[:n], values[:n], self.n_features)


@kernel
def _finish_known_names(norm: int, indptr: I64, ids: I32, values: F32) -> int:
    """Remove unknown names, whose ids are < 0, from rows, then sort and normalise them, in place.

    Returns the number of values that are left. If a value is not finite, it returns -1 and changes
    nothing.
    """
    for value in values:
        if not np.isfinite(value):
            return -1
    n = start = 0
    for row in range(len(indptr) - 1):
        for i in range(start, indptr[row + 1]):
            ids[n] = ids[i]
            values[n] = values[i]
            n += ids[i] >= 0
        start = indptr[row + 1]
        indptr[row + 1] = n
    return finish_rows(norm, indptr, ids, values)


def fit_named(
    instances: Sequence[dict[str, float]], parameters: NamedParameters
) -> NamedFeaturizer:
    """Return a featurizer that is fitted to these instances.

    Raises BadData if there is no name, or for a name that a NameTable cannot hold.
    """
    names = sorted(set(chain.from_iterable(instances)))
    if not names:
        raise BadData("expected instances with a feature, found none")
    try:
        return NamedFeaturizer(parameters, build_names(names))
    except BadNames as error:
        raise BadData(f"feature names: {error.fault}") from error
