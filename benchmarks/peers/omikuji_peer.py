"""omikuji with its defaults. Runs in the peer's environment; one JSON line a figure.

    python omikuji_peer.py train|predict|first WORK --trees T [--threads N] [--top-r 10]
    [--beam-width 10]

omikuji reads the Extreme Classification Repository's text format and refuses rows without a
feature; it predicts one row a call.
"""

import shutil
import time
from functools import partial
from pathlib import Path

import numpy as np
import omikuji
from figures import arguments, load_rows, save_found, say_calls, say_training
from omikuji import _ThreadPoolHandle
from omikuji._libomikuji import ffi, lib

Pairs = list[tuple[int, float]]


def train(work: Path, trees: int, threads: int) -> None:
    pool = _ThreadPoolHandle(threads, initialize=True)
    data = lib.load_omikuji_data_set(ffi.new("char[]", str(work / "train.txt").encode()), pool.ptr)
    if data == ffi.NULL:
        raise SystemExit("omikuji could not read the rows")
    parameters = omikuji.Model.default_hyper_param()
    parameters.n_trees = trees
    start = time.perf_counter()
    found = lib.train_omikuji_model(data, parameters, pool.ptr)
    if found == ffi.NULL:
        raise SystemExit("omikuji could not train")
    out = work / f"omikuji-{trees}"
    shutil.rmtree(out, ignore_errors=True)  # omikuji adds its trees to those that it finds there
    say_training(start, out, lambda: omikuji.Model(found).save(str(out)))


def load(work: Path, trees: int) -> omikuji.Model:
    model = omikuji.Model.load(str(work / f"omikuji-{trees}"))
    model.init_prediction_thread_pool(1)
    return model


def test_rows(work: Path) -> list[Pairs]:
    rows = load_rows(work, "test", np.float32)
    cuts = [slice(*rows.indptr[i : i + 2]) for i in range(rows.shape[0])]
    return [
        list(zip(rows.indices[cut].tolist(), rows.data[cut].tolist(), strict=True)) for cut in cuts
    ]


def predict(work: Path, trees: int, top_r: int, beam_width: int, calls: int) -> None:
    rows = test_rows(work)
    model = load(work, trees)
    answer = partial(model.predict, beam_size=beam_width, top_k=top_r)
    found = [answer(row) for row in rows]
    say_calls("one_call", [partial(answer, rows[i % len(rows)]) for i in range(calls)])
    save_found(work, f"omikuji-{trees}", found)


def main() -> None:
    parser = arguments(__doc__, ["train", "predict"])
    parser.add_argument("--trees", type=int, default=3)
    given = parser.parse_args()
    work, trees = given.work, given.trees
    if given.command == "train":
        train(work, trees, given.threads)
    else:
        predict(work, trees, given.top_r, given.beam_width, given.calls)


if __name__ == "__main__":
    main()
