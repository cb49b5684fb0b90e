"""Xylem itself, run as the peers are: in a fresh process, one JSON line a figure.

python -m benchmarks.ours train|predict WORK --trees T [--threads N] [--beam-width 10]
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.peers.figures import arguments, say, say_batch, say_calls
from xylem.base.rows import LabelRows, SparseRows
from xylem.engine.buffers import BufferPool, Need
from xylem.engine.kernels.search.beam import beam_rows
from xylem.engine.kernels.search.call import set_rows, set_search
from xylem.engine.kernels.search.workspace import BeamShape, BeamWorkspace
from xylem.engine.options import ALL_ALLOWED, ALL_EQUAL, ALL_PASS
from xylem.engine.predictor import PredictOptions, Predictor
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.ensemble import LINK_CODES
from xylem_store.extras import NO_CALIBRATION, NO_RERANK
from xylem_store.store import Store
from xylem_store.version import Model


def store_of(work: Path, trees: int) -> Path:
    """Return the store of the model with so many trees, alone in it."""
    return work / f"store-{trees}"


def train(work: Path, trees: int, threads: int, parameters: list[str]) -> None:
    request = TrainRequest(
        trainer="label-tree",
        data=work / "train.txt",
        parameters=(f"trees={trees}", *parameters),
        threads=threads,
    )
    report = train_and_publish(Store(store_of(work, trees)), "model", request)
    say("train_seconds", report.train_seconds)
    say("peak_memory_bytes", report.peak_memory_bytes)
    say("model_bytes", report.model_bytes)


def load(work: Path, trees: int) -> tuple[Model, Predictor]:
    model = Store(store_of(work, trees)).open("model")
    return model, Predictor(model)


def test_rows(work: Path) -> SparseRows:
    return rows_of(sp.load_npz(work / "test.rows.npz").tocsr())


def predict(work: Path, trees: int, options: PredictOptions, repeats: int, calls: int) -> None:
    rows = test_rows(work)
    model, predictor = load(work, trees)
    predictor.warm_up()
    say_batch(lambda: predictor.predict(rows, options, 1), rows.n_rows, repeats)
    single = [rows.cut(i % rows.n_rows, i % rows.n_rows + 1) for i in range(calls)]
    say_calls("one_call", [partial(predictor.predict, row, options) for row in single])
    alone = below(model, options)
    say_calls("one_call_below", [partial(alone, row) for row in single])
    found = predictor.predict(rows, options, 1)
    shape = (rows.n_rows, predictor.n_labels)
    sp.save_npz(
        work / f"xylem-{trees}.found.npz",
        sp.csr_matrix((found.scores, found.labels, found.ptr), shape),
    )


def below(model: Model, options: PredictOptions) -> Callable[[SparseRows], None]:
    """Return the call of the compiled traversal alone for one row, its buffers made before."""
    shape = BeamShape(model.ensemble)

    def make_own(need: Need) -> BeamWorkspace:
        return shape.make(n_rows=1, beam_width=need.beam_width, top_r=need.top_r)

    pool = BufferPool(model.ensemble, NO_RERANK, NO_CALIBRATION, make_own)
    buffers = pool.take(Need(1, model.manifest.n_features, options.beam_width, options.top_r))
    link, width, top_r = LINK_CODES[model.manifest.link], options.beam_width, options.top_r
    set_search(buffers.search, link, width, top_r, False, ALL_ALLOWED, ALL_EQUAL, ALL_PASS)

    def call(row: SparseRows) -> None:
        set_rows(buffers.rows, row.indptr, row.indices, row.values)
        beam_rows(buffers.call)

    return call


def rows_of(matrix: sp.csr_matrix) -> SparseRows:
    matrix.sort_indices()
    return SparseRows(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.float32),
        matrix.shape[1],
    )


def instances_of(rows: SparseRows) -> list[dict[str, list[float]]]:
    """Return rows as instances of requests."""
    parts = (rows.cut(i, i + 1) for i in range(rows.n_rows))
    return [
        {"indices": row.indices.tolist(), "values": [float(str(value)) for value in row.values]}
        for row in parts
    ]


def labels_of(matrix: sp.csr_matrix) -> LabelRows:
    matrix.sort_indices()
    return LabelRows(
        matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.shape[1]
    )


def main() -> None:
    parser = arguments(__doc__, ["train", "predict"])
    parser.add_argument("--trees", type=int, default=1)
    parser.add_argument("-p", dest="parameters", action="append", default=[])
    given = parser.parse_args()
    work, trees = given.work, given.trees
    options = PredictOptions(top_r=given.top_r, beam_width=given.beam_width)
    if given.command == "train":
        train(work, trees, given.threads, given.parameters)
    else:
        predict(work, trees, options, given.repeats, given.calls)


if __name__ == "__main__":
    main()
