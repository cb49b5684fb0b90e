"""Models of next words: perplexity, seconds to train and microseconds a word to score, tree by tree.

A data set is a directory with `train` and `test`, .jsonl or .jsonl.gz, of which the texts count. Each tree
is trained on the first `--words` words, one thread, with the same parameters: PASSES passes over a tree that
is fixed, one more to learn a tree, twice as many for the clustering tree. Times are of the processor; reading
the texts counts.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.data import find
from benchmarks.runs import Settings, note, show
from model_store.store import Store
from service.datasets.texts import read_texts
from service.features.context import ContextFeaturizer, tokens_of
from service.serving.opening import serve_model
from service.workflows.train import TrainRequest, train_and_publish

WORDS = 800_000
TEST_TEXTS = 1_500
PASSES = 3
_WARM_UP_TEXTS = 20
_COMMON = ("task=text", "dim=50", "arity=27", "min_count=3")
_FIXED, _LEARNED = f"epochs={PASSES}", f"epochs={PASSES + 1}"
_TREES = (
    *(f"huffman-tree:tree={tree},{_FIXED}" for tree in ("random", "clustered", "kmeans", "huffman")),
    f"learned-tree:{_LEARNED}",
    f"learned-tree:start=huffman,{_LEARNED}",
    f"learned-tree:start=huffman,depth=3,slack=0,updates=10,{_LEARNED}",
    f"huffman-tree:tree=flat,{_FIXED}",
)
_COLUMNS = ("", "perplexity", "train s", "us a word to score")


class Texts(NamedTuple):
    """The texts to train on, their file, and those to test on."""

    name: str
    train: list[str]
    file: Path
    test: list[str]


def run(settings: Settings) -> None:
    for directory in settings.directories:
        texts = _texts(directory, settings.words or WORDS, settings.out)
        rows = [_measured(texts, variant, settings.out) for variant in settings.trainers or _TREES]
        n_words = sum(len(tokens_of(text)) + 1 for text in texts.train)
        title = f"{texts.name}: {n_words:,} training words; {', '.join(_COMMON[1:])}; one thread"
        show(settings, title, _COLUMNS, rows)


def _texts(directory: Path, most: int, out: Path) -> Texts:
    """Return the first texts of a data set, and write those to train on."""
    name = directory.resolve().name
    taken, n_words = [], 0
    for text in _read(directory, "train"):
        if n_words >= most:
            break
        taken.append(text)
        n_words += len(tokens_of(text)) + 1
    work = out / f"{name}-words"
    work.mkdir(parents=True, exist_ok=True)
    file = _write(work / "train.jsonl", taken)
    _write(work / "few.jsonl", taken[:_WARM_UP_TEXTS])
    return Texts(name, taken, file, _read(directory, "test")[:TEST_TEXTS])


def _read(directory: Path, part: str) -> Sequence[str]:
    return read_texts(find(directory, part)).texts


def _write(file: Path, texts: Sequence[str]) -> Path:
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return file


def _with(given: Sequence[str]) -> list[str]:
    """Return the parameters of all, but for those that a tree has of its own, and the tree's own."""
    keys = {item.partition("=")[0] for item in given}
    return [*(item for item in _COMMON if item.partition("=")[0] not in keys), *given]


def _measured(texts: Texts, variant: str, out: Path) -> tuple[str, ...]:
    """Train, publish, open, and score the test texts; return a line of the table."""
    note(f"{texts.name}: {variant}")
    trainer, _, given = variant.partition(":")
    items = _with(given.split(",") if given else [])
    work = out / f"{texts.name}-words" / "store"
    shutil.rmtree(work, ignore_errors=True)
    store = Store(work)
    train_and_publish(store, "few", TrainRequest(trainer, texts.file.with_name("few.jsonl"), None, items))
    start = time.process_time()
    train_and_publish(store, "words", TrainRequest(trainer, texts.file, None, items))
    train_seconds = time.process_time() - start
    model = store.open("words")
    served = serve_model(model)
    assert isinstance(served.featurizer, ContextFeaturizer)
    rows, labels = served.featurizer.windows_of(texts.test)
    seconds = []
    for _ in range(2):
        start = time.process_time()
        logs = served.predictor.score_labels(rows, labels.indptr, labels.indices).logs
        seconds.append(time.process_time() - start)
    cells = (
        variant.replace(":", ",").replace(",", ", "),
        f"{np.exp(-logs.astype(np.float64).mean()):.1f}",
        f"{train_seconds:.0f}",
        f"{1e6 * min(seconds) / rows.n_rows:.1f}",
    )
    note(f"  {', '.join(cells[1:])}")
    return cells
