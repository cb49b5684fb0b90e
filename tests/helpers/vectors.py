"""Vectors for texts: sums of random vectors of their words."""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.helpers.datasets_helpers import write_lines
from tests.helpers.jobs_helpers import write_data
from xylem_store.compiled.handles import F32

NUMBERS = 24


def vectors_of(texts: Sequence[str], n_numbers: int = NUMBERS) -> F32:
    """Return float32[n, n_numbers]; texts with the same words have the same vector."""
    table = np.random.default_rng(0).normal(size=(512, n_numbers))
    rows = [[zlib.crc32(word.encode()) % 512 for word in text.split()] for text in texts]
    return np.array([table[words].sum(0) for words in rows], np.float32)


def write_files_with_vectors(folder: Path) -> list[Path]:
    """Write train, valid and new rows: a .jsonl file and its .npy file each; return the former.

    The label of the new rows is not among those of the others.
    """
    write_data(folder / "train.jsonl", 150, seed=3)
    write_data(folder / "valid.jsonl", 120, seed=4)
    texts = [f"new{i % 4} word{i % 5}" for i in range(30)]
    write_lines(folder / "new.jsonl", ({"text": text, "labels": ["new"]} for text in texts))
    files = sorted(folder.glob("*.jsonl"))
    for data in files:
        rows = [json.loads(line) for line in data.read_text().splitlines()]
        np.save(data.with_suffix(".npy"), vectors_of([row["text"] for row in rows]))
    return files
