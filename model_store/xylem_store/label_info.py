"""Label info: URI, notation, names by language and broader subjects of a model's labels.

There is one file for each model, replaced as a whole, beside its versions: FORMAT.md, section 9. A
million subjects are never Python objects: texts are bytes and offsets, and labels are looked up in
a hash table over the first column.
"""

import hashlib
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem_store.arrays import PIECE_BYTES, offset_fault
from xylem_store.compiled.handles import I32, I64, U8, read_only
from xylem_store.documents import (
    DIGEST,
    integer,
    list_of,
    parse_sealed,
    record,
    render_sealed,
    text,
)
from xylem_store.errors import BadNames, Corrupt
from xylem_store.fs import FileSystem, Mapped
from xylem_store.names import (
    NAME_BYTES_MAX,
    NameTable,
    build_names,
    check_names,
    check_texts,
    find_names,
    join_texts,
)

LABEL_INFO = "label_info"  # the file's name in the directory of the model

# The columns. NAME begins the column of the names in a language, OTHER_NAME that of other names.
#
# Deprecated subjects have the text DEPRECATED in the column of this name, which exists only if
# there are such subjects.
URI = "uri"
NOTATION = "notation"
NAME = "name:"
OTHER_NAME = "others:"
DEPRECATED = "deprecated"

NAME_SEPARATOR = " | "  # what stands between two other names of a subject

UNDETERMINED = "und"  # the language of names without a stated language (BCP 47)

LANGUAGES_MAX = 64
SUBJECTS_MAX = 1 << 27
HEAD_BYTES = 8192

_LANGUAGE = r"[a-z]{1,8}(-[a-z0-9]{1,8}){0,3}"
_COLUMN = rf"{URI}|{NOTATION}|{DEPRECATED}|({NAME}|{OTHER_NAME}){_LANGUAGE}"
_SCHEMA = 1
_ALIGNMENT = 64
_BYTES_MAX = 1 << 40


class Subject(NamedTuple):
    """One subject of a vocabulary. A label info keeps all fields but `related`.

    names        by language, in lower case; not empty
    broader      URIs of the subjects above it; those that the vocabulary does not have are left out
    related      URIs of related subjects; those that the vocabulary does not have are left out
    other_names  (language, whether the name is hidden, name)
    deprecated   whether the vocabulary marks it as no longer used
    """

    uri: str
    notation: str | None
    names: Mapping[str, str]
    broader: Sequence[str] = ()
    related: Sequence[str] = ()
    other_names: Sequence[tuple[str, bool, str]] = ()
    deprecated: bool = False


class Head(NamedTuple):
    """The fields in the first HEAD_BYTES of the file.

    columns     "uri", "notation", "name:LANGUAGE" for each language, "others:LANGUAGE" for some;
                the first is the key, in which labels are looked up: the first n_keys subjects have
                it
    language    the language of names in answers to requests that state none: one of those of the
                columns, or "" if there are no names
    n_texts     bytes of all texts
    n_broader   pairs of a subject and a subject above it
    sha256      of everything after the head
    """

    columns: tuple[str, ...]
    language: str
    n_subjects: int
    n_keys: int
    n_texts: int
    n_broader: int
    sha256: str

    @property
    def languages(self) -> tuple[str, ...]:
        """Return the languages of names, in the order of the columns."""
        return tuple(
            column.removeprefix(NAME) for column in self.columns if column.startswith(NAME)
        )

    @property
    def file_bytes(self) -> int:
        """Return the size of the file in bytes, this head included."""
        return HEAD_BYTES + sum(map(_padded, _sizes(self)))


class LabelInfo(NamedTuple):
    """The subjects of a vocabulary, n of them in C columns.

    keys         the n_keys texts of the first column: key i is that of subject i
    offsets      int64[C * n + 1]  ascending from 0; the text of subject i in column c is
                 utf8[offsets[c * n + i] : offsets[c * n + i + 1]], empty if there is none
    utf8         uint8[..]         no control characters, at most NAME_BYTES_MAX a text
    broader_ptr  int64[n + 1]      ascending from 0
    broader      int32[..]         the subjects above subject i are
                 broader[broader_ptr[i] : broader_ptr[i + 1]]
    """

    head: Head
    keys: NameTable
    offsets: I64
    utf8: U8
    broader_ptr: I64
    broader: I32

    def text(self, column: str, subject: int) -> str | None:
        """Return the text of subject i, 0 <= i < n, in a column.

        None if there is no text, or no such column.
        """
        if column not in self.head.columns:
            return None
        index = self.head.columns.index(column) * self.head.n_subjects + subject
        start = self.offsets[index]
        end = self.offsets[index + 1]
        return self.utf8[start:end].tobytes().decode() if start < end else None

    def texts(self, column: str) -> I64:
        """Return the offsets in `utf8` of the n texts of an existing column, int64[n + 1]."""
        first = self.head.columns.index(column) * self.head.n_subjects
        return self.offsets[first : first + self.head.n_subjects + 1]

    def names(self, subject: int) -> dict[str, str]:
        """Return the names of subject i, 0 <= i < n, by language, in the order of the columns."""
        texts = {tag: self.text(f"{NAME}{tag}", subject) for tag in self.head.languages}
        return {tag: text for tag, text in texts.items() if text is not None}

    def deprecated(self) -> NDArray[np.bool_] | None:
        """Return whether each subject is deprecated, bool[n]; None if no subject is."""
        return np.diff(self.texts(DEPRECATED)) > 0 if DEPRECATED in self.head.columns else None

    def allowed(self, subjects: I32) -> U8 | None:
        """Return 0 for each label that is deprecated, uint8[K]; None if no label is.

        subjects  int32[K], the subject of each label, or -1
        """
        deprecated = self.deprecated()
        if deprecated is None:
            return None
        is_deprecated = deprecated[subjects] & (subjects >= 0)
        return (~is_deprecated).view(np.uint8) if is_deprecated.any() else None

    def above(self, subject: int) -> list[int]:
        """Return the subjects directly above subject i, 0 <= i < n."""
        return [*self.broader[self.broader_ptr[subject] : self.broader_ptr[subject + 1]].tolist()]

    def under(self, subjects: Iterable[int]) -> NDArray[np.bool_]:
        """Return which subjects are some subjects or below them, at any depth, bool[n].

        A circle of broader subjects is walked once. Cost: O(n log n).
        """
        n_subjects = self.head.n_subjects
        order = np.argsort(self.broader, kind="stable")
        narrower = np.repeat(np.arange(n_subjects), np.diff(self.broader_ptr))[order]
        narrower_ptr = np.searchsorted(self.broader[order], np.arange(n_subjects + 1))
        is_under = np.zeros(n_subjects, np.bool_)
        stack = list(subjects)
        while stack:
            subject = stack.pop()
            if not is_under[subject]:
                is_under[subject] = True
                stack += narrower[narrower_ptr[subject] : narrower_ptr[subject + 1]].tolist()
        return is_under

    def find_subjects(self, texts: Iterable[str]) -> dict[str, set[int]]:
        """Return for each text the subjects with this URI or with this name in any language.

        Raises BadNames for a text that can be no name; its `index` is among the distinct texts.
        Cost: a pass over all names, however many texts there are.
        """
        subjects: dict[str, set[int]] = {text: set() for text in texts}
        table = build_names(subjects)
        by_text = list(subjects.values())
        for column in (URI, *(f"{NAME}{tag}" for tag in self.head.languages)):
            matches = find_names(table, self.utf8, self.texts(column))
            for subject in np.flatnonzero(matches >= 0).tolist():
                by_text[matches[subject]].add(subject)
        return subjects


def is_language(text: str) -> bool:
    """Return whether this can be a language tag as tables have it, in lower case."""
    return re.fullmatch(_LANGUAGE, text, re.ASCII) is not None


def build_label_info(
    subjects: Sequence[Subject], key_column: str = URI, language: str | None = None
) -> LabelInfo:
    """Return the table of `subjects`, in which labels are looked up by `key_column`.

    language  the language of names in answers to requests that state none; None: the first
              language that occurs

    Subjects without a text in that column come last. Raises BadNames for a text that is too long or
    has control characters, and for a key that occurs twice; its `index` is that of the subject in
    `subjects`. Raises ValueError for no subjects, for too many, and for a column or language that
    none of them has. Deterministic.
    """
    if not 1 <= len(subjects) <= SUBJECTS_MAX:
        raise ValueError(f"expected 1 to {SUBJECTS_MAX} subjects, found {len(subjects)}")
    languages = list(dict.fromkeys(tag for subject in subjects for tag in subject.names))
    with_others = {tag for subject in subjects for tag, _, _ in subject.other_names}
    columns = (
        *_columns(languages, key_column),
        *(f"{OTHER_NAME}{tag}" for tag in languages if tag in with_others),
        *((DEPRECATED,) if any(subject.deprecated for subject in subjects) else ()),
    )
    if language is not None and language not in languages:
        raise ValueError(
            f"expected one of the languages {', '.join(languages)}, found {language!r}"
        )
    key_texts = [_text(subject, key_column) for subject in subjects]
    order = [i for i, text in enumerate(key_texts) if text] + [
        i for i, text in enumerate(key_texts) if not text
    ]
    n_keys = sum(map(bool, key_texts))
    if not n_keys:
        raise ValueError(f"expected subjects with {key_column}, found none")
    try:
        offsets, utf8 = join_texts(_text(subjects[i], column) for column in columns for i in order)
        check_texts(offsets, utf8)
        keys = build_names(key_texts[i] for i in order[:n_keys])
    except BadNames as error:
        raise BadNames(
            error.fault, None if error.index is None else order[error.index % len(order)]
        ) from error
    ptr, broader = _broader(subjects, order)
    digest = hashlib.sha256()
    for piece in _pieces(offsets, ptr, keys.slots, broader, utf8):
        digest.update(piece)
    return _assemble(
        Head(
            columns=columns,
            language=language or (languages[0] if languages else ""),
            n_subjects=len(order),
            n_keys=n_keys,
            n_texts=len(utf8),
            n_broader=len(broader),
            sha256=digest.hexdigest(),
        ),
        offsets,
        ptr,
        keys.slots,
        broader,
        utf8,
    )


def _columns(languages: Sequence[str], key_column: str) -> tuple[str, ...]:
    if len(languages) > LANGUAGES_MAX:
        raise ValueError(
            f"expected names in at most {LANGUAGES_MAX} languages, found {len(languages)}"
        )
    columns = [URI, NOTATION, *(f"{NAME}{language}" for language in languages)]
    if key_column not in columns:
        expected = ", ".join([URI, NOTATION, *languages])
        raise ValueError(
            f"expected one of {expected} to look for labels by, "
            f"found {key_column.removeprefix(NAME)!r}"
        )
    columns.remove(key_column)
    return key_column, *columns


def _text(subject: Subject, column: str) -> str:
    """Return a subject's text in a column, "" if it has none.

    In a column of other names these are joined, as many as fit into NAME_BYTES_MAX bytes.
    """
    if column == URI:
        return subject.uri
    if column == NOTATION:
        return subject.notation or ""
    if column == DEPRECATED:
        return DEPRECATED if subject.deprecated else ""
    if column.startswith(OTHER_NAME):
        text = ""
        for tag, _, name in subject.other_names:
            longer = f"{text}{NAME_SEPARATOR}{name}" if text else name
            if (
                column == OTHER_NAME + tag
                and len(longer.encode(errors="replace")) <= NAME_BYTES_MAX
            ):
                text = longer
        return text
    return subject.names.get(column.removeprefix(NAME), "")


def _broader(subjects: Sequence[Subject], order: Sequence[int]) -> tuple[I64, I32]:
    """Return the existing subjects above each one, in the new order: offsets and positions."""
    place = {subjects[i].uri: position for position, i in enumerate(order)}
    ptr = array("q", [0])
    broader = array("i")
    for i in order:
        broader.extend(sorted({place[uri] for uri in subjects[i].broader if uri in place}))
        ptr.append(len(broader))
    return np.frombuffer(ptr, np.int64).copy(), np.frombuffer(broader, np.int32).copy()


def head_digest(head: Head) -> str:
    """Return the SHA-256 of a head; files with the same digest are the same.

    It covers the whole file: the head holds the digest of everything after it.
    """
    return hashlib.sha256(_sealed(head)).hexdigest()


def _sealed(head: Head) -> bytes:
    return render_sealed({**head._asdict(), "schema_version": _SCHEMA})


def label_info_pieces(info: LabelInfo) -> Iterator[memoryview | bytes]:
    """Yield the bytes of a table's file, in pieces of up to 4 MiB.

    Raises ValueError if the head is too long.
    """
    sealed = _sealed(info.head)
    if len(sealed) > HEAD_BYTES:
        raise ValueError(f"expected a head of at most {HEAD_BYTES} bytes, found {len(sealed)}")
    yield sealed.ljust(HEAD_BYTES, b"\n")
    for piece in _pieces(info.offsets, info.broader_ptr, info.keys.slots, info.broader, info.utf8):
        yield from (
            piece[offset : offset + PIECE_BYTES] for offset in range(0, len(piece), PIECE_BYTES)
        )


_HEAD = record(
    dict,
    schema_version=integer(_SCHEMA, _SCHEMA),
    columns=list_of(text(_COLUMN), 2, 2 * LANGUAGES_MAX + 3),
    language=text(f"({_LANGUAGE})?"),
    n_subjects=integer(1, SUBJECTS_MAX),
    n_keys=integer(1, SUBJECTS_MAX),
    n_texts=integer(1, _BYTES_MAX),
    n_broader=integer(0, _BYTES_MAX),
    sha256=DIGEST,
)


def parse_head(data: bytes, where: str) -> Head:
    """Return the head in the first HEAD_BYTES of a file. Raises Corrupt, naming `where`."""
    if len(data) < HEAD_BYTES:
        raise Corrupt(where, f"a head of {HEAD_BYTES} bytes", f"{len(data)} bytes")
    fields = _HEAD(parse_sealed(data[:HEAD_BYTES].rstrip(b"\n") + b"\n", where), where)
    del fields["schema_version"]
    head = Head(**fields)
    if len(set(head.columns)) < len(head.columns) or not {URI, NOTATION} <= set(head.columns):
        raise Corrupt(
            f"{where}: columns",
            f"{URI}, {NOTATION} and others, each once",
            ascii(head.columns)[:80],
        )
    integer(1, head.n_subjects)(head.n_keys, f"{where}: n_keys")
    if head.language not in (head.languages or ("",)):
        raise Corrupt(f"{where}: language", "a language of the columns", head.language)
    return head


def map_label_info(fs: FileSystem, path: Path, where: str) -> LabelInfo:
    """Return the mapped table of a file, after checking every digest and invariant.

    Raises Corrupt, naming `where`, and OSError.
    """
    mapped: Mapped = fs.map(path)
    head = parse_head(bytes(mapped.data[:HEAD_BYTES]), where)
    if len(mapped.data) != head.file_bytes:
        raise Corrupt(where, f"{head.file_bytes} bytes for its head", f"{len(mapped.data)} bytes")
    if hashlib.sha256(mapped.data[HEAD_BYTES:]).hexdigest() != head.sha256:
        raise Corrupt(where, f"sha256 {head.sha256} after the head", "another")
    parts = []
    offset = HEAD_BYTES
    for dtype, size in zip(("<i8", "<i8", "<i4", "<i4", "|u1"), _sizes(head), strict=True):
        parts.append(np.frombuffer(mapped.data[offset : offset + size], dtype))
        offset += _padded(size)
    try:
        return _checked(head, parts)
    except BadNames as error:
        raise Corrupt(where, "texts that can be used", str(error)) from error


def _checked(head: Head, parts: list[NDArray[Any]]) -> LabelInfo:
    """Return the table of these arrays. Raises BadNames if an invariant does not hold."""
    offsets, ptr, slots, broader, utf8 = parts
    for ascending, last in ((offsets, len(utf8)), (ptr, len(broader))):
        if offset_fault(ascending, last) >= 0:
            raise BadNames(f"expected offsets that ascend from 0 to {last}, found others")
    if len(broader) and not (broader.min() >= 0 and broader.max() < head.n_subjects):
        raise BadNames(f"expected broader subjects from 0 to {head.n_subjects - 1}, found others")
    check_texts(offsets, utf8)
    check_names(offsets[: head.n_keys + 1], utf8[: offsets[head.n_keys]], slots)
    return _assemble(head, offsets, ptr, slots, broader, utf8)


def _assemble(head: Head, offsets: I64, ptr: I64, slots: I32, broader: I32, utf8: U8) -> LabelInfo:
    return LabelInfo(
        head=head,
        keys=NameTable(
            read_only(offsets[: head.n_keys + 1]), read_only(utf8[: offsets[head.n_keys]]), slots
        ),
        offsets=offsets,
        utf8=utf8,
        broader_ptr=ptr,
        broader=broader,
    )


def _sizes(head: Head) -> list[int]:
    return [
        8 * (len(head.columns) * head.n_subjects + 1),
        8 * (head.n_subjects + 1),
        4 * (head.n_keys + head.n_keys // 2 + 1),
        4 * head.n_broader,
        head.n_texts,
    ]


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


def _pieces(*arrays: NDArray[Any]) -> list[memoryview | bytes]:
    """Return the bytes after the head: the arrays, each padded to a multiple of 64 bytes."""
    pieces: list[memoryview | bytes] = []
    for values in arrays:
        little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        pieces += [little.view(np.uint8).data, bytes(_padded(little.nbytes) - little.nbytes)]
    return pieces
