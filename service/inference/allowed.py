"""Which labels an answer may have: what predictors of both kinds make their masks of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model_store.names import NameTable, find_all
from service.base.errors import UnknownLabel


def allowed_labels(
    labels: NameTable,
    n_labels: int,
    allow: Sequence[str] | None,
    deny: Sequence[str] | None,
    among: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8]:
    """Return uint8[K]: 1 for the labels that are allowed (None: all) and not denied. Raises UnknownLabel.

    among  uint8[K], 0 for labels that are denied whatever the lists say; None: there are none
    """
    allowed = np.full(n_labels, allow is None, np.uint8)
    allowed[label_ids(labels, allow or (), "allow_labels")] = 1
    allowed[label_ids(labels, deny or (), "deny_labels")] = 0
    return allowed if among is None else allowed & among


def label_ids(labels: NameTable, names: Sequence[str], where: str) -> NDArray[np.int32]:
    """Return the ids of labels, int32[m]. Raises UnknownLabel, which says where in a request they are."""
    ids = find_all(labels, names)
    if len(ids) and ids.min() < 0:
        raise UnknownLabel(f"{where}: expected labels of the model, found {names[int(ids.argmin())]!r}")
    return ids
