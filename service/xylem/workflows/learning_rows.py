"""The rows that a recipe learns from: which of them teach, and which are held out to judge."""

import hashlib
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from xylem.base import BadData, Dataset, OnProgress
from xylem.datasets import dataset_in_memory, read_dataset
from xylem.workflows.recipe import Recipe

HELD_OUT = 10  # one of this many documents is held out to measure on

JUDGES_MAX = 5000  # at most this many judge: those with the smallest digests


class LearningRow(NamedTuple):
    """A text with its newest labels.

    source   the number of the source that has them; that of feedback is the number of sources
    in_file  whether a file of documents has the text, too
    """

    text: str
    labels: list[str]
    weight: float
    source: int
    in_file: bool


class LearningRows(NamedTuple):
    """The rows of a recipe, each text once.

    documents    teach all parts
    weak         teach a member of their own
    judges       documents of files that are held out
    corrections  texts of feedback alone that are held out
    sources      for each file, and feedback: its rows, and how many of them have which use
    """

    documents: list[LearningRow]
    weak: list[LearningRow]
    judges: list[LearningRow]
    corrections: list[LearningRow]
    sources: list[dict[str, Any]]


def read_learning_rows(
    recipe: Recipe,
    files: Mapping[str, Path],
    feedback: Sequence[bytes],
    on_progress: OnProgress,
    examples: Sequence[tuple[str, str]] = (),
) -> LearningRows:
    """Read the files and the feedback of a recipe; of each text the newest labels stay.

    Examples of concepts give their texts one more label. A tenth of the documents is held out,
    which their digests choose: always the same ones. Raises BadData for rows that are no texts.
    """
    by_role: dict[str, dict[bytes, LearningRow]] = {"judge": {}, "members": {}}
    counts: list[dict[str, Any]] = []
    for number, source in enumerate(recipe.sources):
        dataset = read_dataset(
            files[source.file], columns=recipe.columns, on_progress=partial(on_progress, "read")
        )
        if dataset.texts is None:
            raise BadData(f"{dataset.source}: expected texts to learn from, found other instances")
        counts.append({"source": dataset.source, "role": source.role, "rows": dataset.n_rows})
        by_role[source.role] |= {digest_of(row.text): row for row in _rows_of(dataset, number)}
    documents = by_role["judge"]
    counts.append({"source": "feedback", "role": "judge", "rows": len(feedback)})
    if examples:
        counts.append({"source": "concepts", "role": "judge", "rows": len(examples)})
    for text, label in examples:
        key = digest_of(text)
        row = documents.get(key) or LearningRow(text, [], 1.0, len(recipe.sources) + 1, True)
        # the labels that the text has elsewhere stay true
        documents[key] = row._replace(labels=[*dict.fromkeys([*row.labels, label])])
    for line in feedback:
        event = json.loads(line)
        key = digest_of(event.get("text") or "")
        documents[key] = LearningRow(
            text=event.get("text") or "",
            labels=list(event["labels"]),
            weight=recipe.feedback_weight,
            source=len(recipe.sources),
            in_file=key in documents and documents[key].in_file,
        )
    blank = {digest_of("")}
    # a member that has seen a document would know its labels too well
    seen = blank | documents.keys()
    weak = [row for key, row in by_role["members"].items() if key not in seen]
    held_keys = {key for key in documents if int.from_bytes(key[:8], "big") % HELD_OUT == 0}
    held_rows = [documents[key] for key in sorted(held_keys - blank)]
    learnt = [row for key, row in documents.items() if key not in held_keys and row.text.strip()]
    for number, count in enumerate(counts):
        n_of = {
            use: sum(row.source == number for row in rows)
            for use, rows in {"learnt": learnt, "members": weak, "held_out": held_rows}.items()
        }
        count.update(n_of, left_out=count["rows"] - sum(n_of.values()))
    return LearningRows(
        documents=learnt,
        weak=weak,
        judges=[row for row in held_rows if row.in_file][:JUDGES_MAX],
        corrections=[row for row in held_rows if not row.in_file][:JUDGES_MAX],
        sources=counts,
    )


def _rows_of(dataset: Dataset, source: int) -> Iterator[LearningRow]:
    names = dataset.names
    labels = dataset.labels
    weights = labels.all_weights().rows
    for row, text in enumerate(dataset.texts or ()):
        ids = labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tolist()
        yield LearningRow(text, [names[i] for i in ids], float(weights[row]), source, True)


def digest_of(text: str) -> bytes:
    """Return the digest of a text, the same for texts that differ in case and blanks alone."""
    words = unicodedata.normalize("NFC", text).casefold().split()
    return hashlib.sha256(" ".join(words).encode("utf-8", "replace")).digest()


def dataset_of(rows: Sequence[LearningRow]) -> Dataset:
    """Return rows as a data set without weights, with a digest of their texts and labels."""
    return replace(
        dataset_in_memory([row.labels for row in rows], None, [row.text for row in rows], None),
        source="recipe",
        sha256=hashlib.sha256(
            json.dumps([(row.text, row.labels) for row in rows]).encode()
        ).hexdigest(),
    )
