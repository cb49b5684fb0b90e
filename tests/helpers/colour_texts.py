"""Texts whose words are colours, and which labels a version predicts for such files."""

from itertools import pairwise
from pathlib import Path

from tests.helpers.datasets_helpers import write_lines
from xylem.base import no_progress
from xylem.engine.all_labels import predict_all
from xylem.engine.combined_predictor import make_predictor
from xylem.workflows.labelled import read_labelled
from xylem_store.names import name_of
from xylem_store.version import Model

COLOURS = ("red", "green", "blue", "white")
WORDS = COLOURS[:3]


def write(path: Path, rows: list[tuple[str, list[str]]]) -> Path:
    return write_lines(path, ({"text": text, "labels": labels} for text, labels in rows))


def decisions(model: Model, data: Path, threshold: float) -> list[list[str]]:
    """The names of the labels that reach the threshold, row by row."""
    rows = read_labelled(model, data, no_progress).rows
    ptr, labels = predict_all(make_predictor(model), rows, threshold, 1, lambda done: None)
    names = [name_of(model.labels, label) for label in labels.tolist()]
    return [names[first:last] for first, last in pairwise(ptr)]
