"""Cost against the number of labels: generated label trees with the
statistics of Amazon-670k, none trained; with --train the training (`growth_training`).

python -m benchmarks growth [--labels N ...] [--weights float32|bfloat16|int8] [--train]

Each size is published by one fresh process and measured by another, so that neither finds the
other's memory.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import growth_training
from benchmarks.growth_rows import N_FEATURES, Zipf, generate_rows
from benchmarks.peers.figures import timed
from benchmarks.runs import Settings, in_fresh_process, note, show
from benchmarks.systems import Figures
from xylem.engine.predictor import PredictOptions, Predictor
from xylem_store.build import build_ensemble
from xylem_store.ensemble import Chunk, Tree, Weights
from xylem_store.manifest import DataInfo, TrainerInfo
from xylem_store.names import build_names
from xylem_store.store import Store
from xylem_store.version import Draft

SIZES = (10_000, 100_000, 1_000_000)
LEAF_LABELS = 85
"""Labels of a leaf's chunk, at most."""
ARITY = 16
LABEL_DRAWS = 160
"""Features drawn for a label's scorer, repeats included."""
NODE_DRAWS_MAX = 20_000

_OPTIONS = PredictOptions(top_r=10, beam_width=10)
_SHOWN = {
    "model_bytes": ("model, MB", 1e-6, 1),
    "weights_per_label": ("weights a label", 1, 0),
    "open_seconds": ("open, ms", 1e3, 1),
    "open_cold_seconds": ("not in memory, ms", 1e3, 1),
    "read_bytes": ("read for it, MB", 1e-6, 1),
    "batch_us_per_row": ("batch, us a row", 1, 1),
    "one_call_us_p50": ("one call p50, us", 1, 1),
}


def _groups(n: int, size: int) -> NDArray[np.int64]:
    """Return the sizes of the fewest groups of at most `size`, as even as can be."""
    n_groups = -(-n // size)
    return np.diff(np.arange(n_groups + 1) * n // n_groups)


def _chunk(random: np.random.Generator, zipf: Zipf, n_children: int, n_draws: int) -> Chunk:
    """Return scorers of n_children children with normal weights at
    n_draws features each, repeats dropped.
    """
    child = np.repeat(np.arange(n_children, dtype=np.int64), n_draws)
    cells = np.unique(zipf.draw(random, len(child)) * np.int64(n_children) + child)
    features, counts = np.unique(cells // n_children, return_counts=True)
    row_ptr = np.concatenate([[0], np.cumsum(counts)])
    weights = random.standard_normal(len(cells), np.float32)
    bias = np.full(n_children, -0.5, np.float32)
    return Chunk(
        features.astype(np.int32), row_ptr, (cells % n_children).astype(np.int32), weights, bias
    )


def generate(n_labels: int) -> Tree:
    """Return a balanced tree: chunks of at most LEAF_LABELS labels
    under nodes of at most ARITY children.

    A scorer over n labels has weights at about LABEL_DRAWS * sqrt(n) features, for a vocabulary
    grows so.
    """
    random, zipf = np.random.default_rng(n_labels), Zipf()
    levels = [_groups(n_labels, LEAF_LABELS)]
    while len(levels[-1]) > 1:
        levels.append(_groups(len(levels[-1]), ARITY))
    n_children = np.concatenate([*reversed(levels), np.zeros(n_labels, np.int64)])
    chunks: list[Chunk | None] = []
    for sizes in reversed(levels):
        labels_a_child = n_labels / sizes.sum()
        n_draws = min(NODE_DRAWS_MAX, int(LABEL_DRAWS * labels_a_child**0.5))
        chunks += [_chunk(random, zipf, size, n_draws) for size in sizes.tolist()]
    chunks += [None] * n_labels
    child_ptr = np.concatenate([[0], np.cumsum(n_children)]) + 1
    node_label = np.full(len(n_children), -1, np.int32)
    node_label[-n_labels:] = random.permutation(n_labels)
    return Tree(child_ptr.astype(np.int32), node_label, chunks)


def publish(store: Path, n_labels: int, weights: Weights) -> Figures:
    """Publish a generated tree as the only model of a store."""
    tree = generate(n_labels)
    n_weights = sum(len(chunk.weight) for chunk in tree.chunks if chunk is not None)
    ensemble = build_ensemble([tree], n_labels, N_FEATURES, weights)
    del tree
    draft = Draft(
        kind="label-tree",
        link="hinge3",
        weights=weights,
        n_features=N_FEATURES,
        trainer=TrainerInfo("generated", {}),
        seed=n_labels,
        data=DataInfo("generated", 0, "0" * 64),
        metrics={},
        features={"kind": "raw"},
        ensemble=ensemble,
        labels=build_names(f"label {i}" for i in range(n_labels)),
    )
    manifest = Store(store).publish("model", draft)
    model_bytes = sum(info.bytes for info in manifest.arrays.values())
    return {"model_bytes": model_bytes, "weights_per_label": n_weights / n_labels}


def measure(store: Path, n_rows: int = 4096, repeats: int = 10) -> Figures:
    """Open the model without verification, at first with none of
    it in memory; predict on one thread.

    A batch counts with its fastest run: sizes are measured minutes apart, and others may use the
    machine.
    """
    for file in store.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = _read_bytes()
    (cold,) = timed([lambda: Store(store).open("model", verify=False)])
    figures: Figures = {"open_cold_seconds": cold, "read_bytes": _read_bytes() - before}
    figures["open_seconds"] = median(
        timed([lambda: Store(store).open("model", verify=False)] * repeats)
    )
    predictor, rows = Predictor(Store(store).open("model", verify=False)), generate_rows(n_rows)
    predictor.predict(rows, _OPTIONS, 1)
    batches = timed([lambda: predictor.predict(rows, _OPTIONS, 1)] * repeats)
    figures["batch_us_per_row"] = min(batches) / n_rows * 1e6
    each = (rows.cut(i, i + 1) for i in range(n_rows))
    one_call = timed(lambda row=row: predictor.predict(row, _OPTIONS) for row in each)
    figures["one_call_us_p50"] = float(np.quantile(one_call, 0.5)) * 1e6
    return figures


def _read_bytes() -> int:
    """Return the bytes that this process has had read from the disk."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


def run(settings: Settings) -> None:
    """Print a line for each size."""
    if settings.trains:
        growth_training.run(settings)
        return
    found: dict[int, Figures] = {}
    for n_labels in settings.labels:
        note(f"growth: {n_labels:,} labels")
        found[n_labels] = _of_generated(settings, n_labels)
    first = next(iter(found.values()))
    rows = []
    for n_labels, figures in found.items():
        cells = [
            f"{figures[key] * scale:,.{digits}f}" for key, (_, scale, digits) in _SHOWN.items()
        ]
        ratios = [
            f"{figures[key] / first[key]:.2f}" for key in ("batch_us_per_row", "one_call_us_p50")
        ]
        rows.append((f"{n_labels:,}", *cells, *ratios))
    columns = (
        "labels",
        *(name for name, _, _ in _SHOWN.values()),
        "batch, ratio",
        "one call, ratio",
    )
    title = f"Growth: generated trees, {settings.weights} weights; one thread, top 10, beam 10"
    show(settings, title, columns, rows)


def _of_generated(settings: Settings, n_labels: int) -> Figures:
    """Return the figures of a generated tree: one fresh process publishes it, another
    measures it.
    """
    with tempfile.TemporaryDirectory(dir=settings.out) as store:
        figures = in_fresh_process("growth", "publish", store, str(n_labels), settings.weights)
        return {**figures, **in_fresh_process("growth", "measure", store)}


def main() -> None:
    """Publish a generated tree, or measure the one that a store has
    (`_of_generated`); print the figures.
    """
    command, store, *given = sys.argv[1:]
    weights: Any = given[-1] if given else None
    figures = (
        publish(Path(store), int(given[0]), weights)
        if command == "publish"
        else measure(Path(store))
    )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
