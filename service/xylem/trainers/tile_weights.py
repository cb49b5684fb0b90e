"""Weights of the rows of a node, for the children of a tile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xylem_store import F32, I64, LANES


class WeightsOfTile(NamedTuple):
    """How much the n rows of a node count for the children of a tile.

    rows   float32[n]         as negatives
    lanes  float32[n, LANES]  for each child; lanes beyond the last child are those of negatives
    """

    rows: F32
    lanes: F32

    @staticmethod
    def of_entries(rows: F32, position: I64, lane: I64, weight: F32) -> WeightsOfTile:
        """Return the weights; a row counts for a child as its label of the largest weight does.

        position, lane, weight  of each label of the children: its row, its child and its weight
        """
        lanes = np.repeat(rows, LANES)
        cells = position * LANES + lane
        lanes[cells] = 0
        np.maximum.at(lanes, cells, weight)
        return WeightsOfTile(rows, lanes.reshape(-1, LANES))


def costs_of_rows(costs: F32, weights: WeightsOfTile | None) -> F32:
    """Return the costs of a tile as solvers take them: float32[n, LANES], or of all rows alike.

    costs    float32[LANES], of a row of weight 1
    weights  of the rows; None: all are 1
    """
    return costs[None] if weights is None else costs * weights.lanes
