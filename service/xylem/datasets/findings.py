"""Checks of what was read: signs that a file means something else.

A check of labels looks at the survey of all rows and at the names of the labels, and yields its
findings. It first looks at all names at once, joined, for most files have nothing to find. The
forms at the end are findings of readers and of workflows. docs/findings.md lists all codes.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from xylem.base import Finding, RowPlace
from xylem.datasets.survey import ONE_A_ROW, Survey

Check: TypeAlias = Callable[[Survey, Sequence[str]], Iterator[Finding]]

# What may stand between labels; the first ones are hardly ever part of a label.
MARKS = ("|", ";", ",", "><", "#", "\t", " ", "/")

MARKED_NAMES = 100  # in how many names other marks are looked for

MAJORITY = 0.5  # the share of names, or of rows, that most of them are

FEW = 3  # with fewer names nothing can be concluded from what they have in common

ROWS_LEAST = 20  # with fewer rows it may be chance that labels are in one row each

# The share of rows with the text of other rows from which a file is in the long format.
REPEATED_SHARE = 0.2

SINGLE_SHARE = 0.95  # the share of labels with one row from which labels are rather texts or ids

QUOTED_CHARACTERS = 60
EXAMPLES_QUOTED = 3


QUOTES = frozenset("'\"`“”„«»‘’")
OPENING = QUOTES | set("[({")
CLOSING = QUOTES | set("])}")


def labels_as_text(survey: Survey, names: Sequence[str]) -> Iterator[Finding]:
    """Find cells that are the text of a list, tuple, set or array, or stand in quotes."""
    joined = "\n".join(["", *names])
    if not any(f"\n{character}" in joined for character in OPENING):
        return
    ids = [i for i, name in enumerate(names) if name[0] in OPENING]
    n_open = int(survey.label_rows[ids].sum())
    closing = [i for i, name in enumerate(names) if name[-1] in CLOSING]
    n_closed = int(survey.label_rows[closing].sum())
    # brackets of one label, as [music], are not those of a list: a list has quotes or marks, or it
    # was divided, so that no name has both brackets
    listed = [
        i
        for i in ids
        if names[i][-1] not in CLOSING
        or not QUOTES.isdisjoint(names[i][:2])
        or any(mark in names[i] for mark in MARKS[:3])
        or len(names[i]) < 3
    ]
    if (
        n_open >= MAJORITY * survey.n_labelled
        and n_closed >= MAJORITY * n_open
        and survey.label_rows[listed].sum() >= MAJORITY * n_open
    ):
        yield Finding(
            "labels-as-text",
            "refused",
            f"expected labels, found the text of a list in {n_open:,} of {survey.n_rows:,} rows, "
            f"{_example(survey, names, ids)}",
            _place(survey, ids),
            "Write labels without quotes, with a separator between, as a;b, or lists in .jsonl or "
            ".parquet",
        )


def labels_joined(survey: Survey, names: Sequence[str]) -> Iterator[Finding]:
    """Find names that are several labels with a mark between."""
    if survey.label_rows.sum() > ONE_A_ROW * max(1, survey.n_labelled):
        return
    if (mark := mark_between(names)) is not None:
        ids = [i for i, name in enumerate(names) if mark in name]
        yield Finding(
            "labels-joined",
            "warning",
            f"expected labels, found {len(ids):,} of {len(names):,} names that are others with "
            f"{mark!r} between, {_example(survey, names, ids)}",
            _place(survey, ids),
            f"Divide them: --label-separator {mark!r} for a table, or a list in .jsonl",
        )


def mark_between(names: Iterable[str]) -> str | None:
    """Return the mark that stands between labels in most of the names; None if there is none.

    With such a mark most names have it, and are made of far fewer parts than there are names; or
    all parts of the names that have it are names, too.
    """
    distinct = dict.fromkeys(names)
    joined = "\n".join(distinct)
    counts = Counter(
        character for name in islice(distinct, MARKED_NAMES) for character in set(name)
    )
    frequent = sorted(mark for mark, n in counts.items() if n >= FEW and not mark.isalnum())
    for mark in dict.fromkeys((*MARKS, *frequent)):
        if joined.count(mark) < FEW:
            continue
        marked = [name for name in distinct if mark in name]
        parts = {part.strip(" <>") for name in marked for part in name.split(mark)} - {""}
        is_most = len(marked) >= MAJORITY * len(distinct)
        # between blanks a mark may stand alone, as in `a - b`: then that one divides the names
        are_few = 2 * len(parts) <= len(marked) and (
            mark != " " or all(any(map(str.isalnum, part)) for part in parts)
        )
        are_names = mark != " " and len(marked) >= FEW and parts <= distinct.keys()
        if len(parts) > 1 and ((is_most and are_few) or are_names):
            return mark
    return None


def fasttext_prefix(survey: Survey, names: Sequence[str]) -> Iterator[Finding]:
    """Find labels that were written for fastText, and divided in another way."""
    joined = "\n".join([*names, ""])
    if "__label__" not in joined and ",\n" not in joined:
        return
    ids = [i for i, name in enumerate(names) if "__label__" in name]
    commas = [i for i, name in enumerate(names) if name.endswith(",")]
    if ids or (len(commas) >= MAJORITY * len(names) and len(names) >= FEW):
        yield Finding(
            "fasttext-prefix",
            "refused",
            f"expected names of labels, found __label__ or a comma in {len(ids or commas):,} of "
            f"{len(names):,} names, {_example(survey, names, ids or commas)}",
            _place(survey, ids or commas),
            "In a .txt file of fastText write __label__a __label__b with blanks between; in other "
            "files the names alone",
        )


_ZERO_ONE = ({"0", "1"}, {"-1", "1"}, {"false", "true"}, {"0.0", "1.0"})


def labels_zero_one(survey: Survey, names: Sequence[str]) -> Iterator[Finding]:
    """Find labels that only say whether a row has a label."""
    if {name.lower() for name in names[:FEW]} not in _ZERO_ONE or len(names) != 2:
        return
    is_list = len(survey.lengths) == 1 and max(survey.lengths) > 1
    place = (
        f"in lists of {max(survey.lengths)} in every row" if is_list else "in a column of its own"
    )
    yield Finding(
        "labels-zero-one",
        "refused" if is_list else "warning",
        f"expected names of labels, found only {names[0]} and {names[1]}, {place}: they say "
        "whether a row has a label, not which one",
        _place(survey, [0, 1]),
        "Name the columns of a table: --label-columns 'PATTERN'; in lists write the labels "
        "themselves",
    )


_NULLS = frozenset(["nan", "none", "null", "n/a", "<na>", "nat", "#n/a", "undefined"])


def null_labels(survey: Survey, names: Sequence[str]) -> Iterator[Finding]:
    """Find names that programs write where there is no value."""
    ids = [i for i, name in enumerate(names) if len(name) < 10 and name.lower() in _NULLS]
    if ids:
        yield Finding(
            "null-labels",
            "warning",
            f"expected labels, found {names[ids[0]]!r} in "
            f"{int(survey.label_rows[ids].sum()):,} rows, first in {_place(survey, ids)}",
            _place(survey, ids),
            "Leave the cell or the list empty where a row has no label",
        )


def similar_labels(survey: Survey, names: Sequence[str]) -> Iterator[Finding]:
    """Find labels that differ only by case, blanks, width, invisible characters, or as 3 and 03.0.

    URIs may differ by case.
    """
    folded = folded_names(names)
    if len(set(folded)) == len(names):
        return
    groups = defaultdict[str, list[int]](list)
    for i, name in enumerate(folded):
        groups[name].append(i)
    pairs = [ids for name, ids in groups.items() if len(ids) > 1 and "://" not in name]
    if pairs:
        pairs.sort(key=lambda ids: -int(survey.label_rows[ids].sum()))
        ids = pairs[0]
        yield Finding(
            "similar-labels",
            "warning",
            f"expected distinct labels, found {len(pairs):,} that are written in several ways, as "
            f"{' and '.join(repr(names[i])[:QUOTED_CHARACTERS] for i in ids[:EXAMPLES_QUOTED])}",
            _place(survey, ids[1:]),
            "Write each label in one way",
        )


def folded_names(names: Sequence[str]) -> list[str]:
    """Return names as they are compared: without case, width, blanks and invisible characters.

    A whole number is compared without `.0`, and without zeros in front.
    """
    joined = "\n".join(names)
    if not joined.isascii():
        joined = unicodedata.normalize("NFKC", joined)
        joined = re.sub(f"[{''.join(INVISIBLE)}]", "", joined)
    joined = joined.casefold().replace(" ", "")
    if ".0\n" in f"{joined}\n" or "\n0" in f"\n{joined}":
        joined = re.sub(r"(?m)^0*(\d+?)(?:\.0)?$", r"\1", joined)
    return joined.split("\n")


# Characters without width: spaces, joiners, marks of direction and of bytes, soft hyphens.
INVISIBLE = ("\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u200e", "\u200f")


def long_format(survey: Survey, _: Sequence[str]) -> Iterator[Finding]:
    """Find a file that has a row for each pair of a text and a label."""
    is_single = survey.label_rows.sum() <= ONE_A_ROW * max(1, survey.n_labelled)
    if is_single and survey.n_repeated >= max(FEW, REPEATED_SHARE * survey.n_sampled):
        yield Finding(
            "long-format",
            "warning",
            f"expected a row for each text, found {survey.n_repeated:,} of {survey.n_sampled:,} "
            "rows with the text of another row and another label",
            None,
            "Join the rows of a text by a column that is the same in them: --join-rows COLUMN",
        )


def single_labels(survey: Survey, names: Sequence[str]) -> Iterator[Finding]:
    """Find labels that no two rows share: titles, dates or ids."""
    occurring = survey.label_rows[survey.label_rows > 0]
    n_single = int((occurring == 1).sum())
    is_single = int(survey.sizes[2:].sum()) == 0
    if is_single and len(occurring) >= ROWS_LEAST and n_single >= SINGLE_SHARE * len(occurring):
        yield Finding(
            "single-labels",
            "warning",
            f"expected labels that rows share, found {n_single:,} of {len(occurring):,} labels in "
            f"one row alone, {_example(survey, names, range(len(names)))}",
            None,
            "Name the column that has the labels: --label-column NAME",
        )


# The checks of the labels of a file, in the order of their findings.
CHECKS: tuple[Check, ...] = (
    labels_as_text,
    fasttext_prefix,
    labels_joined,
    labels_zero_one,
    null_labels,
    similar_labels,
    long_format,
    single_labels,
)


def _place(survey: Survey, ids: Sequence[int]) -> RowPlace:
    return survey.file.place(int(survey.first_places[ids].min()))


def _example(survey: Survey, names: Sequence[str], ids: Sequence[int]) -> str:
    """Return the first one of some labels with its row, for a message."""
    first = min(ids, key=lambda i: int(survey.first_places[i]))
    return f"as {names[first]!r:.{QUOTED_CHARACTERS}} in {_place(survey, [first])}"


LINES_LEAST = 3  # the least number of line ends of a cell that may have swallowed rows

# From this many lines on that are all like rows, a cell is taken for rows behind a stray quote.
LINES_SURE = 10


def swallowed_rows(
    cells: Sequence[str], delimiter: str, place_of_row: Callable[[], RowPlace]
) -> Finding | None:
    """Return the finding about a cell that has swallowed rows behind a stray quote, if it has.

    The place is looked up for a finding only: many rows have long cells, and are as they should be.
    """
    lines = max(cells, key=lambda cell: cell.count("\n")).split("\n")[1:-1]
    n_like_rows = sum(line.count(delimiter) == len(cells) - 1 for line in lines)
    if len(lines) < LINES_LEAST or n_like_rows <= MAJORITY * len(lines):
        return None
    place = place_of_row()
    return Finding(
        "swallowed-rows",
        "refused" if n_like_rows >= max(LINES_SURE, 0.9 * len(lines)) else "warning",
        f"expected a cell, found {len(lines) + 2:,} lines in one cell of {place}, and "
        f"{n_like_rows:,} of them have as many delimiters as a row, as "
        f"{lines[0]!r:.{QUOTED_CHARACTERS}}",
        place,
        "If quotes are part of the text: --quote none; else write a quote in a cell twice",
    )


def quoted(names: Sequence[str]) -> str:
    """Return the first names of a list, for a message."""
    return ", ".join(repr(name) for name in names[:EXAMPLES_QUOTED])


HEADER_AGAIN = Finding(
    "header-again",
    "refused",
    "expected a row, found the header again in {place}: files were joined with theirs",
    None,
    "Remove that line, or give the files in a directory",
)

NO_HEADER = Finding(
    "no-header",
    "refused",
    "expected a header with the names of columns, found a row like those below it: {header!r:.120}",
    None,
    "Write a first line with the names of the columns, as text,labels",
)

AMBIGUOUS_LABELS = Finding(
    "ambiguous-labels",
    "warning",
    "expected one column that can have the labels, found {chosen}, which was read, and {rivals}",
    None,
    "Name it: --label-column NAME",
)

FILES_PASSED_OVER = Finding(
    "files-passed-over",
    "warning",
    "expected files of one form in the directory, found {n:,} that were not read, as {names}",
    None,
    "Give a pattern for the files, as 'DIR/*.jsonl', or move the others away",
)

UNKNOWN_LABELS = Finding(
    "unknown-labels",
    "warning",
    "expected labels of the model, found {n:,} of {n_labels:,} that it does not know{pair}",
    None,
    "Write labels as in the training rows; those that are new count as missed",
)

IDS_FROM_ONE = Finding(
    "ids-from-one",
    "warning",
    "expected label ids from 0, found no row with label 0: ids seem to begin at 1. Label 0 counts "
    "in macro-F as a label that is never predicted",
    None,
    "Subtract 1 from all label ids, in all files of a model",
)

REPEATED_ROWS = Finding(
    "repeated-rows",
    "warning",
    "expected validation rows that are no training rows, found {n:,} of {n_rows:,} that are one, "
    "too: the figures are too good",
    None,
    "Measure on rows that are not in the training file",
)

NEVER_ANSWERED = Finding(
    "labels-never-answered",
    "warning",
    "expected labels that a server answers, found {n:,} of {n_labels:,} that are denied, "
    "deprecated or without a training row, as {names}: they count here, and answers do not have "
    "them",
    None,
    "Measure on rows without these labels, allow them, or train on rows that have them",
)

WITHOUT_CONCEPT = Finding(
    "labels-without-concept",
    "warning",
    "expected labels that are concepts of the vocabulary, found {n:,} of {n_labels:,} that are "
    "none, as {names}: answers have no names for them",
    None,
    "Write labels as the vocabulary has them; --by says whether they are URIs, notations or names",
)

WITHOUT_TYPE = Finding(
    "concepts-without-type",
    "warning",
    "expected resources of type skos:Concept, found {n:,} of {n_concepts:,} that have a "
    "skos:prefLabel and no type, as <{uri:.120}>: they were read as concepts",
    None,
    "Give concepts the type skos:Concept, and other resources another type",
)

# The findings of workflows and of vocabularies, by their codes.
WORKFLOW_FINDINGS = {
    finding.code: finding
    for finding in (REPEATED_ROWS, NEVER_ANSWERED, WITHOUT_CONCEPT, WITHOUT_TYPE)
}
