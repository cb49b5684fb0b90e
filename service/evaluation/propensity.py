"""How likely a true label is to be written down, by how often it occurs."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from model_store.compiled.handles import F64

A = 0.55
B = 1.5


def constants_of(parameters: Mapping[str, object]) -> tuple[float, float]:
    """Return a and b, with which a version was trained: the defaults where its trainer takes none.

    parameters  of the trainer, as the version's manifest has them
    """
    a, b = parameters.get("propensity_a", A), parameters.get("propensity_b", B)
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return A, B
    return float(a), float(b)


def propensities(label_counts: ArrayLike, n_rows: int, a: float = A, b: float = B) -> F64:
    """Return the propensity of each label, in (0, 1].

    Source: Jain, Prabhu, Varma 2016, "Extreme multi-label loss functions", section 4: 1 / (1 + C (N + B)^-A),
    C = (ln n_rows - 1) (B + 1)^A. Deviation: C is not below 0, as it would be for one or two rows.

    label_counts  [K], training rows of each label
    n_rows        training rows, at least 1
    a, b          constants of the data set; the repository's defaults
    """
    c = max(np.log(n_rows) - 1.0, 0.0) * (b + 1.0) ** a
    found: F64 = 1.0 / (1.0 + c * (np.asarray(label_counts, np.float64) + b) ** -a)
    return found
