"""The state of an online tree as arrays, and a tree restored from them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.base import offsets
from xylem.trainers.lomtree.tables import (
    BITS_MIN,
    N_VALUES,
    SIZES,
    Pool,
    contents,
    fill,
    n_refused,
)
from xylem.trainers.lomtree.tree import (
    LEAF,
    N_NODES,
    N_SPLITS,
    ROOT,
    OnlineTree,
)
from xylem.trainers.state import LearnerState, check_that
from xylem_store import I64

# The fields with an element for each node, which are stored in a state. The other fields are
# `nodes`, `state` and the pools of tables.
_OF_NODES = OnlineTree._fields[:-4]


def tree_arrays(tree: OnlineTree) -> dict[str, NDArray[Any]]:
    """Return the arrays of a tree's state.

    Equal trees have equal arrays, wherever their tables lie in the pools. The positions of blocks,
    and of keys in blocks, are not stored: neither the keys that are found nor the keys that have no
    room depend on them.
    """
    n = int(tree.state[N_NODES])
    arrays = {f"node/{name}": np.ascontiguousarray(getattr(tree, name)[:n]) for name in _OF_NODES}
    for part in ("weights", "classes"):
        pool: Pool = getattr(tree, part)
        _, slots = contents(pool, np.arange(n))
        free = np.zeros(SIZES, np.int64)  # number of free blocks of each size
        for size in range(SIZES):
            block = int(pool.free[size])
            while block >= 0:
                free[size], block = free[size] + 1, int(pool.key[block])
        arrays |= {
            f"{part}/bits": pool.bits[:n].copy(),
            f"{part}/used": pool.used[:n].copy(),
            f"{part}/keys": pool.key[slots],
            f"{part}/values": np.ascontiguousarray(pool.value[slots, :N_VALUES]),
            f"{part}/free": free,
            f"{part}/refused": np.array([n_refused(pool)]),
        }
    return {**arrays, "counts": tree.state}


def restore_tree(state: LearnerState, tree: OnlineTree, n_labels: int) -> None:
    """Write a stored state over a tree without rows.

    n_labels  every label of the state must be less than this

    Raises Corrupt, and the errors that `restoring` turns into it.
    """
    tree.state[:] = state.take("counts", "int64", len(tree.state))
    n = int(tree.state[N_NODES])
    check_that(
        1 <= n <= len(tree.left) and n == 2 * tree.state[N_SPLITS] + 1,
        "1 + 2 * splits nodes",
    )
    for name in _OF_NODES:
        array = getattr(tree, name)
        array[:n] = state.take(f"node/{name}", array.dtype.name, n, *array.shape[1:])
    left = tree.left[:n]
    right = tree.right[:n]
    parent = tree.parent[:n]
    root = int(tree.state[ROOT])
    inner = np.flatnonzero(left != LEAF)
    children = np.concatenate([left[inner], right[inner]])
    non_roots = np.delete(np.arange(n), root) if 0 <= root < n else np.empty(0)
    # each node but the root is the child of one node, so there are no cycles below the root
    check_that(np.array_equal(np.sort(children), non_roots), "one tree")
    check_that(
        (parent[children] == np.tile(inner, 2)).all() and parent[root] == -1, "parents of children"
    )
    for part in ("weights", "classes"):
        _restore_pool(state, part, getattr(tree, part), n)
    check_that((state.arrays["classes/keys"] < n_labels).all(), "labels of the version")


def _restore_pool(state: LearnerState, part: str, pool: Pool, n: int) -> None:
    """Write the contents of n tables into an empty pool, with one block after the other."""
    bits = state.take(f"{part}/bits", "int32", n)
    used = state.take(f"{part}/used", "int32", n)
    keys = state.take(f"{part}/keys", "int32", None)
    free = state.take(f"{part}/free", "int64", SIZES)
    values = state.take(f"{part}/values", pool.value.dtype.name, len(keys), N_VALUES)
    has = np.flatnonzero(bits != -1)
    check_that(((bits[has] >= BITS_MIN) & (bits[has] < SIZES)).all(), "sizes of tables")
    n_free = sum(blocks << size for size, blocks in enumerate(free.tolist()))
    check_that((free >= 0).all() and n_free <= len(pool.key), "free blocks")
    block_bits: I64 = np.concatenate(
        [bits[has].astype(np.int64), np.repeat(np.arange(SIZES), free)]
    )
    starts = offsets(np.int64(1) << block_bits)
    check_that(starts[-1] <= len(pool.key), "tables within the memory of the parameters")
    room = np.where(bits < 0, 0, np.int64(3) << np.maximum(bits, 0).astype(np.int64))
    check_that(
        (used >= 0).all() and (4 * used.astype(np.int64) <= room).all(), "tables with room for keys"
    )
    ptr = offsets(used)
    check_that(ptr[-1] == len(keys) and (keys >= 0).all(), "keys of tables")
    same_table = np.diff(np.repeat(np.arange(n), used)) == 0
    check_that((np.diff(keys.astype(np.int64))[same_table] > 0).all(), "ascending keys")
    pool.start[has] = starts[: len(has)]
    pool.bits[:n] = bits
    pool.key[: starts[-1]] = -1
    for start, size in zip(
        starts[len(has) : -1].tolist(), block_bits[len(has) :].tolist(), strict=True
    ):
        pool.key[start] = pool.free[size]
        pool.free[size] = start
    pool.counts[:2] = starts[-1], state.take(f"{part}/refused", "int64", 1)[0]
    fill(pool, ptr, keys.copy(), values.copy())
