"""How a data file is read: the columns of a table, its marks, the encoding, rows of one text."""

import codecs
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from xylem.base.errors import BadParameter
from xylem.base.fields import TextColumn, TextFields
from xylem.base.files import plain_name

# The suffixes of tables; each but .parquet may be followed by .gz or .zst.
TABLES = (".csv", ".tsv", ".parquet")

# The suffixes of files with a JSON object on each line.
JSON_LINES = (".jsonl", ".ndjson")

# The kinds of files that can have a vector in a cell.
VECTOR_KINDS = (*JSON_LINES, ".parquet")

SEPARATOR_CHARS_MAX = 16
N_FOR_TABLES = 6  # the number of the first values of TableColumns, which only tables have


class TableColumns(NamedTuple):
    """The columns of a table that are read, its marks, and how any file is read.

    The reader guesses what is empty: the first four, from the names and cells of the table.

    texts          the columns of text, or keys of lines of JSON, that are named
    labels         the column of the labels
    separator      stands between the labels of a cell; blanks around a label, and empty labels, are
                   left out
    delimiter      stands between the cells of a line of a text table
    label_columns  patterns for several columns of labels, in place of `labels`: their cells are
                   labels; or, if they have only 0 and 1, the names of the columns are
    has_quotes     whether a cell of a text table may be quoted
    encoding       of the text; empty: UTF-8
    join           the column, or the key of lines of JSON, that is the same in the rows of one
                   text; their labels are joined. Empty: each row is one
    strict         whether a file is refused for each finding
    fields         those of the version that the rows are for: they are read where no columns are
                   named, and a file has one of them
    weight         the column, or the key of lines of JSON, with the weights of rows. Empty: all
                   weights are 1
    vector         the column, or the key of lines of JSON, with the vectors of rows. Empty: there
                   is none
    vectors        the file of vectors that stands beside a data file, as (data file, its vectors)
    """

    texts: TextFields = TextFields()
    labels: str = ""
    separator: str = ""
    delimiter: str = ""
    label_columns: tuple[str, ...] = ()
    has_quotes: bool = True
    encoding: str = ""
    join: str = ""
    strict: bool = False
    fields: TextFields = TextFields()
    weight: str = ""
    vector: str = ""
    vectors: tuple[tuple[Path, Path], ...] = ()

    def vectors_of(self, path: Path) -> Path | None:
        """Return the file of vectors that stands beside a data file, None if there is none."""
        return next((vectors for data, vectors in self.vectors if data == path), None)

    def with_vectors(
        self, vectors: Sequence[Path] | None, *files: Path | None, column: str | None = None
    ) -> Self:
        """Return the same with vectors of rows: in a file beside each data file, or in a column.

        vectors  the files of vectors, in the order of the data files; None: there are none
        column   as `vector`; None: there is none

        Raises BadParameter, whose path is the field of a job, for both, for another number of files
        of vectors, and for rows that are joined.
        """
        paths = [file for file in files if file is not None]
        if column == "":
            raise BadParameter("vector column: expected a name, found an empty one").with_path(
                "vector_column"
            )
        if vectors and column:
            raise BadParameter("vectors cannot be used with a vector column").with_path("vectors")
        if self.join and (vectors or column):
            name = "vectors" if vectors else "vector_column"
            raise BadParameter(f"{name.replace('_', ' ')} cannot be used with join rows").with_path(
                name
            )
        if vectors and len(vectors) != len(paths):
            names = ", ".join(path.name for path in paths)
            raise BadParameter(
                f"vectors: expected a file for each file of data, {len(paths)} ({names}), "
                f"found {len(vectors)}"
            ).with_path("vectors")
        return self._replace(
            vectors=tuple(zip(paths, vectors or (), strict=False)), vector=column or ""
        )

    def for_file(self, path: Path, kind: str) -> Self:
        """Return how a data file is read: a file of vectors beside it replaces the column.

        Raises BadParameter if vectors are in a column, and files of this kind have none.
        """
        if self.vectors_of(path) is not None:
            return self._replace(vector="")
        if self.vector and kind not in VECTOR_KINDS:
            raise BadParameter(
                f"vector column: expected a file of {', '.join(VECTOR_KINDS)}, whose cells have "
                f"many numbers, found {path.name!r}: give its vectors in a .npy file"
            ).with_path("vector_column")
        return self

    def has_vectors(self, path: Path) -> bool:
        """Return whether the rows of a data file have vectors."""
        return bool(self.vector) or self.vectors_of(path) is not None

    def with_texts(self, names: Iterable[str]) -> Self:
        """Return the same with these columns of text, each of weight 1."""
        return self._replace(texts=TextFields(map(TextColumn, names)))

    def for_version(self, fields: TextFields) -> Self:
        """Return how rows are read for a version with these fields.

        Raises BadParameter for columns that are not its fields, and for a weight to be chosen. A
        version whose only field is the text takes any column.
        """
        texts = self.texts
        if fields and texts and texts != fields and (len(fields) > 1 or len(texts) > 1):
            raise BadParameter(
                f"text column: expected the fields of the version, {', '.join(fields.options)}, or "
                f"no names, found {', '.join(texts.options)}"
            ).with_path("text_column")
        texts.refuse_unweighted()
        texts = TextFields() if texts == fields else texts
        return self._replace(texts=texts, fields=fields or self.fields)

    @property
    def for_any_version(self) -> Self:
        """Return the same for versions whose fields may be others: theirs are read if so."""
        return self._replace(texts=TextFields(), fields=self.texts.with_weight(1))

    @property
    def names_without_labels(self) -> set[str]:
        """Return the names of the columns of texts, of weights and of vectors."""
        return {*self.texts.names, self.weight, self.vector}

    @property
    def is_guessed(self) -> bool:
        """Return whether the reader guesses everything."""
        return self[:N_FOR_TABLES] == DEFAULT_COLUMNS[:N_FOR_TABLES]


# No option says how a file is read.
DEFAULT_COLUMNS = TableColumns()


def columns_of(
    texts: Sequence[str] | None,
    labels: str | None,
    separator: str | None,
    delimiter: str | None = None,
    label_columns: Sequence[str] | None = None,
    quote: str | None = None,
    encoding: str | None = None,
    join_rows: str | None = None,
    strict: bool = False,
    weight_column: str | None = None,
) -> TableColumns:
    """Return the columns for the values of `--text-column`, `--label-column` and so on.

    A text is NAME or NAME=WEIGHT, a delimiter a character or "tab", a quote "none"; None: the
    reader guesses. Raises BadParameter, whose path is the field of a job.
    """
    text_columns = TextFields.of_options(texts or ())
    if labels is not None and not labels:
        raise BadParameter("label column: expected a name, found an empty one").with_path(
            "label_column"
        )
    if separator is not None and not 0 < len(separator) <= SEPARATOR_CHARS_MAX:
        raise BadParameter(
            f"label separator: expected 1 to {SEPARATOR_CHARS_MAX} characters, "
            f"found {len(separator)}"
        ).with_path("label_separator")
    delimiter_char = "\t" if delimiter == "tab" else delimiter or ""
    if delimiter is not None and (len(delimiter_char) != 1 or delimiter_char in '"\r\n'):
        raise BadParameter(
            f"delimiter: expected a character, not a quote, or tab, found {delimiter!r}"
        ).with_path("delimiter")
    if label_columns and labels is not None:
        raise BadParameter(
            "label columns: expected --label-column or --label-columns, found both"
        ).with_path("label_columns")
    if weight_column is not None and (join_rows or not weight_column):
        instead = f"--join-rows {join_rows}" if weight_column else "an empty name"
        raise BadParameter(
            f"weight column: expected a name, and rows that are not joined, found {instead}"
        ).with_path("weight_column")
    if quote not in (None, "none"):
        raise BadParameter(f"quote: expected none, found {quote!r}").with_path("quote")
    return TableColumns(
        texts=text_columns,
        labels=labels or "",
        separator=separator or "",
        delimiter=delimiter_char,
        label_columns=tuple(label_columns or ()),
        has_quotes=quote is None,
        encoding="" if encoding is None else _encoding(encoding),
        join=join_rows or "",
        strict=strict,
        weight=weight_column or "",
    )


def _encoding(name: str) -> str:
    """Return the name of an encoding of text, "" for UTF-8. Raises BadParameter."""
    try:
        "a".encode(name)  # a codec that is no encoding of text, as rot13, is refused
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        raise BadParameter(
            f"encoding: expected the name of an encoding, as windows-1252, found {name[:40]!r}"
        ).with_path("encoding") from None
    return "" if codec.name in ("utf-8", "utf-8-sig") else codec.name


def is_table(path: Path) -> bool:
    """Return whether a file has the suffix of a table."""
    return plain_name(path).endswith(TABLES)


def refuse_without_table(columns: TableColumns, *files: Path | None) -> None:
    """Raise BadParameter if columns are chosen although no file has any.

    Tables have all kinds, lines of JSON have columns of text alone.
    """
    paths = [file for file in files if file is not None]
    has_texts_alone = columns._replace(texts=TextFields()).is_guessed
    suffixes = (*TABLES, *JSON_LINES) if has_texts_alone else TABLES
    # a directory, which has no suffix, may contain tables
    can_have_columns = [plain_name(path).endswith(suffixes) or not path.suffix for path in paths]
    if not columns.is_guessed and not any(can_have_columns):
        raise BadParameter(
            f"columns: expected a file that ends in {', '.join(suffixes)}, "
            f"found {', '.join(repr(path.name) for path in paths)}"
        )
