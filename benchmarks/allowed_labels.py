"""What a list of allowed labels costs: its mask, new and asked for again, and the search with it.

python -m benchmarks allowed-labels [--labels N ...] [--weights float32|bfloat16|int8]

Generated trees, as in `growth`. Each is published by one fresh process and measured by another.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.growth import generate_rows, main, of_generated
from benchmarks.ours import one_row
from benchmarks.runs import Settings, note, show
from benchmarks.systems import Figures
from model_store.store import Store
from service.inference.predictor import PredictOptions, Predictor
from service.serving.label_masks import LabelMasks

NAMES = 20
"""Labels of a list."""

LISTS = 64
AGAIN = 50
"""So often is each list asked for again."""

_COLUMNS = (
    "labels",
    "a list that is new, us",
    "one that is kept, us",
    "search without a list, us",
    "with one",
)


def run(settings: Settings) -> None:
    """Print a line for each size."""
    rows = []
    for n_labels in settings.labels:
        note(f"allowed-labels: {n_labels:,} labels")
        found = of_generated("allowed_labels", settings, n_labels)
        rows.append(
            (f"{n_labels:,}", *(f"{found[name]:,.1f}" for name in ("new", "kept", "without", "with")))
        )
    title = (
        f"Lists of {NAMES} allowed labels, generated trees, {settings.weights} weights; one thread; medians"
    )
    show(settings, title, _COLUMNS, rows)


def measure(store: Path) -> Figures:
    """Measure the one model of a store: medians, microseconds."""
    model = Store(store).open("model", verify=False)
    predictor, rows = Predictor(model), generate_rows(LISTS)
    masks, draw = LabelMasks(predictor), random.Random(1)
    lists = [[f"label {i}" for i in draw.sample(range(predictor.n_labels), NAMES)] for _ in range(LISTS + 1)]
    first = masks.mask_of(lists.pop(), None)  # its kernels are there from now on
    new = _each(lambda i: masks.mask_of(lists[i], None), 1)
    kept = _each(lambda _: masks.mask_of(lists[-1], None), AGAIN)
    singles = [one_row(rows, i) for i in range(LISTS)]
    plain, masked = PredictOptions(), PredictOptions(mask=first)
    for options in (plain, masked):
        predictor.predict(singles[0], options)
    return {
        "new": new,
        "kept": kept,
        "without": _each(lambda i: predictor.predict(singles[i], plain), AGAIN),
        "with": _each(lambda i: predictor.predict(singles[i], masked), AGAIN),
    }


def _each(call: Callable[[int], object], n: int) -> float:
    """Return the median of the microseconds that a call takes for each of LISTS, n times in a row."""
    found = []
    for i in range(LISTS):
        start = time.perf_counter()
        for _ in range(n):
            call(i)
        found.append(1e6 * (time.perf_counter() - start) / n)
    return median(found)


if __name__ == "__main__":
    main(measure)
