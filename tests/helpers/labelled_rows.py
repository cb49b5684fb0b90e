"""Rows of texts with labels that tests write in several forms, and how they are read."""

import csv
import io
import random
from collections.abc import Sequence
from typing import Any

from tests.helpers.datasets_helpers import labels_of
from xylem.base.rows import Dataset

LABELS = ("winter", "fruit", "food", "music", "sport", "art", "war", "sea")
Row = tuple[str, list[str]]


def rows_of(n: int = 240, seed: int = 1) -> list[Row]:
    rng = random.Random(seed)
    chosen = [rng.sample(LABELS, rng.choice((1, 2, 2, 3))) for _ in range(n)]
    return [(f"a text about {' and '.join(ls)}, number {i}", ls) for i, ls in enumerate(chosen)]


ROWS = rows_of()


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], mark: str = ",") -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=mark, lineterminator="\n").writerows([head, *rows])
    return file.getvalue()


def names_of(dataset: Dataset) -> list[list[str]]:
    return [[dataset.names[i] for i in ids] for ids in labels_of(dataset)]


def as_read(dataset: Dataset) -> list[tuple[str, list[str]]]:
    assert dataset.texts is not None
    return list(zip(dataset.texts, names_of(dataset), strict=True))


RIGHT = [(text, sorted(labels)) for text, labels in ROWS]


def findings_of(dataset: Dataset) -> list[str]:
    assert dataset.report is not None
    return [finding.code for finding in dataset.report.findings]
