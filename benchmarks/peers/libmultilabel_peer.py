"""libmultilabel's linear tree. Runs in the peer's environment; one JSON line a figure.

    python libmultilabel_peer.py train|predict|first WORK [--threads N] [--arity 100] [--beam-width
    10]

Its k-means and its solver print to standard output; figures are the lines of JSON.
"""

import time
from functools import partial
from pathlib import Path
from typing import Any

import libmultilabel.linear as linear
import numpy as np
import scipy.sparse as sp
from figures import arguments, load_rows, say_batch, say_calls, say_training


def train(work: Path, threads: int, arity: int) -> None:
    rows = load_rows(work, "train", np.float64)
    labels = sp.load_npz(work / "train.labels.npz").tocsr().astype(np.float64)
    np.random.seed(1)  # libmultilabel draws from the global generator
    start = time.perf_counter()
    model = linear.train_tree(labels, rows, f"-s 1 -e 0.1 -m {threads} -q", K=arity, verbose=False)
    out = work / "libmultilabel"
    say_training(start, out, lambda: linear.utils.save_pipeline(str(out), None, model))


def load(work: Path) -> Any:
    return linear.utils.load_pipeline(str(work / "libmultilabel" / "linear_pipeline.pickle"))[1]


def predict(work: Path, top_r: int, beam_width: int, repeats: int, calls: int) -> None:
    rows = load_rows(work, "test", np.float64)
    n_rows = rows.shape[0]
    model = load(work)
    answer = partial(model.predict_values, beam_width=beam_width)
    say_batch(partial(answer, rows), n_rows, repeats)
    say_calls("one_call", [partial(answer, rows[i % n_rows]) for i in range(calls)])
    scores = answer(rows)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top_r]
    values = np.take_along_axis(scores, best, axis=1).astype(np.float32).ravel()
    indptr = np.arange(0, best.size + 1, best.shape[1])
    found = sp.csr_matrix((values, best.ravel(), indptr), scores.shape)
    sp.save_npz(work / "libmultilabel.found.npz", found)


def main() -> None:
    parser = arguments(__doc__, ["train", "predict"], calls=200)
    parser.add_argument("--arity", type=int, default=100)
    given = parser.parse_args()
    if given.command == "train":
        train(given.work, given.threads, given.arity)
    else:
        predict(given.work, given.top_r, given.beam_width, given.repeats, given.calls)


if __name__ == "__main__":
    main()
