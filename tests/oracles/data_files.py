"""Slow, obvious readers of the text formats, with regular expressions and dicts."""

import re

import numpy as np

NUMBER_BYTES_MAX = 1100

_ID = rb"[0-9]+"
_NUMBER = rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_LABELS = re.compile(rb"%b(?:,%b)*" % (_ID, _ID))
_PAIR = re.compile(rb"(%b):(%b)" % (_ID, _NUMBER))

Row = tuple[list[int], dict[int, np.float32]]


class RefusedError(Exception):
    pass


def parse_row(line: bytes, n_labels: int, n_features: int) -> Row:
    head, *pairs = re.split(rb"[ \t]+", line)
    labels: set[int] = set()
    if head:
        if not _LABELS.fullmatch(head):
            raise RefusedError("labels")
        labels = {int(label) for label in head.split(b",")}
    if labels and max(labels) >= n_labels:
        raise RefusedError("label range")
    sums: dict[int, float] = {}
    for pair in filter(None, pairs):  # after a blank at the end is none
        match = _PAIR.fullmatch(pair)
        if not match or len(match[2]) > NUMBER_BYTES_MAX:
            raise RefusedError("pair")
        feature = int(match[1])
        with np.errstate(over="ignore"):
            value = np.float32(float(match[2]))
        if feature >= n_features or not np.isfinite(value):
            raise RefusedError("range")
        sums[feature] = sums.get(feature, 0.0) + float(value)
    with np.errstate(over="ignore"):
        row = {feature: np.float32(sums[feature]) for feature in sorted(sums)}
    if not all(np.isfinite(value) for value in row.values()):
        raise RefusedError("sum")
    return sorted(labels), row


def _lines(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def parse_txt(data: bytes, ids_max: int = 1 << 28) -> tuple[list[Row], int, int]:
    """(rows, labels, features) of a file of the Extreme Classification Repository's format."""
    lines = _lines(data)
    if not lines:
        raise RefusedError("empty")
    header = re.fullmatch(rb"[ \t]*(%b)[ \t]+(%b)[ \t]+(%b)[ \t]*" % (_ID, _ID, _ID), lines[0])
    if not header:
        raise RefusedError("header")
    n_rows, n_features, n_labels = (int(number) for number in header.groups())
    if n_rows < 1 or n_rows > 1 << 31 or max(n_features, n_labels) > ids_max:
        raise RefusedError("header sizes")
    body, after = lines[1 : n_rows + 1], lines[n_rows + 1 :]
    if len(body) < n_rows or any(after):  # empty lines after the last row are no rows
        raise RefusedError("rows")
    return [parse_row(line, n_labels, n_features) for line in body], n_labels, n_features


def parse_svm(data: bytes, ids_max: int = 1 << 28) -> tuple[list[Row], int, int]:
    """(rows, labels, features) of a multi-label libsvm file."""
    lines = [line for line in _lines(data) if line and not line.startswith(b"#")]
    rows = [parse_row(line, ids_max, ids_max) for line in lines]
    if not rows:
        raise RefusedError("empty")
    n_labels = 1 + max((label for labels, _ in rows for label in labels), default=-1)
    n_features = 1 + max((feature for _, row in rows for feature in row), default=-1)
    return rows, n_labels, n_features
