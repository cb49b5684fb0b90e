"""Collect rows whose labels are names: the lines of `.jsonl` and `.ndjson`, and texts.

A line of JSON has one object. The texts come from the readers of other formats.
"""

from array import array
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import orjson

from xylem.base import (
    DEFAULT_COLUMNS,
    TABLES,
    BadInstance,
    Dataset,
    LabelRows,
    TableColumns,
    TextFields,
    inverse,
    offsets,
    what_is,
)
from xylem.datasets.data_reports import report_of
from xylem.datasets.dataset import N_ROWS_MAX, renumber_labels, sorted_labels
from xylem.datasets.label_names import (
    NO_LABEL,
    SpellingIds,
    find_in_model,
    is_label_value,
    subject_labels,
    unknown_findings,
)
from xylem.datasets.stream import BLOCK_BYTES, DataFile
from xylem.datasets.survey import Survey
from xylem.datasets.vectors import VectorCells
from xylem_store import I32, BadNames, NameTable

_FLOAT32_MAX = float(np.finfo(np.float32).max)


class TextRow(NamedTuple):
    """A text with its labels.

    `place` is the number of its line, row or document, by which errors name it. Rows of one `key`,
    if it is not None, are one row. `weight` is that of the row, if rows have weights, and `vector`
    stands beside its text, if they have vectors.
    """

    place: int
    text: str
    labels: list[Any]
    key: Any = None
    weight: Any = None
    vector: Any = None


def json_object(file: DataFile, number: int, line: bytes) -> dict[str, Any]:
    """Return the object in a line of JSON. Raises BadData, which names the line."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        file.line = number
        raise file.text_fault(line) or file.fault(
            number, f"expected a JSON object, found {error.msg} at byte {error.pos}"
        ) from error
    if not isinstance(row, dict):
        raise file.fault(number, f"expected a JSON object, found {what_is(row)}")
    return row


class RowCollector:
    """The rows that were added so far; labels have provisional ids, in order of first appearance.

    Rows are added one by one, with the number of their line. Each method raises BadData, which
    names the line.

    A label is known by its `label_name`: blanks and invisible characters at its ends do not count.

    fields          the columns or keys of which texts are joined
    are_named       whether options name them; else a version has them, or they are guessed
    kind            "text" or "features"; empty before the first row
    ids             the provisional id of each name
    labels, counts  the label ids of all rows, one row after the other, and how many each row has
    places          the number of each row
    survey          what was counted of the rows that were taken
    """

    def __init__(
        self,
        file: DataFile,
        ids: dict[str, int] | None = None,
        columns: TableColumns = DEFAULT_COLUMNS,
    ) -> None:
        """Begin without rows.

        ids      provisional ids of labels that were read before, which grow
        columns  of lines of JSON: the keys by which rows are joined, of weights and of vectors
        """
        self.file = file
        self._join = columns.join
        self._weight = columns.weight
        self._vectors = VectorCells(columns.vector)
        self._has_weight = not self._weight
        self._rows_of_keys = dict[Any, int]()
        self._joined_rows = array("i")
        self.survey = Survey(file)
        self.fields = TextFields()
        self.are_named = False
        self.kind = ""
        self.ids = {} if ids is None else ids
        self._id_of = SpellingIds(self.ids).__getitem__
        self._begin()

    def _begin(self) -> None:
        self.texts: list[str] = []
        self.named_features: list[dict[str, float]] = []
        self.labels, self.counts = array("i"), array("i")
        self.places = array("q")
        self._row_weights, self._label_weights = array("f"), array("f")

    def add(self, number: int, line: bytes) -> None:
        """Add the row in a line of JSON."""
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            row = None
        if not isinstance(row, dict):
            row = json_object(self.file, number, line)  # which raises
        if self.fields and "features" not in row:
            self._take_fields(number, row)
        has_text = "text" in row
        if "labels" not in row and "subjects" in row:
            row["labels"] = subject_labels(self.file, number, row["subjects"])
        if has_text == ("features" in row) or "labels" not in row:
            keys = ", ".join(repr(key[:40]) for key in list(row)[:10]) or "none"
            raise self.file.fault(
                number,
                f"expected keys `labels` and one of `text` and `features`, found {keys}"
                f"{': name its fields by --text-column' if TextFields.key in row else ''}",
            )
        kind = "text" if has_text else "features"
        if self.kind and kind != self.kind:
            raise self.file.fault(
                number, f"expected `{self.kind}` as in the lines before, found `{kind}`"
            )
        if has_text:
            text = row["text"]
            if not isinstance(text, str):
                raise self.file.fault(number, f"expected a string as `text`, found {what_is(text)}")
            key = ("" if row.get(self._join) is None else row[self._join]) if self._join else None
            self.add_text(
                number, text, row["labels"], key, row.get(self._weight), row.get(self._vectors.name)
            )
        else:
            self.add_named(number, row["features"], row["labels"], row.get(self._weight))

    def _take_fields(self, number: int, row: dict[str, Any]) -> None:
        """Make the text of a row of its fields; a row without any may have a text."""
        cells = self.fields.cells(row)
        if cells is None and "text" in row:
            self.survey.n_lacking.update(self.fields.names if self.are_named else ())
            return
        try:
            row["text"] = self.join(self.fields, cells or [None] * len(self.fields))
        except BadInstance as error:
            raise self.file.fault(number, str(error)) from None

    def join(self, fields: TextFields, cells: list[Any]) -> str:
        """Return the text that the cells of a row make; count the fields whose cell is empty.

        cells  one for each of the fields
        """
        if not all(cells):
            self.survey.n_lacking.update(
                name for name, cell in zip(fields.names, cells, strict=True) if not cell
            )
        # most tables have one column of text, whose cells need no joining
        elif len(cells) == 1 and fields[0].weight == 1 and isinstance(cells[0], str):
            return cells[0]
        return fields.join(cells)

    def add_text(
        self,
        number: int,
        text: str,
        labels: object,
        key: Any = None,
        weight: Any = None,
        vector: Any = None,
    ) -> None:
        """Add a text with its labels; of several texts of one key the first one stays."""
        self.kind = "text"
        if self._vectors.name:
            try:
                self._vectors.add(vector)
            except ValueError as error:
                raise self.file.fault(number, f"`{self._vectors.name}`: {error}") from None
        if key is not None:
            if key == "" or not isinstance(key, str | int):
                raise self.file.fault(
                    number,
                    "expected a text or a whole number by which rows are joined, "
                    f"found {what_is(key)}",
                )
            self._joined_rows.append(self._rows_of_keys.setdefault(key, len(self._rows_of_keys)))
        self.texts.append(text)
        # the survey could count them at the end: then each text comes into the cache once more
        if not text or text.isspace():
            self.survey.n_blank += 1
        self._add_labels(number, labels, weight)

    def add_named(self, number: int, features: object, labels: object, weight: Any = None) -> None:
        """Add an instance of values by feature name, with its labels."""
        self.kind = "features"
        if self._vectors.name:
            raise self.file.fault(number, "expected a text beside a vector, found `features`")
        self.named_features.append(self._features(number, features))
        self._add_labels(number, labels, weight)

    def refuse_empty(self) -> None:
        """Raise BadData if no row was added, or none has a field that is named."""
        if not self.kind:
            raise self.file.fault(1, "expected at least one row, found none")
        are_checked = self.are_named and self.file.kind not in TABLES  # tables have a header
        for name in self.fields.names if are_checked else ():
            if (
                self.survey.n_lacking[name] == self.survey.n_rows + len(self.counts)
                or self.kind == "features"
            ):
                raise self.file.fault(
                    None,
                    f"expected text in the field {name[:80]!r} of a row, found none in all rows",
                )
        if not self._has_weight:
            raise self.file.fault(
                None, f"expected a weight above 0 in `{self._weight}`, found 0 in all rows"
            )

    def _features(self, number: int, features: object) -> dict[str, float]:
        if not isinstance(features, dict):
            raise self.file.fault(
                number, f"expected an object as `features`, found {what_is(features)}"
            )
        for name, value in features.items():
            if type(value) is not float and type(value) is not int:
                raise self.file.fault(
                    number, f"expected a number for feature {name[:40]!r}, found {what_is(value)}"
                )
            if not -_FLOAT32_MAX <= value <= _FLOAT32_MAX:
                raise self.file.fault(
                    number,
                    f"expected a value that is finite in 32 bits for feature {name[:40]!r}, "
                    f"found {value}",
                )
        return features

    def _weight_of(self, number: int, name: str, value: object) -> float:
        try:
            return LabelRows.weight_of(value)
        except ValueError as error:
            raise self.file.fault(number, f"{name}: {error}") from None

    def _add_labels(self, number: int, labels: Any, weight: object) -> None:
        if self._weight:
            self._row_weights.append(self._weight_of(number, f"`{self._weight}`", weight))
            self._has_weight |= self._row_weights[-1] > 0
        if not isinstance(labels, list):
            if isinstance(labels, dict):
                self._fill_label_weights()
                self._label_weights.extend(
                    self._weight_of(number, f"label {label[:40]!r}", of_label)
                    for label, of_label in labels.items()
                )
            elif labels is not None:
                raise self.file.fault(
                    number, f"expected an array as `labels`, found {what_is(labels)}"
                )
            labels = [*(labels or ())]
        try:
            # all labels at once: this takes half the time of a loop
            self.labels.extend(map(self._id_of, labels))
        except TypeError:
            label = next(label for label in labels if not is_label_value(label))
            raise self.file.fault(
                number, f"expected strings or whole numbers in `labels`, found {what_is(label)}"
            ) from None
        except BadNames as error:
            raise self.file.fault(number, f"label: {error.fault}") from error
        if len(self.counts) == N_ROWS_MAX:
            raise self.file.fault(number, f"expected at most {N_ROWS_MAX} rows, found more")
        self.counts.append(len(labels))
        self.places.append(self.file.first_place + number)

    def take_rows(self) -> Dataset:
        """Return the rows that were added so far, with provisional label ids, and remove them."""
        labels = self._take_labels()
        dataset = self._dataset(labels, np.zeros(labels.n_rows, np.int32))
        self._begin()
        return dataset

    def finish(self, model: NameTable | None, source: str = "") -> Dataset:
        """Return the rows with their final label ids; the caller sets their digest.

        model   the label names of a model, whose ids are used. None: ids follow the names sorted by
                bytes, so that the order of rows does not matter
        source  as in `Dataset`
        """
        self.refuse_empty()
        labels = self._take_labels()
        names = sorted(self.ids)
        if model is None:
            return self._dataset(
                *renumber_labels(
                    labels,
                    inverse(np.array([self.ids[name] for name in names], np.int64), len(names)),
                    len(names),
                ),
                source=source,
                label_names=names,
                report=report_of(self.survey, source, list(self.ids)),
            )
        model_ids = find_in_model(model, list(self.ids))
        unknown_names = [name for name, i in zip(self.ids, model_ids, strict=True) if i < 0]
        self.file.findings += unknown_findings(unknown_names, model, len(self.ids))
        return self._dataset(
            *renumber_labels(labels, model_ids, model.n_names),
            source=source,
            unknown_names=unknown_names,
            report=report_of(self.survey, source, list(self.ids)),
        )

    def _fill_label_weights(self) -> None:
        self._label_weights.extend(repeat(1.0, len(self.labels) - len(self._label_weights)))

    def _take_labels(self) -> LabelRows:
        """Count the rows; return their labels with provisional ids, sorted within each row.

        Rows of one key are joined before: the first text stays, with the labels of all of them.
        """
        counts, labels = (np.frombuffer(values, np.int32) for values in (self.counts, self.labels))
        places = np.frombuffer(self.places, np.int64)
        is_label = labels != NO_LABEL
        label_weights = None
        if self._label_weights:
            self._fill_label_weights()
            label_weights = np.frombuffer(self._label_weights, np.float32)
            is_label &= label_weights > 0
        if not is_label.all():
            counts = np.diff(offsets(is_label)[offsets(counts)]).astype(np.int32)
            labels = labels[is_label]
            label_weights = None if label_weights is None else label_weights[is_label]
        if self._joined_rows:
            joined_rows = np.frombuffer(self._joined_rows, np.int32)
            first_rows = np.unique(joined_rows, return_index=True)[1]
            order = np.argsort(np.repeat(joined_rows, counts), kind="stable")
            labels = labels[order]
            label_weights = None if label_weights is None else label_weights[order]
            counts = np.bincount(joined_rows, counts).astype(np.int32)
            places = places[first_rows]
            self.texts = [self.texts[row] for row in first_rows.tolist()]
        rows = LabelRows(offsets(counts), labels, len(self.ids))
        if self._weight or label_weights is not None:
            rows = rows.weighed(
                np.array(self._row_weights) if self._weight else np.ones(rows.n_rows, np.float32),
                label_weights,
            )
        rows = sorted_labels(rows)
        self.survey.add(rows, self.texts if self.kind == "text" else None, places, counts)
        return rows

    def _dataset(self, labels: LabelRows, unknown: I32, source: str = "", **fields: Any) -> Dataset:
        return Dataset(
            source,
            "",
            labels.n_rows,
            labels,
            unknown,
            texts=self.texts if self.kind == "text" else None,
            named_rows=None if self.kind == "text" else self.named_features,
            vectors=self._vectors.take(self.file.path),
            fields=self.fields if self.are_named else TextFields(),
            **fields,
        )


def json_blocks(collector: RowCollector) -> Iterator[None]:
    """Collect the rows in the lines of a file of JSON; yield after each block of lines.

    A line is `{"text": ..., "labels": [...]}` or `{"features": {name: number}, "labels": [...]}`.
    In place of `labels` there may be `subjects`, `[{"uri": ..., "label": ...}]`: the label is the
    URI. A file is all text or all features. Other keys (an id, say) and empty lines are ignored.
    Types are strict: `true` is no number and no label. A label may be a whole number, and null is
    no label. A repeated label counts once. `labels` may be an object with the weight of each
    label; a label of weight 0 is none.
    """
    file = collector.file
    for block in file.lines():
        for number, line in enumerate(block.split(b"\n"), file.line):
            if line and line != b"\r":
                collector.add(number, line)
        yield


def text_blocks(collector: RowCollector, rows: Iterable[TextRow]) -> Iterator[None]:
    """Collect texts; yield after about BLOCK_BYTES characters, and at the end."""
    size = 0
    for row in rows:
        collector.add_text(*row)
        size += len(row.text) + 64 * (1 + len(row.labels))
        if size >= BLOCK_BYTES:
            yield
            size = 0
    yield
