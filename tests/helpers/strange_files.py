"""Well-formed files of public reports that mean something else than they seem to, or are
hardly read rightly: what is to be said of each, by every door.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tests.helpers.labelled_rows import LABELS, ROWS, table

TEXTS = [text for text, _ in ROWS]
LISTS = [labels for _, labels in ROWS]
IDS = [[LABELS.index(name) for name in labels] for labels in LISTS]
FLAGS = [[int(name in labels) for name in LABELS] for labels in LISTS]
LONG = [(text, name) for text, labels in ROWS for name in labels]
FIRST = ("text", "labels")


class Example(NamedTuple):
    """A file, and what is right for it.

    write      writes the file, or several, into a folder; returns its name, or a pattern
    code       the finding; empty: the file is read rightly, with its 8 labels
    fault      what is said where the file is refused, if it is: by default for its finding
    options    how it is read, as a job has it
    in_memory  the same rows for a model in Python, if they have a form there
    python     what is said in Python instead: `fault`, or empty if they are right there
    model      the model of which rows of this kind are rows: "texts", "numbers" or "ids"
    """

    name: str
    write: Callable[[Path], str]
    code: str = ""
    fault: str = ""
    options: Mapping[str, Any] = {}
    in_memory: Callable[[], tuple[Any, Any]] | None = None
    python: str | None = None
    model: str = "texts"


def text_file(name: str, content: str | bytes) -> Callable[[Path], str]:
    """Return what writes a file."""

    def write(folder: Path) -> str:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    return write


def json_lines(
    name: str, labels: Sequence[Any], encoding: str = "utf-8", **more: Any
) -> Callable[[Path], str]:
    """Return what writes the texts with these labels as lines of JSON."""
    lines = [
        json.dumps({**more, "text": text, "labels": value}, ensure_ascii=False)
        for text, value in zip(TEXTS, labels, strict=True)
    ]
    return text_file(name, ("\n".join(lines) + "\n").encode(encoding))


def csv_of(name: str, cells: Sequence[str], mark: str = ",") -> Callable[[Path], str]:
    """Return what writes the texts with a cell of labels each as a table."""
    return text_file(name, table(FIRST, list(zip(TEXTS, cells, strict=True)), mark))


def parquet(name: str, **columns: Sequence[Any]) -> Callable[[Path], str]:
    """Return what writes columns as a file of Parquet."""

    def write(folder: Path) -> str:
        pq.write_table(pa.table(columns), folder / name)
        return name

    return write


def fasttext(mark: str) -> str:
    """Return the rows as lines of fastText, with a mark between labels."""
    return "".join(f"{mark.join(f'__label__{n}' for n in ls)} {t}\n" for t, ls in ROWS)


def with_stray_quotes() -> str:
    """Return a .tsv whose row 20 begins with a quote, and row 120 ends with one."""
    lines = [f"{';'.join(labels)}\t{text}" for text, labels in ROWS]
    lines[18] = lines[18].replace("\t", '\t"')
    lines[118] += ' of 12"'
    return "\n".join(["labels\ttext", *lines]) + "\n"


def questions() -> str:
    """Return a table of questions with headers of another language, and a date in each row."""
    rows = [
        (i, f"t {i}", text, ", ".join(labels), f"2020-{i % 12 + 1:02}-{i % 28 + 1:02}")
        for i, (text, labels) in enumerate(ROWS)
    ]
    return table(("ID", "Titel", "Kysymys", "Asiasanat", "Päiväys"), rows, ";")


def mails() -> str:
    """Return a table of mails, in which the column `subject` has no labels."""
    rows = [
        (f"my printer {i} does not print", text, "high" if i % 3 else "low", labels[0])
        for i, (text, labels) in enumerate(ROWS)
    ]
    return table(("subject", "description", "priority", "queue"), rows)


def documents(folder: Path) -> str:
    """Write a directory of documents as Annif has them: of text with subjects, and of JSON."""
    (folder / "documents").mkdir()
    for i, (text, labels) in enumerate(ROWS):
        file = folder / "documents" / f"{i}.txt"
        if i % 2:
            file.write_text(text)
            file.with_suffix(".key").write_text("\n".join(labels))
        else:
            subjects = [{"label": name} for name in labels]
            file.with_suffix(".json").write_text(json.dumps({"text": text, "subjects": subjects}))
    return "documents"


def rows_and_others(folder: Path) -> str:
    """Write a directory with lines of JSON, and a file beside them that is of another kind."""
    (folder / "rows").mkdir()
    json_lines("rows/a.jsonl", LISTS)(folder)
    (folder / "rows" / "b.json").write_text("{}")
    return "rows"


def marked_files(folder: Path) -> str:
    """Write the rows as two files that begin with a byte order mark."""
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in ROWS]
    for name, part in (("bom-a.jsonl", lines[:120]), ("bom-b.jsonl", lines[120:])):
        (folder / name).write_bytes("\n".join(part).encode("utf-8-sig") + b"\n")
    return "bom-*.jsonl"


def as_text(change: Callable[[list[str]], str]) -> list[str]:
    """Return the labels of each row as a text."""
    return [change(labels) for labels in LISTS]


LIST_TEXTS = as_text(str)
FASTTEXT = "__label__ or a comma"
WINDOWS = table(FIRST, [(f"café {t}", ";".join(ls)) for t, ls in ROWS]).encode("windows-1252")
A_LIST = "expected a list of strings, found str"

EXAMPLES = (
    Example(
        "list-csv",
        csv_of("list.csv", LIST_TEXTS),
        "labels-as-text",
        "found the text of a list in 240 of 240 rows",
        in_memory=lambda: (TEXTS, LIST_TEXTS),
        python=A_LIST,
    ),
    Example(
        "list-parquet",
        parquet("list.parquet", text=TEXTS, labels=LIST_TEXTS),
        "labels-as-text",
        "found the text of a list in 240 of 240 rows",
        in_memory=lambda: (TEXTS, [[cell] for cell in LIST_TEXTS]),
    ),
    Example("comma-blank", text_file("cb.txt", fasttext(", ")), "fasttext-prefix", FASTTEXT),
    Example("comma-alone", text_file("ca.txt", fasttext(",")), "fasttext-prefix", FASTTEXT),
    Example(
        "stray-quotes",
        text_file("quotes.tsv", with_stray_quotes()),
        "swallowed-rows",
        "found 101 lines in one cell of row 20",
    ),
    Example("quote-none", text_file("q.tsv", with_stray_quotes()), options={"quote": "none"}),
    Example(
        "flag-columns",
        text_file(
            "flags.csv",
            table(
                ("id", "comment_text", *LABELS),
                [(i, TEXTS[i], *flags) for i, flags in enumerate(FLAGS)],
            ),
        ),
        in_memory=lambda: (TEXTS, pd.DataFrame(FLAGS, columns=list(LABELS))),
    ),
    Example(
        "flag-lists",
        json_lines("flags.jsonl", FLAGS),
        "labels-zero-one",
        "found only 0 and 1, in lists of 8 in every row",
        in_memory=lambda: (TEXTS, FLAGS),
        python="",
    ),
    Example(
        "flag-parquet",
        parquet("flags.parquet", text=TEXTS, labels=FLAGS),
        "labels-zero-one",
        "found only 0 and 1, in lists of 8 in every row",
        in_memory=lambda: (TEXTS, np.array(FLAGS, object)),
        python="",
    ),
    Example(
        "id-lists",
        json_lines("ids.jsonl", IDS),
        in_memory=lambda: (TEXTS, IDS),
        model="numbers",
    ),
    Example(
        "id-parquet",
        parquet("ids.parquet", text=TEXTS, labels=IDS),
        in_memory=lambda: (TEXTS, [np.array(ids) for ids in IDS]),
        model="numbers",
    ),
    Example("documents", documents),
    Example("passed-over", rows_and_others, "files-passed-over"),
    Example(
        "sep-line",
        text_file(
            "sep.csv",
            "sep=;\r\n" + table(FIRST, list(zip(TEXTS, as_text("|".join), strict=True)), ";"),
        ),
    ),
    Example("date-column", text_file("questions.csv", questions())),
    Example("free-subject", text_file("mails.csv", mails()), "ambiguous-labels"),
    Example("named-queue", text_file("m.csv", mails()), options={"label_column": "queue"}),
    Example(
        "headline-tags",
        text_file(
            "tags.csv",
            table(("headline", "tags"), list(zip(TEXTS, as_text(", ".join), strict=True))),
        ),
    ),
    Example("windows-1252", text_file("excel.csv", WINDOWS), fault="--encoding windows-1252"),
    Example("encoding-named", text_file("e.csv", WINDOWS), options={"encoding": "windows-1252"}),
    Example(
        "blank-ends",
        json_lines("blanks.jsonl", [[" " * (i % 2) + n for n in ls] for i, ls in enumerate(LISTS)]),
        in_memory=lambda: (TEXTS, [[f"{name} " for name in labels] for labels in LISTS]),
    ),
    Example(
        "from-one",
        text_file(
            "one.svm",
            "".join(
                f"{','.join(str(i + 1) for i in sorted(ids))} "
                + " ".join(f"{i}:1" for i in sorted(ids))
                + "\n"
                for ids in IDS
            ),
        ),
        "ids-from-one",
        model="ids",
    ),
    Example("bars", csv_of("bars.csv", as_text("|".join))),
    Example("commas", csv_of("commas.csv", as_text(",".join))),
    Example("blanks", csv_of("b.csv", as_text(" ".join))),
    Example("marks", marked_files),
    Example(
        "identified", json_lines("document.jsonl", LISTS, document_id=7, source={"of": [1, 2]})
    ),
    Example(
        "pairs",
        text_file("pairs.csv", table(FIRST, LONG)),
        "long-format",
        in_memory=lambda: ([t for t, _ in LONG], [[name] for _, name in LONG]),
    ),
    Example(
        "pairs-joined",
        text_file("p.csv", table(("id", *FIRST), [(t, t, n) for t, n in LONG])),
        options={"join_rows": "id"},
    ),
)
