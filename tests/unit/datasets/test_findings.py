"""What is understood of files that are well-formed and mean something else: by every format and
door, with the examples of public reports first.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.datasets_helpers import labels_of, write_lines
from tests.helpers.labelled_rows import LABELS, RIGHT, ROWS, as_read, findings_of, names_of, table

import xylem
from xylem.admin.jobs.sources import split_lines
from xylem.base import no_progress
from xylem.base.columns import TableColumns
from xylem.base.errors import BadData, BadInput
from xylem.base.rows import Dataset
from xylem.datasets import DataStream, collect_reports, read_dataset
from xylem.datasets.findings import folded_names, mark_between
from xylem.datasets.label_names import label_name
from xylem.python.from_memory import dataset_from_memory
from xylem_store.names import build_names

PAGE = Path(__file__).parents[3] / "docs" / "findings.md"
MODULE = Path(read_dataset.__code__.co_filename).with_name("findings.py")

# Each door takes texts and, for each, what stands where labels do: a cell or a list.


def by_jsonl(folder: Path, rows: list[tuple[str, Any]], columns: TableColumns) -> Dataset:
    lines = [{"text": text, "labels": v if isinstance(v, list) else [v]} for text, v in rows]
    return read_dataset(write_lines(folder / "a.jsonl", lines), columns=columns)


def by_csv(folder: Path, rows: list[tuple[str, Any]], columns: TableColumns) -> Dataset:
    cells = [(text, ";".join(map(str, v)) if isinstance(v, list) else v) for text, v in rows]
    (folder / "a.csv").write_text(table(("text", "labels"), cells))
    return read_dataset(folder / "a.csv", columns=columns)


def by_tsv(folder: Path, rows: list[tuple[str, Any]], columns: TableColumns) -> Dataset:
    cells = [(text, ";".join(map(str, v)) if isinstance(v, list) else v) for text, v in rows]
    (folder / "a.tsv").write_text(table(("text", "labels"), cells, "\t"))
    return read_dataset(folder / "a.tsv", columns=columns)


def by_parquet(folder: Path, rows: list[tuple[str, Any]], columns: TableColumns) -> Dataset:
    data = {"text": [text for text, _ in rows], "labels": [v for _, v in rows]}
    pq.write_table(pa.table(data), folder / "a.parquet")
    return read_dataset(folder / "a.parquet", columns=columns)


def by_python(_: Path, rows: list[tuple[str, Any]], columns: TableColumns) -> Dataset:
    return dataset_from_memory(
        [text for text, _ in rows], [v if isinstance(v, list) else [v] for _, v in rows]
    )


def by_job(folder: Path, rows: list[tuple[str, Any]], columns: TableColumns) -> Dataset:
    """What a job with a split reads: the rows that it holds out are joined to the others."""
    cells = [(text, ";".join(map(str, v)) if isinstance(v, list) else v) for text, v in rows]
    (folder / "a.csv").write_text(table(("text", "labels"), cells))
    parts = split_lines(folder / "a.csv", folder / "work", 0.5, 1, no_progress, columns)
    (folder / "b.jsonl").write_bytes(b"".join(part.read_bytes() for part in parts))
    return read_dataset(folder / "b.jsonl", columns=columns)


def by_stream(folder: Path, rows: list[tuple[str, Any]], columns: TableColumns) -> Dataset:
    lines = [{"text": text, "labels": v if isinstance(v, list) else [v]} for text, v in rows]
    stream = DataStream(write_lines(folder / "s.jsonl", lines), columns=columns)
    for _ in stream.parts():
        pass
    whole = by_jsonl(folder, rows, columns)
    assert stream.report is not None and whole.report is not None
    assert stream.report == whole.report._replace(source="s.jsonl")
    return whole


DOORS = (by_jsonl, by_csv, by_tsv, by_parquet, by_python, by_job, by_stream)
Door = Callable[[Path, list[tuple[str, Any]], TableColumns], Dataset]


@pytest.mark.parametrize("door", DOORS)
def test_plain_rows_are_read_alike_and_have_no_findings(door: Door, tmp_path: Path) -> None:
    dataset = door(tmp_path, ROWS, TableColumns())
    assert sorted(as_read(dataset)) == sorted(RIGHT)
    report = dataset.report
    assert report is not None and report.findings == []
    assert (report.rows, report.labels, report.median, report.largest) == (240, 8, 2, 3)
    counts = {name: sum(name in labels for _, labels in ROWS) for name in LABELS}
    example = report.examples[0]
    assert len(report.examples) == 3 and example[1] == max(counts.values())
    assert counts[example[0]] == example[1]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("labels-as-text", str),
        ("labels-as-text", json.dumps),
        ("labels-as-text", lambda labels: str(tuple(labels) if labels[1:] else (*labels, "x"))),
        ("labels-as-text", lambda labels: "{" + ",".join(labels) + ",}"),
        ("labels-as-text", lambda labels: str(set(labels))),
        ("labels-as-text", lambda labels: f"[{'; '.join(labels)}]"),
        ("labels-as-text", lambda labels: f"'{';'.join(labels)}'"),
        ("labels-as-text", lambda labels: f"“{';'.join(labels)}”"),
        ("labels-joined", "/".join),
        ("labels-joined", "><".join),
        ("labels-joined", lambda labels: "".join(f"<{name}>" for name in labels)),
        ("labels-joined", " - ".join),
        ("labels-joined", " & ".join),
        ("labels-joined", "+".join),
        ("labels-joined", "_".join),
        ("null-labels", lambda labels: "nan" if "war" in labels else labels),
        ("null-labels", lambda labels: "NULL" if "war" in labels else labels),
        ("fasttext-prefix", lambda labels: [f"__label__{name}" for name in labels]),
        ("fasttext-prefix", lambda labels: [f"{name}," for name in labels]),
        ("similar-labels", lambda labels: [n.title() if "war" in labels else n for n in labels]),
        (
            "similar-labels",
            lambda labels: [n.replace("r", "\u200br") if "war" in labels else n for n in labels],
        ),
        ("labels-zero-one", lambda labels: str(int("war" in labels))),
        ("labels-zero-one", lambda labels: str("war" in labels)),
    ],
)
def test_each_kind_of_fault_is_found_by_every_door(
    door: Door, code: str, change: Callable[[list[str]], Any], tmp_path: Path
) -> None:
    rows = [(text, change(labels)) for text, labels in ROWS]
    if door is by_parquet and len({type(labels) for _, labels in rows}) > 1:
        rows = [(text, v if isinstance(v, list) else [v]) for text, v in rows]
    with collect_reports() as reports:
        try:
            door(tmp_path, rows, TableColumns())
        except BadData as error:
            assert f"({code})" in str(error)
    codes = [finding.code for finding in reports[0].findings]
    assert code in codes
    finding = reports[0].findings[codes.index(code)]
    assert "expected" in finding.message and "found" in finding.message and finding.mend
    if door is not by_python:
        with pytest.raises(BadData, match=r"\([a-z-]+\)$"):
            door(tmp_path, rows, TableColumns(strict=True))


@pytest.mark.parametrize("mark", ["|", ",", " ", ", ", ";", "#", "、", "，", "；"])
@pytest.mark.parametrize("door", [by_csv, by_tsv, by_parquet, by_job])
def test_the_separator_is_guessed_by_every_door(door: Door, mark: str, tmp_path: Path) -> None:
    rows = [(text, mark.join(labels)) for text, labels in ROWS]
    assert sorted(as_read(door(tmp_path, rows, TableColumns()))) == sorted(RIGHT)
    joined = by_jsonl(tmp_path, rows, TableColumns())
    assert findings_of(joined) == ["labels-joined"]


def test_names_that_share_a_mark_are_no_joined_labels() -> None:
    topics = [f"{a} {b}" for a in ("green", "blue", "old") for b in ("tea", "house", "song")]
    tree = [f"books/{kind}/{number}" for kind in ("art", "war") for number in range(40)]
    cities = ["Washington, DC", "Paris, TX", "Paris", "London", "Rome, GA", "Bern"]
    for names in (topics, tree, cities, ["a|b"], [], ["C#", "F#", "J#", "C"]):
        assert mark_between(names) in (None, "#"), names
    hyphened = ["x-ray", "ct-scan", "mri", "pet-scan"]
    assert mark_between([f"{a} {b}" for a in hyphened for b in hyphened if a != b]) == " "
    uris = [f"http://x/{name}" for name in "abc"]
    assert mark_between([f"<{a}> <{b}>" for a in uris for b in uris]) == " "
    assert mark_between(cities) is None


@pytest.mark.parametrize("door", DOORS)
def test_one_rule_for_the_ends_of_labels(door: Door, tmp_path: Path) -> None:
    ends = (" ", "\u00a0", "\u200b", "\ufeff ", "\u00ad", "\u2003", "")
    rows = [
        (text, [f"{ends[i % 7]}{name}{ends[(i + k) % 7]}" for k, name in enumerate(labels)])
        for i, (text, labels) in enumerate(ROWS)
    ]
    dataset = door(tmp_path, rows, TableColumns())
    assert sorted(as_read(dataset)) == sorted(RIGHT) and findings_of(dataset) == []
    accented = [
        (text, ["cafe\u0301" if i % 2 else "caf\u00e9"]) for i, (text, _) in enumerate(ROWS)
    ]
    read_rows = as_read(door(tmp_path, accented, TableColumns()))
    assert {name for _, labels in read_rows for name in labels} == {"caf\u00e9"}


def test_null_labels_are_none_and_whole_numbers_are_labels(tmp_path: Path) -> None:
    rows: list[tuple[str, Any]] = [("a", [6, None, 0]), ("b", None), ("c", []), ("d", [6, 7])]
    wanted = [["0", "6"], [], [], ["6", "7"]]
    lines = [{"text": text, "labels": labels} for text, labels in rows]
    assert names_of(read_dataset(write_lines(tmp_path / "a.jsonl", lines))) == wanted
    assert names_of(by_parquet(tmp_path, rows, TableColumns())) == wanted
    texts, labels = zip(*rows, strict=True)
    assert names_of(dataset_from_memory(list(texts), list(labels))) == wanted
    missing = [[6, float("nan"), 0], float("nan"), [], [6, 7]]
    assert names_of(dataset_from_memory(list(texts), missing)) == wanted
    for wrong in (True, 1.5, [1]):
        with pytest.raises(BadData, match="expected"):
            dataset_from_memory(["a"], [[wrong]])
        with pytest.raises(BadData, match="expected strings or whole numbers"):
            read_dataset(write_lines(tmp_path / "b.jsonl", [{"text": "", "labels": [1, wrong]}]))


def test_labels_of_older_versions_are_compared_in_the_same_form(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.jsonl", [{"text": t, "labels": ls} for t, ls in ROWS])
    older = build_names([f" {name}" for name in sorted(LABELS)])
    dataset = read_dataset(file, labels=older)
    assert dataset.unknown_labels.sum() == 0 and findings_of(dataset) == []
    assert [[sorted(LABELS)[i] for i in ids] for ids in labels_of(dataset)] == [
        ls for _, ls in RIGHT
    ]
    other = read_dataset(file, labels=build_names([name.upper() for name in LABELS]))
    assert findings_of(other) == ["unknown-labels"] and other.report is not None
    assert "where the model has" in other.report.findings[0].message
    numbers = [{"text": t, "labels": ["3.0"]} for t, _ in ROWS]
    floats = read_dataset(
        write_lines(tmp_path / "b.jsonl", numbers), labels=build_names(["3", "4"])
    )
    assert "'3.0' where the model has '3'" in str(floats.report)
    few = read_dataset(file, labels=build_names([name for name in LABELS if name != "sea"]))
    assert findings_of(few) == [], "a new label is no finding"


def test_fasttext_has_blanks_of_ascii_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("__label__no\u00a0break one\u3000two\u00a0three\n__label__b x\n")
    dataset = read_dataset(path)
    assert dataset.texts == ["one\u3000two\u00a0three", "x"]
    assert names_of(dataset) == [["no\u00a0break"], ["b"]]
    for mark in (", ", ","):
        lines = [mark.join(f"__label__{n}" for n in ls) + f" {t}" for t, ls in ROWS]
        path.write_text("\n".join(lines))
        with pytest.raises(BadData, match=r"\(fasttext-prefix\)"):
            read_dataset(path)


def test_labels_that_no_two_rows_share(tmp_path: Path) -> None:
    lines = [{"text": t, "labels": [f"id {i}"]} for i, (t, _) in enumerate(ROWS)]
    assert findings_of(read_dataset(write_lines(tmp_path / "a.jsonl", lines))) == ["single-labels"]


def test_ids_that_begin_at_one(tmp_path: Path) -> None:
    for first, codes in ((0, []), (1, ["ids-from-one"])):
        (tmp_path / "a.svm").write_text("".join(f"{i % 5 + first} 3:1\n" for i in range(40)))
        assert findings_of(read_dataset(tmp_path / "a.svm")) == codes
        stream = DataStream(tmp_path / "a.svm")
        assert [part.n_rows for part in stream.parts()] == [40] and stream.report is not None
        assert [finding.code for finding in stream.report.findings] == codes


def test_counts_of_rows_without_text_or_labels(tmp_path: Path) -> None:
    lines = [{"text": t, "labels": ["b", "a", "b"]} for t in ("", " \n", "x", "y")]
    lines += [{"text": "Привет", "labels": []}] * 3
    report = read_dataset(write_lines(tmp_path / "a.jsonl", lines)).report
    assert report is not None
    assert (report.rows, report.without_text, report.without_labels) == (7, 2, 3)
    assert (report.labels, report.median, report.largest) == (2, 2, 2)
    assert report.scripts == {"cyrillic": 0.6, "latin": 0.4}
    assert report.lines()[0] == (
        "a.jsonl: 7 rows, 2 without text, 3 without labels, 2 labels, 2 a row (the most: 2), "
        "60 % cyrillic, 40 % latin"
    )
    assert report.lines()[1] == "  most frequent: 'b' (4, row 1), 'a' (4, row 1)"


def test_names_are_folded() -> None:
    names = ["Ｆｒｕｉｔ", "fruit", "Fru it", "f\u200bruit", "3", "3.0", "03", "3.5", "0", "00.0"]
    assert folded_names(names) == ["fruit"] * 4 + ["3", "3", "3", "3.5", "0", "0"]
    assert [label_name(name) for name in ("\u200b \u00a0a\u00ad ", "\ufeff", "", " b c ")] == [
        "a",
        "",
        "",
        "b c",
    ]


def test_a_model_in_python_reports_what_it_was_made_of() -> None:
    texts, labels = zip(*ROWS, strict=True)
    model = xylem.train(list(texts), list(labels), progress=False)
    assert model.report["data"]["rows"] == 240 and model.report["data"]["labels"] == 8
    assert model.report["findings"] == []
    with pytest.raises(BadInput, match=r"\(labels-as-text\)"):
        xylem.train(list(texts), [[str(row)] for row in labels], progress=False)


def test_blank_texts_and_rows_of_a_matrix_in_memory() -> None:
    texts = ["a", "", " \n", "b"] * 25
    names = [[f"label {i // 2}"] for i in range(100)]
    for labels in (names, np.eye(100, dtype=np.int8)):
        report = dataset_from_memory(texts, labels).report
        assert report is not None and report.without_text == 50
    for instances in (np.eye(100), [{"a": 1.0}] * 100):
        for labels in (names, np.eye(100, dtype=np.int8)):
            report = dataset_from_memory(instances, labels).report
            assert report is not None and report.without_text is None
            assert not report.findings, "equal features are no text in the long format"


def test_every_finding_has_a_line_on_its_page() -> None:
    codes = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)",\n', MODULE.read_text()))
    listed = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(codes) > 10 and sorted(codes) == sorted(listed)
