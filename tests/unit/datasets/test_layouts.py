"""How tables and encodings are understood, and which rows are joined."""

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.labelled_rows import LABELS, RIGHT, ROWS, as_read, findings_of, names_of, table

from xylem.admin.jobs.sources import split_lines
from xylem.base import no_progress
from xylem.base.columns import TableColumns, columns_of
from xylem.base.errors import BadData, BadParameter
from xylem.base.rows import LabelRows, SparseRows
from xylem.datasets import DataStream, read_dataset
from xylem.datasets.column_guess import options_of, understood
from xylem.datasets.files import open_data
from xylem.evaluation import Labelled
from xylem.evaluation.labelled import digests_of
from xylem.python.from_memory import dataset_from_memory
from xylem.workflows.labelled import note_repeated_rows

FLAGS = [
    (i, text, *(int(name in labels) for name in LABELS)) for i, (text, labels) in enumerate(ROWS)
]


def test_columns_of_zero_and_one(tmp_path: Path) -> None:
    head = ("id", "comment_text", *LABELS)
    path = tmp_path / "a.csv"
    for flags in (("0", "1"), ("-1", "1"), ("false", "true"), ("", "1.0")):
        rows = [(i, text, *(flags[cell] for cell in cells)) for i, text, *cells in FLAGS]
        path.write_text(table(head, rows))
        assert as_read(read_dataset(path)) == RIGHT
    columns = columns_of(None, None, None, label_columns=["w*", "s[pe]*"])
    some = [[name for name in ls if name[0] == "w" or name[:2] in ("sp", "se")] for _, ls in RIGHT]
    assert names_of(read_dataset(path, columns=columns)) == some
    frame = {name: [bool(row[2 + k]) for row in FLAGS] for k, name in enumerate(LABELS)}
    pq.write_table(pa.table({"text": [t for t, _ in ROWS], **frame}), tmp_path / "a.parquet")
    assert as_read(read_dataset(tmp_path / "a.parquet")) == RIGHT
    path.write_text(table(head, [*FLAGS * 3, (1, "text", "2", *"0000000")]))
    with pytest.raises(BadData, match=r"a\.csv:722: expected 0 or 1 .* found '2'"):
        read_dataset(path)
    one = columns_of(None, "war", None)
    path.write_text(table(head, FLAGS))
    assert findings_of(read_dataset(path, columns=one)) == ["labels-zero-one"]


def test_lists_of_zero_and_one(tmp_path: Path) -> None:
    texts = [text for text, _ in ROWS]
    lists = [list(cells) for _, _, *cells in FLAGS]
    signs = [[2 * cell - 1 for cell in cells] for cells in lists]
    objects = np.array(lists, object)
    for labels in (lists, signs, np.array(signs), objects, [np.array(row) for row in lists]):
        dataset = dataset_from_memory(texts, labels)
        assert [[LABELS[int(name)] for name in row] for row in names_of(dataset)] == [
            sorted(ls, key=LABELS.index) for _, ls in ROWS
        ]
    ids = [[1, 0], [1], [0]]
    assert names_of(dataset_from_memory(["a", "b", "c"], ids)) == [["0", "1"], ["1"], ["0"]]
    with pytest.raises(BadData, match=r"found int 3: write \[\[3\], \[1\]\]"):
        dataset_from_memory(["a", "b"], [3, 1])
    lines = [{"text": text, "labels": row} for text, row in zip(texts, lists, strict=True)]
    with pytest.raises(BadData, match=r"found 1 dimensions: write \[\[3\], \[1\]\]"):
        dataset_from_memory(["a", "b"], np.array([3, 1]))
    with pytest.raises(BadData, match=r"in lists of 8 in every row.*\(labels-zero-one\)"):
        read_dataset(write_lines(tmp_path / "a.jsonl", lines))


def test_columns_that_no_name_tells_are_guessed_by_their_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    dates = [f"2020-{i % 12 + 1:02}-{i % 28 + 1:02}" for i in range(240)]
    cells = [(i, f"t {i}", t, ", ".join(ls), dates[i]) for i, (t, ls) in enumerate(ROWS)]
    path.write_text(table(("ID", "Titel", "Kysymys", "Asiasanat", "Päiväys"), cells, ";"))
    assert as_read(read_dataset(path)) == RIGHT
    for head, mark in (("headline,tags", ","), ("Question,Keywords", "|"), ("a,b", ";")):
        path.write_text(table(head.split(","), [(t, mark.join(ls)) for t, ls in ROWS]))
        dataset = read_dataset(path)
        assert as_read(dataset) == RIGHT and findings_of(dataset) == []
    mails = [
        (f"my printer {i} does not print", t, "high" if i % 3 else "low", ls[0])
        for i, (t, ls) in enumerate(ROWS)
    ]
    path.write_text(table(("subject", "description", "priority", "queue"), mails))
    dataset = read_dataset(path)
    assert dataset.report is not None and dataset.report.labels == 8
    assert findings_of(dataset) == ["ambiguous-labels"]
    path.write_text(
        table(("headline", "tag_1", "tag_2", "tag_3"), [(t, *[*ls, "", ""][:3]) for t, ls in ROWS])
    )
    assert as_read(read_dataset(path)) == RIGHT
    options = dataset.report.options
    assert options[-2:] == ("--label-column", "queue")


def test_columns_that_may_have_labels_are_a_doubt(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    head = ("ID", "public", "archived", "Kysymys")
    flagged = [(i, i % 2, int(i % 3 == 0), t) for i, (t, _) in enumerate(ROWS)]
    cells = [(*row, ", ".join(ls)) for row, (_, ls) in zip(flagged, ROWS, strict=True)]
    path.write_text(table((*head, "Asiasanat"), cells))
    dataset = read_dataset(path)
    assert as_read(dataset) == RIGHT and findings_of(dataset) == ["ambiguous-labels"]
    cells = [(*row, ls[0]) for row, (_, ls) in zip(flagged, ROWS, strict=True)]
    path.write_text(table((*head, "Genre"), cells))
    dataset = read_dataset(path)
    assert dataset.names == ["archived", "public"]
    assert findings_of(dataset) == ["ambiguous-labels"]
    path.write_text(table(head, flagged))
    assert findings_of(read_dataset(path)) == []
    when = [f"{i % 28 + 1} January {2000 + i % 20}" for i in range(len(ROWS))]
    cells = [(date, t, ls[0]) for date, (t, ls) in zip(when, ROWS, strict=True)]
    path.write_text(table(("when", "body", "x"), cells))
    assert findings_of(read_dataset(path)) == ["ambiguous-labels"]


def test_what_was_guessed_is_what_the_options_say(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        table(
            ("n", "Text", "Farben"), [(i, t, "|".join(ls)) for i, (t, ls) in enumerate(ROWS)], ";"
        )
    )
    file = open_data(tmp_path / "a.csv")
    columns = understood(file, TableColumns())
    options = options_of(file, columns)
    assert options == [
        "--text-column",
        "Text",
        "--label-column",
        "Farben",
        "--label-separator",
        "|",
        "--delimiter",
        ";",
    ]
    said = columns_of(["Text"], "Farben", "|", ";")
    assert said == columns and understood(file, said) == said


def test_what_is_wrong_with_lines_of_tables(tmp_path: Path) -> None:
    cells = [(t, ";".join(ls)) for t, ls in ROWS]
    path = tmp_path / "a.csv"
    path.write_text("sep=;\r\n" + table(("text", "labels"), cells, ";"))
    assert as_read(read_dataset(path)) == RIGHT
    path.write_text('"sep=;"\n' + table(("text", "labels"), cells, ";"))
    assert as_read(read_dataset(path)) == RIGHT
    lines = [f"{labels},{t.replace(',', '')}" for t, labels in cells]
    for row in (19, 150):
        lines[row] = lines[row].replace(",", ',"')
    path.write_text("\n".join(["labels,text", *lines, ""]))
    with pytest.raises(BadData, match=r"a\.csv:21: expected a comma .* closing quote"):
        read_dataset(path)
    path.write_text(table(cells[0], cells[1:]))
    with pytest.raises(BadData, match=r"\(no-header\)"):
        read_dataset(path)
    path.write_text(table(("text", "labels"), [*cells[:100], ("text", "labels"), *cells[100:]]))
    with pytest.raises(BadData, match=r"row 102.*\(header-again\)"):
        read_dataset(path)
    for labels_first in (False, True):
        lines = [f"{ls}\t{t}" if labels_first else f"{t}\t{ls}" for t, ls in cells]
        lines[18] = ('war\t"' if labels_first else '"') + lines[18]
        lines[118] += ';12"' if not labels_first else ' of 12"'
        head = "labels\ttext" if labels_first else "text\tlabels"
        (tmp_path / "a.tsv").write_text("\n".join([head, *lines]) + "\n")
        with pytest.raises(BadData, match="--quote none"):
            read_dataset(tmp_path / "a.tsv")
    plain = [f"{ls}\t{t}" for t, ls in cells]
    plain[18] = plain[18].replace("\t", '\t"')
    plain[118] += ' of 12"'
    (tmp_path / "a.tsv").write_text("\n".join(["labels\ttext", *plain]) + "\n")
    with pytest.raises(BadData, match=r"found 101 lines in one cell of row 20.*\(swallowed-rows\)"):
        read_dataset(tmp_path / "a.tsv")
    dataset = read_dataset(tmp_path / "a.tsv", columns=columns_of(None, None, None, quote="none"))
    assert dataset.n_rows == 240 and names_of(dataset) == [labels for _, labels in RIGHT]
    poem = "\n".join(f"line {i}, of a poem" for i in range(2))
    path.write_text(table(("text", "labels"), [*cells, (poem, "art")]))
    assert findings_of(read_dataset(path)) == []


def test_encodings_by_name(tmp_path: Path) -> None:
    rows = [(f"é {text}", labels) for text, labels in ROWS]
    wanted = [(text, sorted(labels)) for text, labels in rows]
    lines = "".join(
        json.dumps({"text": t, "labels": ls}, ensure_ascii=False) + "\n" for t, ls in rows
    )
    cells = table(("text", "labels"), [(t, ";".join(ls)) for t, ls in rows])
    fasttext = "".join(" ".join([*(f"__label__{n}" for n in ls), t]) + "\n" for t, ls in rows)
    for name, content in (("a.jsonl", lines), ("a.csv", cells), ("a.txt", fasttext)):
        for encoding in ("windows-1252", "utf-16", "latin-1"):
            (tmp_path / name).write_bytes(content.encode(encoding))
            columns = columns_of(None, None, None, encoding=encoding)
            assert as_read(read_dataset(tmp_path / name, columns=columns)) == wanted
            with pytest.raises(BadData, match=r"a\.\w+:\d+: expected"):
                read_dataset(tmp_path / name)
    (tmp_path / "a.jsonl").write_bytes(lines.encode("windows-1252"))
    with pytest.raises(BadData, match=r":1: expected UTF-8, found byte 0xe9, .*--encoding"):
        read_dataset(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_bytes(lines.encode() + b"\xff\n")
    ascii_only = columns_of(None, None, None, encoding="ascii")
    with pytest.raises(BadData, match="expected ascii, found"):
        read_dataset(tmp_path / "a.jsonl", columns=ascii_only)
    for wrong in ("rot13", "zlib", "none such", ""):
        with pytest.raises(BadParameter, match="encoding: expected the name of an encoding"):
            columns_of(None, None, None, encoding=wrong)


def test_rows_of_one_text_are_joined(tmp_path: Path) -> None:
    long = [(i, t, name) for i, (t, ls) in enumerate(ROWS) for name in ls]
    random.Random(2).shuffle(long)
    order = list(dict.fromkeys(i for i, _, _ in long))
    wanted = [RIGHT[i] for i in order]
    columns = columns_of(None, None, None, join_rows="id")
    (tmp_path / "a.csv").write_text(table(("id", "text", "labels"), long))
    lines = [{"id": i, "text": t, "labels": [name]} for i, t, name in long]
    write_lines(tmp_path / "a.jsonl", lines)
    pq.write_table(
        pa.Table.from_pylist([{**line, "labels": line["labels"][0]} for line in lines]),
        tmp_path / "a.parquet",
    )
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        assert findings_of(read_dataset(tmp_path / name)) == ["long-format"]
        dataset = read_dataset(tmp_path / name, columns=columns)
        assert as_read(dataset) == wanted and findings_of(dataset) == []
    write_lines(tmp_path / "b.jsonl", [*lines, {"text": "x", "labels": []}])
    with pytest.raises(BadData, match=rf"b\.jsonl:{len(lines) + 1}: expected a text or a whole"):
        read_dataset(tmp_path / "b.jsonl", columns=columns)
    with pytest.raises(BadParameter, match="expected rows in memory"):
        DataStream(tmp_path / "a.jsonl", columns=columns)


def test_files_of_a_directory_that_are_passed_over(tmp_path: Path) -> None:
    lines = [{"text": text, "labels": labels} for text, labels in ROWS]
    write_lines(tmp_path / "a.jsonl", lines)
    write_lines(tmp_path / "b.ndjson", lines)
    (tmp_path / "README.md").write_text("about the rows")
    assert findings_of(read_dataset(tmp_path)) == []
    (tmp_path / "c.json").write_text("{}")
    dataset = read_dataset(tmp_path)
    assert findings_of(dataset) == ["files-passed-over"] and "'c.json'" in str(dataset.report)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for i, (text, labels) in enumerate(ROWS):
        (corpus / f"{i}.txt").write_text(text)
        (corpus / f"{i}.key").write_text("\n".join(labels))
    assert findings_of(read_dataset(corpus)) == []
    (corpus / "x.npz").write_text("{}")
    with pytest.raises(BadData, match=r"found \*\.npz among them"):
        read_dataset(corpus)


def test_files_with_byte_order_marks_are_divided(tmp_path: Path) -> None:
    for name, encoding in (("a.jsonl", ""), ("b.jsonl", "utf-16")):
        lines = "".join(json.dumps({"text": t, "labels": ls}) + "\n" for t, ls in ROWS)
        (tmp_path / name).write_bytes(lines.encode(encoding or "utf-8-sig"))
        columns = TableColumns(encoding=encoding)
        parts = split_lines(tmp_path / name, tmp_path / "work", 0.5, 1, no_progress, columns)
        read_rows = [row for part in parts for row in as_read(read_dataset(part))]
        assert sorted(read_rows) == sorted(RIGHT)


def test_validation_rows_that_are_training_rows() -> None:
    counts = np.random.default_rng(1).integers(1, 9, (60, 9)).astype(np.float32)
    ids = np.tile(np.arange(9, dtype=np.int32), 60)
    rows = SparseRows(np.arange(0, 9 * 60 + 1, 9), ids, counts.ravel(), 9)
    assert len(set(digests_of(rows).tolist())) == 60
    reversed_rows = rows._replace(values=rows.values.reshape(60, 9)[:, ::-1].ravel())
    assert not np.isin(digests_of(rows), digests_of(reversed_rows)).any()
    report = dataset_from_memory([text for text, _ in ROWS], [ls for _, ls in ROWS]).report
    assert report is not None
    for start, codes in ((40, []), (30, ["repeated-rows"])):
        valid = rows.cut(start, 60)
        labels = LabelRows(np.zeros(61 - start, np.int64), np.zeros(0, np.int32), 1)
        labelled = Labelled(valid, labels, np.zeros(60 - start, np.int32), report=report)
        note_repeated_rows(digests_of(rows.cut(0, 40)), labelled, strict=False)
        assert [finding.code for finding in report.findings] == codes
    assert "found 10 of 30" in report.findings[0].message
    with pytest.raises(BadData, match=r"python: .*\(repeated-rows\)"):
        note_repeated_rows(digests_of(rows), labelled, strict=True)
