"""napkinXC's PLT with its defaults. Runs in the peer's environment; one JSON line a figure.

python napkinxc_peer.py train|predict|first WORK [--threads N] [--top-r 10]

It searches exactly, so there is no beam.
"""

import time
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from figures import arguments, load_rows, save_found, say_batch, say_calls, say_training
from napkinxc.models import PLT


def train(work: Path, threads: int) -> None:
    rows = load_rows(work, "train", np.float32)
    labels = sp.load_npz(work / "train.labels.npz").tocsr()
    model = PLT(str(work / "napkinxc"), threads=threads, seed=1)
    start = time.perf_counter()
    model.fit(rows, labels)
    say_training(start, work / "napkinxc", lambda: None)  # it saves as it trains


def load(work: Path) -> PLT:
    model = PLT(str(work / "napkinxc"), threads=1)
    model.load()
    return model


def predict(work: Path, top_r: int, repeats: int, calls: int) -> None:
    rows = load_rows(work, "test", np.float32)
    n_rows = rows.shape[0]
    model = load(work)
    say_batch(partial(model.predict_proba, rows, top_k=top_r), n_rows, repeats)
    single = [rows[i % n_rows] for i in range(calls)]
    say_calls("one_call", [partial(model.predict_proba, row, top_k=top_r) for row in single])
    found = model.predict_proba(rows, top_k=top_r)
    save_found(work, "napkinxc", found)


def main() -> None:
    given = arguments(__doc__, ["train", "predict"]).parse_args()
    if given.command == "train":
        train(given.work, given.threads)
    else:
        predict(given.work, given.top_r, given.repeats, given.calls)


if __name__ == "__main__":
    main()
