"""Compile every kernel into the kernel cache.

With XYLEM_KERNEL_CPU=portable, every kernel is compiled for each level of processors that this
machine can run. To reach all kernels, this module does what users do, on tiny data: train,
evaluate, tune thresholds, open models and answer, for each kind of features and weights.
"""

import json
import logging
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from xylem.base import DEFAULT_COLUMNS, Limits, collect_seldom, n_processors, no_progress
from xylem.serving import (
    LabelInfos,
    LineBlock,
    LiveLabelInfo,
    Options,
    answer_block,
    serve_model,
    store_of,
    to_options,
)
from xylem.thresholds import METHODS, TuneRequest
from xylem.trainers import TRAINERS
from xylem.vocabulary import CombineRequest, unranked_version
from xylem.workflows import (
    TrainRequest,
    estimate_size,
    evaluate_rows,
    extend_and_publish,
    read_labelled,
    train_and_publish,
    tune,
)
from xylem_store import (
    WEIGHTS,
    Model,
    Store,
    Subject,
    Weights,
    build_label_info,
    cache_dir,
    environments_by_level,
)

# the most processes that compile. Each takes up to 0.8 GB. More would wait for each other, because
# each kernel is compiled by one process only
_PROCESSES_MAX = 4

_N_KERNELS = 578  # kernels of all jobs; used only by the progress bar
_LOOK_SECONDS = 0.5

_N_ROWS = 100  # the fewest that scores are calibrated with
_N_LABELS = 8
_N_FEATURES = 12


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    """Write a training file for each kind of features; yield the kind and the file.

    A row has two features; the first one determines its label.
    """
    features = [(row % _N_LABELS, _N_LABELS + row % 4) for row in range(_N_ROWS)]
    words = [[f"word{first}", f"word{second}"] for first, second in features]
    for kind in ("tfidf", "chars", "words+chars", "hashing", "named"):
        path = directory / f"{kind}.jsonl"
        with path.open("w") as file:
            for row, (first, _) in enumerate(features):
                instance = (
                    {"features": dict.fromkeys(words[row], 1)}
                    if kind == "named"
                    else {"text": " ".join(words[row])}
                )
                file.write(json.dumps({**instance, "labels": [f"label{first}"]}) + "\n")
        yield kind, path
    lines = [f"{first} {first}:1 {second}:0.5" for first, second in features]
    for suffix, head in {"txt": f"{_N_ROWS} {_N_FEATURES} {_N_LABELS}\n", "svm": ""}.items():
        path = directory / f"raw.{suffix}"
        path.write_text(head + "\n".join(lines) + "\n")
        yield "raw", path


# the parameters of the job whose texts have vectors
_VECTORS = ("features.kind=words+chars", "vectors.dims=2")


class WarmUpJob(NamedTuple):
    """A version to train, publish and predict with."""

    trainer: str
    data: Path
    parameters: tuple[str, ...] = ()
    weights: Weights = "float32"


def jobs(directory: Path) -> list[WarmUpJob]:
    """Return jobs that together need every kernel, the longest first.

    There is a job for each trainer, kind of features and type of weights. Label trees and decision
    trees have different kernels for each type of weights.
    """
    files = list(_files(directory))
    raw = files[-1][1]
    trainers = [WarmUpJob(trainer, raw) for trainer in TRAINERS]
    variants = [
        *(WarmUpJob("plt", raw, ("solver=sgd", f"tree={tree}")) for tree in ("kmeans", "huffman")),
        WarmUpJob("huffman-tree", raw, ("arity=3", "tree=clustered")),
        *(
            WarmUpJob("learned-tree", raw, ("arity=3", f"optimiser={name}", "statistics=paths"))
            for name in ("sgd", "adagrad")
        ),
        WarmUpJob("ldsm", raw, ("optimiser=nag", "rerank=yes")),
        # By default a tree does not divide so few labels. Here it does, as with thousands.
        *(WarmUpJob(trainer, raw, ("leaf_size=2",)) for trainer in ("label-tree", "plt")),
    ]
    stored = [
        WarmUpJob(trainer, raw, weights=weights)
        for weights in WEIGHTS[1:]
        for trainer in ("label-tree", "ldsm", "huffman-tree")
    ]
    stops = directory / "stops.txt"
    stops.write_text(f"word{_N_LABELS}\n")
    texts = next(path for kind, path in files if kind == "words+chars")
    features = [
        *(WarmUpJob("label-tree", path, (f"features.kind={kind}",)) for kind, path in files),
        # pairs of words have a kernel of their own, for arrays of a version and of a training
        *(
            WarmUpJob("label-tree", path, (f"features.kind={kind}", "features.bigrams=true"))
            for kind, path in files
            if kind in ("tfidf", "hashing")
        ),
        WarmUpJob(
            "label-tree", texts, ("features.kind=words+chars", f"features.stop_words={stops}")
        ),
        WarmUpJob("label-tree", texts, _VECTORS),
    ]
    return [features[0], *reversed(trainers), *variants, *stored, *features[1:]]


def warm(job: WarmUpJob) -> None:
    """Compile the kernels that a job needs by running it."""
    columns = DEFAULT_COLUMNS
    with tempfile.TemporaryDirectory() as directory:
        store = store_of(Path(directory))
        if job.parameters == _VECTORS:
            vectors = Path(directory, "vectors.npy")
            np.save(vectors, np.eye(_N_ROWS, 3, dtype=np.float32))
            columns = columns.with_vectors([vectors], job.data)
        request = TrainRequest(
            trainer=job.trainer,
            data=job.data,
            valid=job.data,
            parameters=job.parameters,
            columns=columns,
            weights=job.weights,
        )
        if job.trainer == "lomtree" or "solver=sgd" in job.parameters:
            train_and_publish(
                store, "warm", request.model_copy(update={"keep_state": True, "until": 1})
            )
            request = request.model_copy(update={"parameters": (), "base": "warm@1"})
        model = store.open("warm", train_and_publish(store, "warm", request).version)
        if job.trainer == "label-tree":
            if job.data.suffix == ".svm":
                _go_on(store, request)
            store.put_label_info(
                "warm", build_label_info([Subject("label0", None, {"en": "a label"})])
            )
            LabelInfos(store).follow(LiveLabelInfo("warm", model.labels))
    if "features.kind=tfidf" in job.parameters:
        serve_model(_combined(model, job.data))
    served = serve_model(model)
    if job.parameters == _VECTORS:
        return
    evaluate_rows(model, read_labelled(model, job.data, no_progress))
    block = LineBlock(1, [b'{"indices": [0], "values": [1]}'])
    for options in (Options(), Options(exact=True), Options(threshold=0.5)):
        answer_block(block, served, to_options(options, served), Limits())
    if job.trainer == "label-tree":
        estimate_size(TrainRequest(trainer="label-tree", data=job.data))
        tune(model, TuneRequest(METHODS, job.data), lambda phase, done, total: None)


def _go_on(store: Store, request: TrainRequest) -> None:
    """Train a version again, with calibrated scores, and extend it by a label.

    request  of the version: its data are lines of sparse rows
    """
    new = store.root / "new.svm"
    new.write_text(request.data.read_text().replace("\n0 ", f"\n{_N_LABELS} "))
    request = request.model_copy(update={"base": "warm@1", "parameters": (), "weights": "float32"})
    train_and_publish(store, "warm", request.model_copy(update={"valid": new, "calibrate": True}))
    extend_and_publish(
        store, "warm", request.model_copy(update={"data": new, "rows": (request.data,)})
    )


def _combined(member: Model, data: Path) -> Model:
    """Return a combined version of one member, with names, near rows and an unfitted ranker."""
    vocabulary = data.with_name("vocabulary.tsv")
    vocabulary.write_text("".join(f"<label{i}>\tword{i}\n" for i in range(_N_LABELS)))
    return unranked_version([member], CombineRequest((), data, vocabulary, rerank=data))


def _begin() -> None:
    """Set up a process that compiles. It need not log that it compiles, which is its purpose."""
    collect_seldom()
    logging.getLogger("xylem_store.compiled.kernel_cache").setLevel(logging.ERROR)


def warm_all() -> None:
    """Compile everything, in two processes more than processors.

    There are more because a process may wait for a kernel that another compiles. They are forked
    from this process, so they need not import anything again. On a terminal a progress bar counts
    the kernels and estimates the remaining time; its thread starts after the fork.
    """
    pool = ProcessPoolExecutor(
        min(n_processors() + 2, _PROCESSES_MAX), multiprocessing.get_context("fork"), _begin
    )
    with tempfile.TemporaryDirectory() as directory, pool:
        n_before = _n_kernels()
        running_jobs = [pool.submit(warm, job) for job in jobs(Path(directory))]
        with Progress(
            TextColumn("kernels"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        ) as bar:
            task = bar.add_task("", total=_N_KERNELS)
            while wait(running_jobs, _LOOK_SECONDS).not_done:
                bar.update(task, completed=min(_n_kernels() - n_before, _N_KERNELS))
        for done in running_jobs:
            done.result()


def _n_kernels() -> int:
    return sum(1 for _ in cache_dir().rglob("*.nbc"))


def compile_all() -> None:
    """Compile everything, and print how long it took and where the kernels are.

    Each level of processors needs a process, because numba reads the level when it is imported.
    """
    environments = environments_by_level()
    for environment in environments:
        subprocess.run([sys.executable, "-m", "xylem.warm"], env=environment, check=True)
    if environments:
        return
    start = time.perf_counter()
    warm_all()
    sys.stdout.write(
        f"{_n_kernels()} kernels in {cache_dir()} after {time.perf_counter() - start:.0f} s\n"
    )
