"""Rows with names of labels: `.jsonl` and `.ndjson`, an object a line, and the texts of other formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import orjson

from model_store.errors import BadNames
from model_store.names import NameTable, check_name
from service.base.rows import Growing, LabelRows, offsets
from service.datasets.dataset import N_ROWS_MAX, ids_in_model, renumber_labels
from service.datasets.stream import BLOCK_BYTES, DataFile
from service.kernels.text.sort_and_sum import sort_labels

_FLOAT32_MAX = float(np.finfo(np.float32).max)


class JsonLines(NamedTuple):
    """What a file holds; one of `texts` and `named` is None, and `label_names` when a model named them.

    unknown_names  the labels that this model does not know, as they first occur
    """

    texts: list[str] | None
    named: list[dict[str, float]] | None
    labels: LabelRows
    unknown_labels: np.ndarray[tuple[int], np.dtype[np.int32]]
    label_names: list[str] | None
    unknown_names: Sequence[str] = ()


class TextRow(NamedTuple):
    """A text with its labels; `place` is the number of its line, row or document, as faults name it."""

    place: int
    text: str
    labels: list[str]


def json_blocks(collector: RowCollector) -> Iterator[None]:
    """Collect lines `{"text": ..., "labels": [...]}` or `{"features": {name: number}, "labels": [...]}`.

    In place of `labels` there may be `subjects`, `[{"uri": ..., "label": ...}]`: the label is the URI.
    A file is all text or all features. Other keys (an id, say) and empty lines are passed over. Types are
    strict: `true` is no number, 1 is no label. A repeated label counts once.
    Yields after each block of lines.
    """
    file = collector.file
    for block in file.lines():
        for number, line in enumerate(block.split(b"\n"), file.line):
            if line and line != b"\r":
                collector.add(number, line)
        yield


def text_blocks(collector: RowCollector, rows: Iterable[TextRow]) -> Iterator[None]:
    """Collect texts; yields after about BLOCK_BYTES characters each time."""
    size = 0
    for row in rows:
        collector.add_text(*row)
        size += len(row.text) + 64 * (1 + len(row.labels))
        if size >= BLOCK_BYTES:
            yield
            size = 0
    yield


def read_blocks(collector: RowCollector, blocks: Iterator[None], model: NameTable | None) -> JsonLines:
    """Return all rows that blocks collect.

    Without a model, label ids follow the names sorted by bytes, so the order of rows does not matter; with
    one they are its ids. Raises BadData, naming the line. Memory: texts or features, names, a block.
    """
    for _ in blocks:
        collector.flush()
    return collector.finish(model)


def parts_of_blocks(collector: RowCollector, blocks: Iterator[None]) -> Iterator[JsonLines]:
    """Yield what `read_blocks` reads, a block at a time, with provisional ids of labels.

    Each part has as many labels as `collector.ids` has names by its end.
    """
    for _ in blocks:
        collector.flush()
        if collector.counts.n:
            yield collector.taken()
    collector.refuse_empty()


class RowCollector:
    """The rows so far; labels have provisional ids, by first appearance.

    Rows are added one by one, with the line that they stand in; `flush` comes before what is asked of them.
    All raises BadData, naming the line.
    """

    def __init__(self, file: DataFile, ids: dict[str, int] | None = None) -> None:
        self.file = file
        self.kind = ""
        self.texts: list[str] = []
        self.named: list[dict[str, float]] = []
        self.ids = {} if ids is None else ids
        self.row_labels: list[int] = []
        self.row_counts: list[int] = []
        self.labels = Growing(np.int32)
        self.counts = Growing(np.int32)

    def add(self, number: int, line: bytes) -> None:
        """Add the row in a line of JSON."""
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise self.file.fault(
                number, f"expected a JSON object, found {error.msg} at byte {error.pos}"
            ) from error
        if not isinstance(found, dict):
            raise self.file.fault(number, f"expected a JSON object, found {_kind(found)}")
        kinds = [kind for kind in ("text", "features") if kind in found]
        if "subjects" in found and "labels" not in found:
            found["labels"] = self._subjects(number, found["subjects"])
        if len(kinds) != 1 or "labels" not in found:
            keys = ", ".join(repr(key[:40]) for key in list(found)[:10]) or "none"
            raise self.file.fault(
                number, f"expected keys `labels` and one of `text` and `features`, found {keys}"
            )
        if self.kind and kinds[0] != self.kind:
            raise self.file.fault(
                number, f"expected `{self.kind}` as in the lines before, found `{kinds[0]}`"
            )
        self.kind = kinds[0]
        if self.kind == "text":
            self.texts.append(self._text(number, found["text"]))
        else:
            self.named.append(self._features(number, found["features"]))
        self._add_labels(number, found["labels"])

    def _subjects(self, number: int, subjects: object) -> list[object]:
        """Return the URI of each of Annif's subjects, or its label where it has none."""
        if not isinstance(subjects, list):
            raise self.file.fault(number, f"expected an array as `subjects`, found {_kind(subjects)}")
        for subject in subjects:
            if not isinstance(subject, dict) or not (subject.get("uri") or subject.get("label")):
                fault = f"expected objects with `uri` or `label` in `subjects`, found {_kind(subject)}"
                raise self.file.fault(number, fault)
        return [subject.get("uri") or subject["label"] for subject in subjects]

    def add_text(self, number: int, text: str, labels: list[str]) -> None:
        """Add a text with its labels."""
        self.kind = "text"
        self.texts.append(text)
        self._add_labels(number, labels)

    def add_named(self, number: int, features: object, labels: list[str]) -> None:
        """Add an instance of values by feature name, with its labels."""
        self.kind = "features"
        self.named.append(self._features(number, features))
        self._add_labels(number, labels)

    def refuse_empty(self) -> None:
        """Raise BadData where there was no row."""
        if not self.kind:
            raise self.file.fault(1, "expected at least one row, found none")

    def _text(self, number: int, text: object) -> str:
        if not isinstance(text, str):
            raise self.file.fault(number, f"expected a string as `text`, found {_kind(text)}")
        return text

    def _features(self, number: int, features: object) -> dict[str, float]:
        if not isinstance(features, dict):
            raise self.file.fault(number, f"expected an object as `features`, found {_kind(features)}")
        for name, value in features.items():
            if type(value) is not float and type(value) is not int:
                raise self.file.fault(
                    number, f"expected a number for feature {name[:40]!r}, found {_kind(value)}"
                )
            if not -_FLOAT32_MAX <= value <= _FLOAT32_MAX:
                raise self.file.fault(
                    number,
                    f"expected a value that is finite in 32 bits for feature {name[:40]!r}, found {value}",
                )
        return features

    def _add_labels(self, number: int, labels: object) -> None:
        if not isinstance(labels, list):
            raise self.file.fault(number, f"expected an array as `labels`, found {_kind(labels)}")
        for label in labels:
            if not isinstance(label, str):
                raise self.file.fault(number, f"expected strings in `labels`, found {_kind(label)}")
            i = self.ids.get(label)
            if i is None:
                self._check_name(number, label)
                i = self.ids[label] = len(self.ids)
            self.row_labels.append(i)
        if self.counts.n + len(self.row_counts) == N_ROWS_MAX:
            raise self.file.fault(number, f"expected at most {N_ROWS_MAX} rows, found more")
        self.row_counts.append(len(labels))

    def _check_name(self, number: int, label: str) -> None:
        try:
            check_name(label)
        except BadNames as error:
            raise self.file.fault(number, f"label: {error.fault}") from error

    def flush(self) -> None:
        """Move the labels of the rows read last into arrays."""
        self.labels.extend(np.array(self.row_labels, np.int32))
        self.counts.extend(np.array(self.row_counts, np.int32))
        self.row_labels.clear()
        self.row_counts.clear()

    def taken(self) -> JsonLines:
        """Return the rows so far, their labels with provisional ids, and forget them."""
        labels = self._provisional()
        found = JsonLines(*self._instances(), labels, np.zeros(labels.n_rows, np.int32), None)
        self.texts, self.named = [], []
        self.labels, self.counts = Growing(np.int32), Growing(np.int32)
        return found

    def _provisional(self) -> LabelRows:
        indptr = offsets(self.counts.finish())
        indices = self.labels.finish()
        return LabelRows(indptr, indices[: sort_labels(indptr, indices)], len(self.ids))

    def finish(self, model: NameTable | None) -> JsonLines:
        """Return the rows with their final label ids."""
        self.refuse_empty()
        labels = self._provisional()
        names, unknown_names = sorted(self.ids), []
        if model is None:
            new_ids = np.empty(len(names), np.int32)
            new_ids[[self.ids[name] for name in names]] = np.arange(len(names), dtype=np.int32)
            labels, unknown = renumber_labels(labels, new_ids, len(names))
        else:
            known = ids_in_model(list(self.ids), model)
            labels, unknown = renumber_labels(labels, known, model.n_names)
            unknown_names = [name for name, i in zip(self.ids, known, strict=True) if i < 0]
        label_names = names if model is None else None
        return JsonLines(*self._instances(), labels, unknown, label_names, unknown_names)

    def _instances(self) -> tuple[list[str] | None, list[dict[str, float]] | None]:
        return (self.texts, None) if self.kind == "text" else (None, self.named)


def _kind(value: object) -> str:
    """Return the JSON type of a value, as a message says it."""
    names = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    return names.get(type(value)) or ("an array" if isinstance(value, list) else "an object")
