"""fastText's files of labelled texts are read as lines of JSON that say the same."""

import gzip
import json
import re
from pathlib import Path

import pytest

from service.base.columns import DEFAULT_COLUMNS
from service.base.errors import BadData
from service.datasets.reader import DataStream, read_dataset
from service.jobs.sources import split_lines

LINES = [
    "__label__tea __label__caf\u00e9  a cup\tof tea",
    "",
    "a word __label__tea between __label__tea",
    "no label at all",
    "__label__alone",
    "\ufeffmarked __label__b",
]


def written(path: Path, lines: list[str]) -> Path:
    data = "\r\n".join(lines).encode("utf-8-sig")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def as_json(lines: list[str]) -> str:
    rows = [
        {
            "text": " ".join(re.findall(r"(?<!\S)(?!__label__)\S+", line)),
            "labels": re.findall(r"__label__(\S+)", line),
        }
        for line in lines
        if line
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
@pytest.mark.parametrize("first", range(len(LINES) - 1))
def test_they_are_read_as_lines_of_json(tmp_path: Path, suffix: str, first: int) -> None:
    lines = [LINES[0], *LINES[first:], *LINES[:first]]
    (tmp_path / "a.jsonl").write_text(as_json(lines))
    expected = read_dataset(tmp_path / "a.jsonl")
    path = written(tmp_path / f"a{suffix}", lines)
    found = read_dataset(path)
    assert (found.texts, found.label_names) == (expected.texts, expected.label_names)
    assert found.label_names == ["alone", "b", "caf\u00e9", "tea"]
    assert found.labels.indices.tolist() == expected.labels.indices.tolist()
    assert found.labels.indptr.tolist() == expected.labels.indptr.tolist()
    stream = DataStream(path)
    assert [text for part in stream.parts() for text in part.texts or []] == expected.texts
    assert stream.sha256 == found.sha256


def test_a_label_in_the_middle_of_the_first_line_says_so_too(tmp_path: Path) -> None:
    found = read_dataset(written(tmp_path / "a.txt", ["some __label__x words"]))
    assert (found.texts, found.label_names) == (["some words"], ["x"])


def test_other_files_are_numbers_still(tmp_path: Path) -> None:
    for text in ("", "not__label__x", "1 2 3 4"):
        with pytest.raises(BadData, match=r"a\.txt:1: expected a header"):
            read_dataset(written(tmp_path / "a.txt", [text]))


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    for line, fault in (
        ("__label__ a", "expected the name of a label after __label__, found none"),
        ("__label__" + "x" * 70_000, "label: "),
    ):
        with pytest.raises(BadData, match=rf"a\.txt:2: {fault}"):
            read_dataset(written(tmp_path / "a.txt", ["__label__x y", line]))
    (tmp_path / "b.txt").write_bytes(b"__label__x y\n\xff\n")
    with pytest.raises(BadData, match=r"b\.txt:2: expected UTF-8"):
        read_dataset(tmp_path / "b.txt")


def test_a_job_divides_them_by_lines(tmp_path: Path) -> None:
    lines = [f"__label__{i % 3} text {i}" for i in range(60)]
    data = written(tmp_path / "a.txt", lines)
    parts = split_lines(data, tmp_path / "work", 0.3, 1, lambda phase, done, total: None, DEFAULT_COLUMNS)
    texts = [text for part in parts for text in read_dataset(part).texts or []]
    assert sorted(texts) == sorted(f"text {i}" for i in range(60))
