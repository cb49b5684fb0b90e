"""Read a vocabulary's file as label info."""

from collections.abc import Callable, Sequence
from pathlib import Path

from xylem.base import BadParameter, DataReport, Finding
from xylem.datasets import WORKFLOW_FINDINGS, DataFile, read_subjects
from xylem.vocabulary.concepts import with_added
from xylem_store import (
    NAME,
    URI,
    BadNames,
    LabelInfo,
    Subject,
    build_label_info,
    is_language,
)


def read_label_info(
    path: Path,
    key_kind: str = URI,
    language: str | None = None,
    *,
    first_name: bool = False,
    added: Sequence[Subject] = (),
    on_finding: Callable[[Finding], None] = lambda finding: None,
) -> LabelInfo:
    """Return the label info of a file; its suffix tells the format (.gz may follow).

    key_kind  what a model's labels are: "uri", "notation", or a language, in which they are the
              names
    language  of the names for a request that names no language; for a .tsv file, that of its names
    first_name  as `read_subjects` takes it
    added     as `with_added` takes them
    on_finding  is called with each finding on the file

    Raises BadData, which names the file and, for a table, the line; and BadParameter.
    """
    if language is not None and not is_language(language):
        raise BadParameter(
            f"language: expected a language, as en or pt-br, found {language[:40]!r}"
        )
    file = DataFile(path)
    vocabulary = read_subjects(file, language, first_name=first_name)
    for finding in file.findings:
        on_finding(finding)
    column = key_kind if key_kind in ("uri", "notation") else f"{NAME}{key_kind}"
    try:
        return build_label_info(with_added(vocabulary.subjects, added, key_kind), column, language)
    except ValueError as error:
        if not isinstance(error, BadNames) or error.index is None:
            raise file.fault(None, str(error)) from None
        line = vocabulary.lines[error.index] if vocabulary.lines else None
        raise file.fault(
            line, f"<{vocabulary.subjects[error.index].uri[:120]}>: {error.fault}"
        ) from None


NAMES_QUOTED = 3  # how many labels without a concept a finding names


def note_without_concept(
    report: DataReport | None, labels: Sequence[str], n_labels: int, *, strict: bool
) -> None:
    """Add the finding that labels of rows are no concepts of a vocabulary, if some are none.

    report    on the rows; None: they were not counted
    labels    those without a concept
    n_labels  number of all labels of the rows

    Raises BadData if findings are refused.
    """
    if labels and report is not None:
        report.note(
            WORKFLOW_FINDINGS["labels-without-concept"].about(
                n=len(labels),
                n_labels=n_labels,
                names=", ".join(f"{name!r:.60}" for name in labels[:NAMES_QUOTED]),
            ),
            strict=strict,
        )
