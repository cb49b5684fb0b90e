"""Readers of `.txt` (Extreme Classification Repository) and `.svm` (multi-label libsvm)."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from xylem.base import BadData, Growing, LabelRows, SparseRows, offsets
from xylem.datasets import sparse_kernel as kernels
from xylem.datasets.dataset import N_IDS_MAX, N_ROWS_MAX
from xylem.datasets.delimited import text_lines
from xylem.datasets.stream import DataFile
from xylem.engine import sort_and_sum_rows, sort_labels
from xylem_store import BadNames, build_names

_QUOTED_BYTES_MAX = 40

_HEADER = re.compile(rb"[ \t]*+(\d++)[ \t]++(\d++)[ \t]++(\d++)[ \t]*+\r?")
# Only the first digits of a number are read: one of 12 digits already exceeds every limit.
_DIGITS_MAX = 12


class _Sizes(NamedTuple):
    """The limits of ids, and the number of rows: None if there is no header."""

    n_rows: int | None
    n_labels: int
    n_features: int


# The rows of a block, each sorted by id, as views of arrays that the next block overwrites.
_Part: TypeAlias = tuple[SparseRows, LabelRows]


def read_rows(
    file: DataFile, n_labels: int | None, n_features: int | None, *, has_header: bool
) -> tuple[SparseRows, LabelRows]:
    """Read rows `label,label feature:value ...`.

    The repository's format (.txt) has a header `points features labels`, multi-label libsvm (.svm)
    has none. A row without labels begins with a space. Labels and features of a row may come in any
    order; a repeated label counts once, the values of a repeated feature are summed.

    With a header, an empty line is a row without labels and features. Ids count from 0 and are
    below the header's numbers, which may not exceed `n_labels` and `n_features` (those of a model).
    The sizes of the result are `n_labels` and `n_features`, or the header's numbers where they are
    None.

    Without a header, lines that are empty or begin with `#` are no rows. Ids are used as they are,
    whether they count from 0 or from 1. A size that is None becomes the largest id plus 1.

    Raises BadData. Memory: the result and a block.
    """
    sizes, parts = _open(file, n_labels, n_features, has_header=has_header)
    columns = [Growing(dtype) for dtype in (np.int32, np.int32, np.int32, np.int32, np.float32)]
    for rows, labels in parts:
        arrays = (
            np.diff(labels.indptr),
            labels.indices,
            np.diff(rows.indptr),
            rows.indices,
            rows.values,
        )
        for column, array in zip(columns, arrays, strict=True):
            column.extend(array)
    label_counts, label_ids, feature_counts, features, values = (
        column.finish() for column in columns
    )
    if n_labels is None:
        n_labels = sizes.n_labels if has_header else int(label_ids.max(initial=-1)) + 1
    if n_features is None:
        n_features = sizes.n_features if has_header else int(features.max(initial=-1)) + 1
    rows = SparseRows(offsets(feature_counts), features, values, n_features)
    return rows, LabelRows(offsets(label_counts), label_ids, n_labels)


def parts_of(
    file: DataFile, n_labels: int | None, *, has_header: bool
) -> Iterator[tuple[SparseRows, LabelRows]]:
    """Yield the rows that `read_rows` reads, a block at a time. Memory: a block and its rows.

    Without a header, the number of features is N_IDS_MAX, and so is that of labels if it is None.
    """
    sizes, parts = _open(file, n_labels, None, has_header=has_header)
    n_labels = sizes.n_labels if n_labels is None else n_labels
    for (feature_ptr, features, values, n_features, _), labels in parts:
        yield (
            SparseRows(feature_ptr.copy(), features.copy(), values.copy(), n_features),
            LabelRows(labels.indptr.copy(), labels.indices.copy(), n_labels),
        )


def _open(
    file: DataFile, n_labels: int | None, n_features: int | None, *, has_header: bool
) -> tuple[_Sizes, Iterator[_Part]]:
    """Read the header, if there is one; return the limits of ids and rows, and the rows.

    Raises BadData.
    """
    blocks = file.lines()
    if not has_header:
        sizes = _Sizes(None, N_IDS_MAX if n_labels is None else n_labels, N_IDS_MAX)
        return sizes, _parse(file, blocks, 0, sizes)
    first = next(blocks, None)
    if first is None:
        raise file.fault(1, "expected a header `points features labels`, found an empty file")
    line, _, remainder = first.partition(b"\n")
    sizes = _parse_header(file, line)
    for kind, n_ids, n_ids_max in (
        ("labels", sizes.n_labels, n_labels),
        ("features", sizes.n_features, n_features),
    ):
        if n_ids_max is not None and n_ids > n_ids_max:
            raise file.fault(
                1,
                f"expected at most {n_ids_max} {kind} as in the model or names file, found {n_ids}",
            )
    return sizes, _parse(file, itertools.chain([remainder], blocks), 1, sizes)


def _parse_header(file: DataFile, line: bytes) -> _Sizes:
    """Return the sizes in the header `points features labels`. Raises BadData."""
    header = _HEADER.fullmatch(line)
    if header is None:
        raise file.fault(1, f"expected a header `points features labels`, found {_quoted(line)}")
    n_rows, n_features, n_labels = (
        int(digits.lstrip(b"0")[:_DIGITS_MAX] or 0) for digits in header.groups()
    )
    if not 1 <= n_rows <= N_ROWS_MAX:
        raise file.fault(
            1, f"expected 1 to {N_ROWS_MAX} points in the header, found {_quoted(line)}"
        )
    if max(n_features, n_labels) > N_IDS_MAX:
        raise file.fault(
            1, f"expected at most {N_IDS_MAX} features and labels, found {_quoted(line)}"
        )
    return _Sizes(n_rows, n_labels, n_features)


def _parse(
    file: DataFile, blocks: Iterator[bytes], n_lines_passed: int, sizes: _Sizes
) -> Iterator[_Part]:
    """Parse blocks of whole lines.

    n_lines_passed  how many lines of the first block were read before and are not in it

    Raises BadData, also if there are fewer rows than the header says, or no rows.
    """
    room = kernels.room_for(0)
    n_rows_read = 0
    n_rows_max = N_ROWS_MAX if sizes.n_rows is None else sizes.n_rows
    for block in blocks:
        line = file.line + n_lines_passed
        n_lines_passed = 0
        if len(room.row_start) <= len(block):
            room = kernels.room_for(len(block) + len(block) // 8)
        n_rows, n_hard, fault_offset, fault_code = kernels.parse_rows(
            np.frombuffer(block, np.uint8),
            sizes.n_rows is not None,
            n_rows_max - n_rows_read,
            sizes.n_labels,
            sizes.n_features,
            room,
        )
        _fill_hard(file, block, line, room, n_hard)
        if fault_code:
            raise _row_fault(file, block, line, fault_offset, fault_code, sizes)
        label_ptr = room.label_ptr[: n_rows + 1]
        feature_ptr = room.feature_ptr[: n_rows + 1]
        n_labels = sort_labels(label_ptr, room.labels)
        n_pairs, bad_row = sort_and_sum_rows(feature_ptr, room.features, room.values)
        if bad_row >= 0:
            raise file.fault(
                line + block.count(b"\n", 0, int(room.row_start[bad_row])),
                "expected finite values, found a feature whose values sum to an infinite one",
            )
        yield (
            SparseRows(
                feature_ptr, room.features[:n_pairs], room.values[:n_pairs], sizes.n_features
            ),
            LabelRows(label_ptr, room.labels[:n_labels], sizes.n_labels),
        )
        n_rows_read += n_rows
    if sizes.n_rows is not None and n_rows_read != sizes.n_rows:
        raise file.fault(
            n_rows_read + 1, f"expected {sizes.n_rows} rows as the header says, found {n_rows_read}"
        )
    if not n_rows_read:
        raise file.fault(1, "expected at least one row, found none")


def _fill_hard(file: DataFile, block: bytes, line: int, room: kernels.Block, n_hard: int) -> None:
    """Read with Python's float() the numbers that the kernel could not round exactly."""
    for place, start in zip(
        room.hard[:n_hard].tolist(), room.hard_start[:n_hard].tolist(), strict=True
    ):
        # the kernel has checked that a blank or a line end follows the number
        text = block[start : start + kernels.NUMBER_BYTES_MAX].split(maxsplit=1)[0]
        with np.errstate(over="ignore"):
            value = np.float32(float(text))
        if not np.isfinite(value):
            pair = block.rfind(b"\n", 0, start) + 1
            pair += len(block[pair:start].rstrip(b":0123456789"))
            raise _row_fault(file, block, line, pair, kernels.INFINITE, _Sizes(None, 0, 0))
        room.values[place] = value


def _quoted(text: bytes) -> str:
    """Return bytes of a file for a message: in quotes, cut, other characters than ASCII escaped."""
    return repr(text[:_QUOTED_BYTES_MAX].decode("ascii", "backslashreplace"))


def _row_fault(
    file: DataFile, block: bytes, line: int, offset: int, fault: int, sizes: _Sizes
) -> BadData:
    """Return the error for a fault of the kernel.

    line    the number of the block's first line
    offset  where the fault is in the block
    """
    expected = {
        kernels.BAD_LABEL: "expected label ids and commas (a row without labels begins with "
        "a space)",
        kernels.LABEL_RANGE: f"expected a label id below {sizes.n_labels}",
        kernels.BAD_FEATURE: "expected feature:value with a feature id",
        kernels.NO_COLON: "expected a colon after the feature id",
        kernels.FEATURE_RANGE: f"expected a feature id below {sizes.n_features}",
        kernels.BAD_VALUE: f"expected a decimal number of at most {kernels.NUMBER_BYTES_MAX} "
        "bytes as value",
        kernels.INFINITE: "expected a value that is finite in 32 bits",
        kernels.EXTRA_ROW: f"expected {sizes.n_rows} rows as the header says",
    }[fault]
    words = block[offset : offset + 2 * _QUOTED_BYTES_MAX].split(b"\n", 1)[0].split(maxsplit=1)
    actual_text = _quoted(words[0]) if words else "the end of the line"
    if fault == kernels.EXTRA_ROW:
        actual_text = f"more, beginning with {actual_text}"
    return file.fault(line + block.count(b"\n", 0, offset), f"{expected}, found {actual_text}")


def read_label_names(path: Path) -> list[str]:
    """Return the label names in a file (also .gz): each line is a name.

    Raises BadData, which names the line, for a name that is empty, not UTF-8, repeated, too long or
    has control characters; and for an empty file.
    """
    file = DataFile(path)
    names = [line for _, line in text_lines(file)]
    if not names:
        raise file.fault(None, "expected the names of labels, found an empty file")
    try:
        build_names(names)
    except BadNames as error:
        raise file.fault(None if error.index is None else error.index + 1, error.fault) from error
    return names
