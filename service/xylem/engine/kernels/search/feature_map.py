"""The feature map: for a chunk that many rows of a batch need, an array from features to its rows.

One look-up in the map replaces two look-ups in the chunk's bit sets, and finds the same rows in the
same order.
"""

import numpy as np

from xylem.engine.kernels.search.scorer import ScorerParts, children_width, place
from xylem.engine.kernels.search.scoring import start_turns
from xylem.engine.kernels.search.workspace import Workspace
from xylem_store import (
    BLOCK_BITS,
    F32,
    GROUP_BITS,
    I32,
    TreeEnsemble,
    load8,
    lowest_lane,
    nonallocating_inlined as inlined,
    prefetch,
    vstore,
    zero8,
)

_AHEAD = 256  # how many weights are fetched before they are spread
_BLOCK = 1 << BLOCK_BITS


@inlined
def _is_worth_mapping(ensemble: TreeEnsemble, node: int, n_look_ups: int, work: Workspace) -> bool:
    """Return whether spreading a node's chunk over the map pays for n_look_ups look-ups.

    It pays if there are at least as many look-ups as the chunk has features (measured on label
    trees). Return False if there is no map.
    """
    if len(work.feature_row) == 0:
        return False
    chunk = ensemble.node_chunk[node]
    n_dense = (ensemble.dense_ptr[chunk + 1] - ensemble.dense_ptr[chunk]) // children_width(
        ensemble, node
    )
    n_sparse = ensemble.row_start[chunk + 1] - ensemble.row_start[chunk] - 1
    n_features = n_sparse + n_dense - work.tail_features  # the tail is not looked up
    return bool(n_look_ups >= n_features)


@inlined
def spread_chunk(parts: ScorerParts, node: int, is_narrow: int) -> None:
    """Set the numbers of the chunk's features, as `scoring.SPREAD` says.

    An entry of the map is 1 + the number of the sparse row, or -1 - the number of the dense row.
    """
    ensemble, _, dense, _, _, work = parts
    chunk = ensemble.node_chunk[node]
    width = children_width(ensemble, node)
    position = ensemble.dense_ptr[chunk]
    block = ensemble.block_ptr[chunk]
    for group in range(ensemble.directory.shape[1]):
        blocks = np.int64(ensemble.directory[chunk, group, 0])
        while blocks != 0:
            feature = (group << GROUP_BITS) + (lowest_lane(blocks) << BLOCK_BITS)
            blocks &= blocks - 1
            rows = np.int64(ensemble.blocks[block, 0])
            dense_rows = np.int64(ensemble.blocks[block, 1])
            n_sparse = np.int64(ensemble.blocks[block, 2])
            n_dense = np.int64(ensemble.blocks[block, 3])
            block += 1
            while rows != 0:
                bit = lowest_lane(rows)
                rows &= rows - 1
                if is_narrow:
                    # vectors also write the rows of the next features, which come later or are 0
                    vstore(work.narrow_rows, (feature + bit) * width, load8(dense, position))
                    vstore(work.narrow_rows, (feature + bit + 1) * width, zero8())
                    prefetch(dense, position + _AHEAD)
                    position += width
                    continue
                is_dense = (dense_rows >> bit) & 1
                work.feature_row[place(feature + bit)] = -1 - n_dense if is_dense else 1 + n_sparse
                n_dense += is_dense
                n_sparse += 1 - is_dense


@inlined
def clear_features(ensemble: TreeEnsemble, node: int, by_feature: I32 | F32, width: int) -> None:
    """Set the numbers of the chunk's features, `width` for each feature, to 0 again.

    by_feature  `work.feature_row`, or `work.narrow_rows`
    """
    chunk = ensemble.node_chunk[node]
    for group in range(ensemble.directory.shape[1]):
        blocks = np.int64(ensemble.directory[chunk, group, 0])
        while blocks != 0:
            feature = (group << GROUP_BITS) + (lowest_lane(blocks) << BLOCK_BITS)
            blocks &= blocks - 1
            for i in range(feature * width, (feature + _BLOCK) * width):
                by_feature[place(i)] = 0


@inlined
def end_of_run(nodes: I32, k: int, n_nodes: int) -> int:
    """Return the first place after the k-th in a list of nodes that holds another node."""
    end = k + 1
    while end < n_nodes and nodes[end] == nodes[k]:
        end += 1
    return end


@inlined
def _end_of_turn(
    ensemble: TreeEnsemble, nodes: I32, k: int, n_nodes: int, row_features: int, work: Workspace
) -> int:
    """Return the first place, from the k-th on, at which a run of one node begins whose chunk is
    worth mapping; n_nodes if there is none.

    row_features  about how many features a row has
    """
    if len(work.feature_row) == 0:
        return n_nodes
    while k < n_nodes:
        end = end_of_run(nodes, k, n_nodes)
        if _is_worth_mapping(ensemble, nodes[k], (end - k) * row_features, work):
            break
        k = end
    return k


@inlined
def begin_piece(
    ensemble: TreeEnsemble, nodes: I32, k: int, n_nodes: int, row_features: int, work: Workspace
) -> tuple[int, bool]:
    """Prepare to score nodes from the k-th on; return (where they end, whether they are mapped).

    Entries of one node are adjacent. If enough entries need the chunk of the k-th node, it is
    spread over the map, and the piece is that node's entries. Otherwise the piece is all entries up
    to the next node whose chunk is worth mapping, and they are scored IN_TURN.
    """
    end = end_of_run(nodes, k, n_nodes)
    if _is_worth_mapping(ensemble, nodes[k], (end - k) * row_features, work):
        return end, True
    start_turns(work, k)
    return _end_of_turn(ensemble, nodes, end, n_nodes, row_features, work), False
