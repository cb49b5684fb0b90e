"""Which weights of linear classifiers are left out as too small to matter."""

from __future__ import annotations

from math import sqrt
from typing import Annotated, Literal

from pydantic import Field

from service.base.rows import SparseRows

Prune = Literal["auto"] | Annotated[float, Field(ge=0.0, le=100.0)]

PRUNE_ABOUT = (
    "leave out smaller weights; 0 keeps them all; auto: 0.1, and less where rows have more than 300 features "
    "in the mean: 0.1 * sqrt(300 / mean)"
)
"""What a trainer's parameter `prune` does, which `prune_of` takes."""

_USUAL = 0.1
_FEATURES = 300


def prune_of(prune: Prune, rows: SparseRows) -> float:
    """Return the size below which weights are left out.

    A row of length 1 with n features has values of about 1 / sqrt(n), and what is left out of its margin is
    the sum of n small weights times these: weights of some features of one word are alike, so the sum grows
    as sqrt(n) (docs/trainers/label-tree.md has figures). The bound shrinks as that grows.
    """
    if prune != "auto":
        return prune
    mean = len(rows.indices) / max(1, rows.n_rows)
    return _USUAL * min(1.0, sqrt(_FEATURES / max(1.0, mean)))
