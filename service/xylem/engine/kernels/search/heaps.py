"""Two heaps of (score, id) in preallocated arrays: the k best entries so far, and the frontier of a
search.

The order is total, so that answers do not depend on the order of insertion: a larger score is
better, and of equal scores the one with the smaller id.

Conventions: `scores` is float32[capacity], `ids` is int32[capacity], and the first `size` entries
are the heap. Functions that change the size return the new one.
"""

from numpy import float32

from xylem_store import F32, I32, nonallocating_inlined as inlined


@inlined
def better(score: float32, id_: int, other_score: float32, other_id: int) -> bool:
    """Return whether (score, id_) is better than (other_score, other_id)."""
    return bool(score > other_score or (score == other_score and id_ < other_id))


@inlined
def keep_best(scores: F32, ids: I32, size: int, capacity: int, score: float32, id_: int) -> int:
    """Offer an entry to the heap of the `capacity` best, whose root is the worst of them.

    O(log capacity); capacity >= 1.
    """
    if size < capacity:
        return _rise(scores, ids, size, score, id_, False)
    if better(score, id_, scores[0], ids[0]):
        _sink(scores, ids, size, score, id_, False)
    return size


@inlined
def _rise(scores: F32, ids: I32, size: int, score: float32, id_: int, best_first: bool) -> int:
    """Add an entry and let it rise to its place; return the size.

    best_first  whether the root is the best entry; otherwise it is the worst one
    """
    slot = size
    while slot > 0:
        above = (slot - 1) >> 1
        if better(score, id_, scores[above], ids[above]) != best_first:
            break
        scores[slot] = scores[above]
        ids[slot] = ids[above]
        slot = above
    scores[slot] = score
    ids[slot] = id_
    return size + 1


@inlined
def _sink(scores: F32, ids: I32, size: int, score: float32, id_: int, best_first: bool) -> None:
    """Replace the root by an entry, and let it sink to its place; `best_first` as in `_rise`."""
    slot = 0
    while True:
        below = 2 * slot + 1
        if below >= size:
            break
        right = below + 1
        first, second = (right, below) if best_first else (below, right)
        if right < size and better(scores[first], ids[first], scores[second], ids[second]):
            below = right
        if better(scores[below], ids[below], score, id_) != best_first:
            break
        scores[slot] = scores[below]
        ids[slot] = ids[below]
        slot = below
    scores[slot] = score
    ids[slot] = id_


@inlined
def sort_best(scores: F32, ids: I32, size: int) -> None:
    """Sort a heap of keep_best in place, the best entry first. O(size log size)."""
    for last in range(size - 1, 0, -1):
        score = scores[last]
        id_ = ids[last]
        scores[last] = scores[0]
        ids[last] = ids[0]
        _sink(scores, ids, last, score, id_, False)


@inlined
def push_frontier(scores: F32, ids: I32, size: int, score: float32, id_: int) -> int:
    """Add an entry to the frontier, whose root is the best entry. O(log size).

    The arrays must have room.
    """
    return _rise(scores, ids, size, score, id_, True)


@inlined
def pop_frontier(scores: F32, ids: I32, size: int) -> int:
    """Remove the root of the frontier, after the caller has read it. O(log size)."""
    size -= 1
    _sink(scores, ids, size, scores[size], ids[size], True)
    return size
