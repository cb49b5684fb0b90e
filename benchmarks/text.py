"""From a text to a row of features: what each kind of features takes, on one thread.

The vocabularies are of the descriptions in examples/debtags; the texts, cut to 60 and 300 characters, are of
its test file. Each text is another one than the text before it, as requests are.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.runs import Settings, note, show, spread
from service.datasets import read_dataset
from service.features import Featurizer, fit_featurizer, parameters_of

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "debtags"
KINDS = {
    "words": {"kind": "tfidf"},
    "words and pairs of words": {"kind": "tfidf", "ngram_max": 2},
    "hashed words": {"kind": "hashing"},
    "characters": {"kind": "chars"},
    "words and characters": {"kind": "words+chars"},
}
LENGTHS = (60, 300)
TEXTS = 500


def run(settings: Settings) -> None:
    train = read_dataset(EXAMPLES / "train.jsonl.gz")
    with gzip.open(EXAMPLES / "test.jsonl.gz", "rt") as file:
        whole = [text for text in (json.loads(line)["text"] for line in file) if len(text) >= max(LENGTHS)]
    rows = []
    for name, given in KINDS.items():
        note(name)
        start = time.perf_counter()
        featurizer, _ = fit_featurizer(train, parameters_of(given))
        fitting = time.perf_counter() - start
        cells = []
        for length in LENGTHS:
            texts = [text[:length] for text in whole[:TEXTS]]
            sizes = np.diff(featurizer.transform_texts(texts).indptr)
            times = [_us_a_text(featurizer, texts) for _ in range(settings.repeats)]
            cells += [spread(times, 1), f"{sizes.mean():.0f}"]
        rows.append((name, f"{featurizer.n_features:,}", f"{fitting:.1f}", *cells))
    columns = ["", "features", "fitted in, s"]
    for length in LENGTHS:
        columns += [f"text of {length} characters p50, us", "features of it"]
    show(settings, "from text to row, one text a call", columns, rows)


def _us_a_text(featurizer: Featurizer, texts: list[str]) -> float:
    """Return the median time of a call, in microseconds."""
    taken = []
    for text in texts:
        start = time.perf_counter()
        featurizer.transform_texts([text])
        taken.append(time.perf_counter() - start)
    return 1e6 * median(taken)
