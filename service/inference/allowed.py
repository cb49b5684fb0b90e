"""Which labels an answer may have: what predictors of both kinds make their masks of."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from model_store.names import NameTable, find_name
from service.errors import UnknownLabel


def allowed_labels(
    labels: NameTable,
    n_labels: int,
    allow: Iterable[str] | None,
    deny: Iterable[str] | None,
    among: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8]:
    """Return uint8[K]: 1 for the labels that are allowed (None: all) and not denied. Raises UnknownLabel.

    among  uint8[K], 0 for labels that are denied whatever the lists say; None: there are none
    """
    allowed = np.full(n_labels, allow is None, np.uint8)
    allowed[[_label_of(labels, name, "allow_labels") for name in allow or ()]] = 1
    allowed[[_label_of(labels, name, "deny_labels") for name in deny or ()]] = 0
    return allowed if among is None else allowed & among


def _label_of(labels: NameTable, name: str, where: str) -> int:
    label = find_name(labels, name)
    if label < 0:
        raise UnknownLabel(f"{where}: expected labels of the model, found {name!r}")
    return label
