"""libpecos's XLinearModel with its defaults. Runs in the peer's
environment; one JSON line a figure.

python libpecos_peer.py train|predict|first|threads WORK [--threads N] [--top-r 10] [--beam-width
10]
"""

import time
from collections.abc import Callable
from ctypes import byref
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from figures import arguments, load_rows, say_batch, say_calls, say_training
from pecos.core import ScipyCompressedSparseAllocator, ScipyCsrF32, clib
from pecos.utils import smat_util
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

VARIANTS = ("BINARY_SEARCH_CHUNKED", "HASH_CHUNKED")
"""The layouts of its weights; of each figure the faster one counts, and
the last is the faster one mostly.
"""


def train(work: Path, threads: int) -> None:
    rows = load_rows(work, "train", np.float32)
    labels = smat_util.load_matrix(str(work / "train.labels.npz")).astype(np.float32)
    start = time.perf_counter()
    embedding = LabelEmbeddingFactory.create(labels, rows, method="pifa")
    chain = Indexer.gen(embedding, indexer_type="hierarchicalkmeans", threads=threads)
    model = XLinearModel.train(rows, labels, C=chain, threads=threads)
    say_training(start, work / "libpecos", lambda: model.save(str(work / "libpecos")))


def load(work: Path, variant: str) -> XLinearModel:
    return XLinearModel.load(
        str(work / "libpecos"), is_predict_only=True, weight_matrix_type=variant
    )


def c_call(
    model: XLinearModel, row: sp.csr_matrix, top_r: int, beam_width: int
) -> Callable[[], None]:
    """Return the call of the C function alone for one row, everything converted before."""
    allocator = ScipyCompressedSparseAllocator()
    matrix = ScipyCsrF32.init_from(row)
    function, handle = clib.clib_float32.c_xlinear_predict_csr_f32, model.model.model_chain
    arguments = handle, byref(matrix), beam_width, None, top_r, 1, allocator.cfunc
    return lambda: function(*arguments)


def predict(work: Path, top_r: int, beam_width: int, repeats: int, calls: int) -> None:
    rows = load_rows(work, "test", np.float32)
    options = {"only_topk": top_r, "beam_size": beam_width, "threads": 1}
    single = [rows[i % rows.shape[0]] for i in range(calls)]
    for variant in VARIANTS:
        model = load(work, variant)
        say_batch(partial(model.predict, rows, **options), rows.shape[0], repeats)
        say_calls("one_call", [partial(model.predict, row, **options) for row in single])
        say_calls("one_call_below", [c_call(model, row, top_r, beam_width) for row in single])
    sp.save_npz(work / "libpecos.found.npz", model.predict(rows, **options).tocsr())


def main() -> None:
    given = arguments(__doc__, ["train", "predict"]).parse_args()
    work, top_r, beam_width = given.work, given.top_r, given.beam_width
    if given.command == "train":
        train(work, given.threads)
    else:
        predict(work, top_r, beam_width, given.repeats, given.calls)


if __name__ == "__main__":
    main()
