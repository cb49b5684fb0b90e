"""Arrays lent by address: what kernels see of them, and what is refused."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from model_store.compiled.decorators import borrowing_kernel
from model_store.compiled.handles import Kinds, borrower, lend
from model_store.ensemble import TreeEnsemble
from service.kernels.search.beam_workspace import BEAM_KINDS, BeamShape
from service.kernels.search.ensemble_handle import ENSEMBLE_KINDS
from service.kernels.search.queue_workspace import QUEUE_KINDS, make_queue
from service.kernels.search.workspace import WORKSPACE_KINDS, make_workspace
from tests.oracles.trees import random_forest


class Pair(NamedTuple):
    """Two arrays."""

    ints: np.ndarray
    floats: np.ndarray


PAIR_KINDS: Kinds = {"ints": (np.int32, 1), "floats": (0, 3)}
borrow_pair = borrower(Pair, PAIR_KINDS)


@borrowing_kernel
def read_pair(lent, sample, i, j, k, m):
    pair = borrow_pair(lent, (sample,))
    return pair.ints[i] + pair.floats[j, k, m], pair.ints.shape[0], pair.floats.shape


@borrowing_kernel
def write_pair(lent, sample, i, value):
    borrow_pair(lent, (sample,)).ints[i] = value


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_kernel_reads_and_writes_the_lent_arrays(dtype):
    pair = Pair(np.arange(5, dtype=np.int32), np.arange(24, dtype=dtype).reshape(2, 3, 4))
    lent, sample = lend(pair, PAIR_KINDS), np.empty(0, dtype)
    assert read_pair(lent, sample, 4, 1, 2, 3) == (27.0, 5, (2, 3, 4))
    write_pair(lent, sample, 2, -7)
    assert pair.ints.tolist() == [0, 1, -7, 3, 4]


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (Pair(np.zeros(5, np.int64), np.zeros((1, 1, 1))), "ints: expected 1 dimensions of .*int32"),
        (Pair(np.zeros((5, 1), np.int32), np.zeros((1, 1, 1))), "ints: expected 1 dimensions"),
        (Pair(np.zeros(10, np.int32)[::2], np.zeros((1, 1, 1))), "ints: expected a C-contiguous array"),
        (Pair(np.zeros(5, np.int32), np.zeros((1, 1))), "floats: expected 3 dimensions"),
    ],
)
def test_other_arrays_are_refused(pair, message):
    with pytest.raises(ValueError, match=message):
        lend(pair, PAIR_KINDS)


def test_the_kinds_name_every_field_in_order():
    with pytest.raises(ValueError, match=r"expected the fields \('ints', 'floats'\)"):
        borrower(Pair, {"floats": (np.int32, 1), "ints": (np.int32, 1)})


@pytest.mark.parametrize("n_trees", [1, 2])
def test_ensembles_and_workspaces_are_of_their_kinds(n_trees):
    _, ensemble = random_forest(0, n_trees=n_trees, n_labels=9, n_features=40, arity=3)
    assert tuple(ENSEMBLE_KINDS) == TreeEnsemble._fields
    for maps_features in (False, True):
        work = make_workspace(ensemble, n_features=5, maps_features=maps_features)
        assert len(lend(work, WORKSPACE_KINDS)) == 4 * len(work)
    beam = BeamShape(ensemble).make(n_rows=3, beam_width=2, top_r=3)
    assert len(lend(beam, BEAM_KINDS)) == 4 * len(beam)
    queue = make_queue(ensemble, top_r=3)
    assert len(lend(queue, QUEUE_KINDS)) == 4 * len(queue)
    assert len(lend(ensemble, ENSEMBLE_KINDS)) == 4 * len(ensemble)
