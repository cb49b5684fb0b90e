"""Find and open the data that `--data` names: a file, a directory, or a pattern of names.

They are on this machine or in an object store.
"""

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from xylem.base import (
    JSON_LINES,
    TABLES,
    BadData,
    RemotePath,
    RowPlace,
    XylemError,
    faults_of,
    is_directory,
    is_pattern,
    plain_name,
    reason_of,
    refuse_special,
)
from xylem.datasets.annif import DIRECTORY, DOCUMENT, DOCUMENTS, JSON_DOCUMENT, CorpusDirectory
from xylem.datasets.findings import FILES_PASSED_OVER, quoted
from xylem.datasets.stream import DataFile, Progress

# The suffixes of the formats; each but .parquet may be followed by .gz or .zst.
SUFFIXES = (DOCUMENT, ".svm", *JSON_LINES, ".npz", *TABLES)

FILES_MAX = 100_000  # the most files of a data set

PLACES = 1 << 40  # the numbers that the rows of a file may have, in a data set of several files

# Formats of which several files may be one data set; the others have their sizes in a header.
_MANY = (".svm", *JSON_LINES, *TABLES)


class InputFile(NamedTuple):
    """A data file, and its size in bytes."""

    path: Path
    n_bytes: int


class DataFiles(DataFile):
    """Data files of one kind that are read as one; errors name the file that is being read."""

    def __init__(
        self, path: Path, files: Sequence[InputFile], on_progress: Progress | None = None
    ) -> None:
        super().__init__(path, on_progress)
        self.kind = kind_of(files[0].path)
        self._files = files

    def files(self) -> Iterator[DataFile]:
        """Yield the files in order; each continues the digest of the file before it.

        Read a file to its end before you ask for the next one.
        """
        data_path = self.path
        n_bytes_done = 0
        total = sum(file.n_bytes for file in self._files)
        for file_path, n_bytes in self._files:

            def move(n_bytes_read: int, _: int, n_bytes_before: int = n_bytes_done) -> None:
                if self._on_progress:
                    self._on_progress(n_bytes_before + n_bytes_read, total)

            file = DataFile(file_path, move, previous=self)
            self.path = file_path
            self.line = 1
            yield file
            self._digest = file._digest
            self.first_place += PLACES
            n_bytes_done += n_bytes
        self.path = data_path

    def place(self, number: int) -> RowPlace:
        """Return the place of a row by its number, with the name of its file.

        Rows of numbers are counted through all files.
        """
        index, line = divmod(number, PLACES)
        return RowPlace(line, "" if self.kind == ".svm" else self._files[index].path.name)

    def blocks(self) -> Iterator[bytes]:
        for file in self.files():
            yield from file.blocks()

    def lines(self) -> Iterator[bytes]:
        """Yield blocks of whole lines, each of one file.

        `line` is the number, within that file, of the block's first line.
        """
        for file in self.files():
            for block in file.lines():
                self.line = file.line
                yield block


def open_data(path: Path, on_progress: Progress | None = None, encoding: str = "") -> DataFile:
    """Open a file, a directory of documents, or several files that are read as one.

    encoding  of the text; "": UTF-8

    Raises BadData.
    """
    file = _opened(path, on_progress)
    file.encoding = encoding
    if not isinstance(path, RemotePath) and path.is_dir():
        kinds = {DIRECTORY: (*DOCUMENTS, ".tsv"), **dict.fromkeys(JSON_LINES, JSON_LINES)}
        names = sorted(
            other.name
            for other in path.iterdir()
            if _may_have_rows(other, kinds.get(file.kind, (file.kind,)))
        )
        if names:
            file.findings.append(FILES_PASSED_OVER.about(n=len(names), names=quoted(names)))
    return file


def _may_have_rows(path: Path, kinds: Sequence[str] = ()) -> bool:
    """Return whether a file looks like one with rows, but is of none of the kinds that are read."""
    suffix = Path(plain_name(path)).suffix
    return (
        (suffix == JSON_DOCUMENT or suffix in SUFFIXES)
        and suffix not in kinds
        and not path.name.startswith((".", "_"))
    )


def _opened(path: Path, on_progress: Progress | None) -> DataFile:
    if is_directory(path) and not isinstance(path, RemotePath) and _has_documents(path):
        return CorpusDirectory(path, on_progress)
    files = find_files(path)
    if len(files) == 1 and files[0].path == path:
        kind_of(path)
        return DataFile(path, on_progress)
    kinds = {
        JSON_LINES[0] if (kind := kind_of(file.path)) in JSON_LINES else kind for file in files
    }
    if len(kinds) > 1:
        raise BadData(f"{path}: expected files of one kind, found {', '.join(sorted(kinds))}")
    (kind,) = kinds
    if kind in _MANY:
        return DataFiles(path, files, on_progress)
    if len(files) > 1:
        raise BadData(
            f"{path}: expected one {kind} file, or many of {', '.join(_MANY)}, found {len(files)}"
        )
    return DataFile(files[0].path, on_progress)


def find_files(path: Path) -> list[InputFile]:
    """Return the files that a path names, sorted by name.

    A path names one file, which need not exist; the files of a directory, those of the formats
    whose names begin with neither `.` nor `_`; or the files that match a pattern with `*`, `?`,
    `[...]`, and `**` for directories. A path under which a file exists is no pattern. Raises
    BadData if there are no files.
    """
    is_dir = is_directory(path)
    try:
        refuse_special(path)
        if not is_dir and (
            not is_pattern(path) or (not isinstance(path, RemotePath) and path.exists())
        ):
            return [InputFile(path, 0)]
        files = _list_files(path, is_dir=is_dir)
    except (XylemError, MemoryError):
        raise
    except faults_of(path) as error:
        raise BadData(f"{path}: expected files to read, found: {reason_of(error)}") from None
    if not files:
        raise BadData(
            f"{path}: expected data files, or documents named *{', *'.join(DOCUMENTS)} in the "
            "directory, found none"
            if is_dir
            else f"{path}: expected such files, found none"
        )
    if len(files) > FILES_MAX:
        raise BadData(f"{path}: expected at most {FILES_MAX} files, found {len(files)}")
    return sorted(files, key=lambda file: str(file.path))


def kind_of(path: Path) -> str:
    """Return the suffix of a data file, one of SUFFIXES, without that of its compression.

    Raises BadData for a name with another suffix.
    """
    suffix = Path(plain_name(path)).suffix
    if suffix not in SUFFIXES:
        raise BadData(
            f"{path}: expected a name that ends in {', '.join(SUFFIXES)} (and .gz or .zst), "
            f"found {path.name!r}"
        )
    return suffix


def source_of(path: Path) -> str:
    """Return the base name of a file or directory; for a pattern, that of its directory."""
    source = path.parent if is_pattern(path) and path.parent.name else path
    return source.name or source.absolute().name


def _list_files(path: Path, *, is_dir: bool) -> list[InputFile]:
    if isinstance(path, RemotePath):
        entries = (
            path.fs.ls(path.key, detail=True)
            if is_dir
            else path.fs.glob(path.key, detail=True).values()
        )
        files = [
            InputFile(RemotePath(path.fs.unstrip_protocol(entry["name"])), int(entry["size"] or 0))
            for entry in entries
            if entry["type"] == "file"
        ]
    else:
        matches = glob.iglob(str(path), recursive=True)  # noqa: PTH207
        files = [
            InputFile(file, file.stat().st_size)
            for file in (path.iterdir() if is_dir else map(Path, matches))
            if file.is_file()
        ]
    return [file for file in files if not is_dir or _may_have_rows(file.path, (JSON_DOCUMENT,))]


def _has_documents(path: Path) -> bool:
    """Return whether a directory has documents, as a corpus of Annif.

    Files of JSON are documents beside other ones, or alone. Raises BadData if it has documents and
    other data files; .tsv files are the documents' subjects.
    """
    try:
        files = [file for file in path.iterdir() if _may_have_rows(file) and file.is_file()]
    except OSError as error:
        raise BadData(f"{path}: expected a directory to read, found: {error.strerror}") from None
    kinds = {Path(plain_name(file)).suffix for file in files}
    if not any(file.suffix == DOCUMENT for file in files) and kinds != {JSON_DOCUMENT}:
        return False
    if other_kinds := sorted(kinds - {*DOCUMENTS, ".tsv"}):
        raise BadData(
            f"{path}: expected documents (*{DOCUMENT}) or files of data, found "
            f"*{', *'.join(other_kinds)} among them: name them by a pattern"
        )
    return True
