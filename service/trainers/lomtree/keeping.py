"""The state of an online tree as arrays, and back: its nodes, and the contents of their tables."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.handles import I64
from service.base.rows import offsets
from service.trainers.lomtree.tables import (
    BITS_MIN,
    N_VALUES,
    SIZES,
    Pool,
    contents,
    fill,
    n_refused,
)
from service.trainers.lomtree.tree import LEAF, N_NODES, N_SPLITS, ROOT, OnlineTree
from service.trainers.state import LearnerState, check_that

_OF_NODES = OnlineTree._fields[:-4]
"""What is kept of each node as it is; the others are views of it, or tables."""


def tree_arrays(tree: OnlineTree) -> dict[str, NDArray[Any]]:
    """Return what is kept of a tree: the same of two that are the same, wherever their tables lie.

    Where blocks lie, and keys in them, is of no effect on what is found, or on when there is no room.
    """
    n = int(tree.state[N_NODES])
    arrays = {f"node/{name}": np.ascontiguousarray(getattr(tree, name)[:n]) for name in _OF_NODES}
    for part in ("weights", "classes"):
        pool: Pool = getattr(tree, part)
        _, slots = contents(pool, np.arange(n))
        free = np.zeros(SIZES, np.int64)  # how many blocks there are of each size
        for size in range(SIZES):
            at = int(pool.free[size])
            while at >= 0:
                free[size], at = free[size] + 1, int(pool.key[at])
        arrays |= {
            f"{part}/bits": pool.bits[:n].copy(),
            f"{part}/used": pool.used[:n].copy(),
            f"{part}/keys": pool.key[slots],
            f"{part}/values": np.ascontiguousarray(pool.value[slots, :N_VALUES]),
            f"{part}/free": free,
            f"{part}/refused": np.array([n_refused(pool)]),
        }
    return {**arrays, "counts": tree.state}


def restore_tree(found: LearnerState, tree: OnlineTree, n_labels: int) -> None:
    """Write what was kept over a tree without rows. Raises Corrupt, and what `restoring` refuses.

    n_labels  labels of its classes are below
    """
    tree.state[:] = found.take("counts", "int64", len(tree.state))
    n = int(tree.state[N_NODES])
    check_that(1 <= n <= len(tree.left) and n == 2 * tree.state[N_SPLITS] + 1, "as many nodes as splits make")
    for name in _OF_NODES:
        array = getattr(tree, name)
        array[:n] = found.take(f"node/{name}", array.dtype.name, n, *array.shape[1:])
    left, right, parent, root = tree.left[:n], tree.right[:n], tree.parent[:n], int(tree.state[ROOT])
    inner = np.flatnonzero(left != LEAF)
    children = np.concatenate([left[inner], right[inner]])
    others = np.delete(np.arange(n), root) if 0 <= root < n else np.empty(0)
    check_that(np.array_equal(np.sort(children), others), "one tree")  # no way down from the root comes back
    check_that((parent[children] == np.tile(inner, 2)).all() and parent[root] == -1, "parents of children")
    for part in ("weights", "classes"):
        _restore_pool(found, part, getattr(tree, part), n)
    check_that((found.arrays["classes/keys"] < n_labels).all(), "labels that there are")


def _restore_pool(found: LearnerState, part: str, pool: Pool, n: int) -> None:
    """Write the contents of n tables into an empty pool, whose blocks then lie one after the other."""
    bits, used = found.take(f"{part}/bits", "int32", n), found.take(f"{part}/used", "int32", n)
    keys, free = found.take(f"{part}/keys", "int32", None), found.take(f"{part}/free", "int64", SIZES)
    values = found.take(f"{part}/values", pool.value.dtype.name, len(keys), N_VALUES)
    has = np.flatnonzero(bits != -1)
    check_that(((bits[has] >= BITS_MIN) & (bits[has] < SIZES)).all(), "sizes of tables")
    n_free = sum(blocks << size for size, blocks in enumerate(free.tolist()))
    check_that((free >= 0).all() and n_free <= len(pool.key), "free blocks")
    each: I64 = np.concatenate([bits[has].astype(np.int64), np.repeat(np.arange(SIZES), free)])
    starts = offsets(np.int64(1) << each)
    check_that(starts[-1] <= len(pool.key), "tables within the memory of the parameters")
    room = np.where(bits < 0, 0, np.int64(3) << np.maximum(bits, 0).astype(np.int64))
    check_that((used >= 0).all() and (4 * used.astype(np.int64) <= room).all(), "tables with room for keys")
    ptr = offsets(used)
    check_that(ptr[-1] == len(keys) and (keys >= 0).all(), "keys of tables")
    same_table = np.diff(np.repeat(np.arange(n), used)) == 0
    check_that((np.diff(keys.astype(np.int64))[same_table] > 0).all(), "keys in their order")
    pool.start[has], pool.bits[:n] = starts[: len(has)], bits
    pool.key[: starts[-1]] = -1
    for at, size in zip(starts[len(has) : -1].tolist(), each[len(has) :].tolist(), strict=True):
        pool.key[at], pool.free[size] = pool.free[size], at
    pool.counts[:] = starts[-1], found.take(f"{part}/refused", "int64", 1)[0]
    fill(pool, ptr, keys.copy(), values.copy())
