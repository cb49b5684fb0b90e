"""Denied labels: those that the answers of an alias never have, whatever version it names."""

from __future__ import annotations

from collections.abc import Iterable

from model_store.documents import parse_sealed, render_sealed
from model_store.errors import BadNames, Corrupt
from model_store.names import build_names

DENIED_MAX = 10_000
"""Labels that an alias may deny."""

DENIED_BYTES_MAX = 1 << 20
"""Of their file."""


def denied_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Return names as they are kept: ascending, each once.

    Raises BadNames for too many, for more bytes than their file may have, and for one that no label can have.
    """
    labels = tuple(sorted(set(names)))
    if len(labels) > DENIED_MAX:
        raise BadNames(f"expected at most {DENIED_MAX} denied labels, found {len(labels)}")
    build_names(labels)
    size = len(render_denied(labels))
    if size > DENIED_BYTES_MAX:
        raise BadNames(f"expected denied labels of at most {DENIED_BYTES_MAX} bytes, found {size}")
    return labels


def render_denied(labels: tuple[str, ...]) -> bytes:
    """Return the bytes of the file of what `denied_labels` returned: the document, and its seal."""
    return render_sealed({"labels": labels})


def parse_denied(data: bytes, where: str) -> tuple[str, ...]:
    """Return the labels in the bytes of their file; raise Corrupt naming `where` for anything else."""
    fields = parse_sealed(data, where)
    found = fields.take("labels")
    fields.done()
    if type(found) is not list or not all(type(name) is str for name in found):
        raise fields.refusal("labels", "a list of names", found)
    try:
        labels = denied_labels(found)
    except BadNames as error:
        raise Corrupt(f"{where}: labels", "names of labels", str(error)) from error
    if list(labels) != found:
        raise fields.refusal("labels", "names in ascending order, each once", found)
    return labels
