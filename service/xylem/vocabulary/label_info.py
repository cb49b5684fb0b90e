"""Read a vocabulary's file as label info."""

from collections.abc import Sequence
from pathlib import Path

from xylem.base import BadParameter
from xylem.datasets import DataFile, read_subjects
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
) -> LabelInfo:
    """Return the label info of a file; its suffix tells the format (.gz may follow).

    key_kind  what a model's labels are: "uri", "notation", or a language, in which they are the
              names
    language  of the names for a request that names no language; for a .tsv file, that of its names
    first_name  as `read_subjects` takes it
    added     as `with_added` takes them

    Raises BadData, which names the file and, for a table, the line; and BadParameter.
    """
    if language is not None and not is_language(language):
        raise BadParameter(
            f"language: expected a language, as en or pt-br, found {language[:40]!r}"
        )
    file = DataFile(path)
    vocabulary = read_subjects(file, language, first_name=first_name)
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
