"""Read a labelled file in the form a version needs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from xylem.base import (
    DEFAULT_COLUMNS,
    BadData,
    BadInstance,
    Dataset,
    OnProgress,
    TableColumns,
    one_step,
)
from xylem.datasets import WORKFLOW_FINDINGS, read_dataset, read_texts
from xylem.engine import ContextFeaturizer, Featurizer
from xylem.evaluation import Labelled, digests_of, labelled_dataset
from xylem.vocabulary import featurizer_of
from xylem_store import I32, U64, Model, NameTable, name_of


def read_labelled(
    model: Model, data: Path, on_progress: OnProgress, columns: TableColumns = DEFAULT_COLUMNS
) -> Labelled:
    """Read a labelled file for an opened version, as `read_labelled_with`. Raises BadInput."""
    return read_labelled_with(model.labels, featurizer_of(model), data, on_progress, columns)


def read_labelled_with(
    labels: NameTable,
    featurizer: Featurizer,
    data: Path,
    on_progress: OnProgress,
    columns: TableColumns = DEFAULT_COLUMNS,
    with_vectors: Callable[[Dataset], Dataset] = lambda dataset: dataset,
) -> Labelled:
    """Read a labelled file as rows of a featurizer's features, with ids of labels. Raises BadInput.

    with_vectors  makes vectors beside texts, if a sentence encoder does so before the training

    For windows of words only the texts of the file are read: their words are the labels.
    """
    if isinstance(featurizer, ContextFeaturizer):
        rows, words = featurizer.windows_of(read_texts(data, partial(on_progress, "read")))
        return Labelled(rows, words, np.zeros(rows.n_rows, np.int32))
    dataset = read_dataset(
        data,
        labels=labels,
        n_features=featurizer.n_features,
        columns=columns.for_version(featurizer.fields),
        on_progress=partial(on_progress, "read"),
    )
    with one_step(on_progress, "features"):
        try:
            labelled = labelled_dataset(with_vectors(dataset), featurizer)
        except BadInstance as error:
            raise BadData(f"{data}: {error}") from None
    return labelled


# The share of validation rows that are training rows from which it is a finding: short texts may
# be equal by chance.
REPEATED_SHARE = 0.1


# Validation rows are compared with this many training rows, the first ones: 8 MiB of digests.
DIGESTS_MAX = 1 << 20


def note_repeated_rows(digests: U64, valid: Labelled, *, strict: bool) -> None:
    """Add the finding that many validation rows have the features of a training row, if so.

    digests  of training rows

    Raises BadData if findings are refused.
    """
    n_repeated = int(np.isin(digests_of(valid.rows), digests[digests > 0]).sum())
    if n_repeated > REPEATED_SHARE * valid.n_rows and valid.report is not None:
        valid.report.note(
            WORKFLOW_FINDINGS["repeated-rows"].about(n=n_repeated, n_rows=valid.n_rows),
            strict=strict,
        )


EXAMPLES = 3  # how many labels a finding names


def note_never_answered(
    valid: Labelled, names: NameTable, labels: I32, *, strict: bool = False
) -> None:
    """Add the finding that labels of rows are never answered, if some are.

    names   of all labels
    labels  those of the rows that are never answered, ascending

    Raises BadData if findings are refused.
    """
    if len(labels) and valid.report is not None:
        valid.report.note(
            WORKFLOW_FINDINGS["labels-never-answered"].about(
                n=len(labels),
                n_labels=len(np.unique(valid.labels.indices)),
                names=", ".join(
                    repr(name_of(names, label)) for label in labels[:EXAMPLES].tolist()
                ),
            ),
            strict=strict,
        )
