"""Lines of JSON and of fastText: what they mean, in blocks of any size, and what is wrong with others."""

import codecs
import json
import re

import pytest

from model_store.names import build_names
from service.base.columns import DEFAULT_COLUMNS
from service.datasets import read_dataset, stream
from service.datasets.reader import DataStream
from service.jobs.sources import split_lines
from service.workflows.labelled import no_progress
from tests.datasets_helpers import labels_of, read, refusal


def test_texts(tmp_path):
    content = (
        '{"text": "one", "labels": ["b", "a", "b"], "id": 7}\n\n{"labels": [], "text": ""}\r\n'
        '{"text": "zwei\\n€", "labels": ["ä", "B"]}'
    )
    dataset = read(tmp_path / "a.jsonl", content)
    assert (dataset.texts, dataset.rows, dataset.named) == (["one", "", "zwei\n€"], None, None)
    assert dataset.label_names == ["B", "a", "b", "ä"]
    assert labels_of(dataset) == [[1, 2], [], [0, 3]]


def test_named_features(tmp_path):
    content = '{"features": {"x": 1, "y": -0.5}, "labels": ["a"]}\n{"features": {}, "labels": []}\n'
    dataset = read(tmp_path / "a.jsonl", content)
    assert (dataset.texts, dataset.rows, dataset.named) == (None, None, [{"x": 1, "y": -0.5}, {}])


def test_label_ids_do_not_depend_on_the_order_of_lines(tmp_path):
    lines = [json.dumps({"text": f"t{i}", "labels": [f"l{i * 7 % 13}", f"l{i % 5}"]}) for i in range(40)]
    first, second = (read(tmp_path / "a.jsonl", "\n".join(order)) for order in (lines, lines[::-1]))
    assert first.label_names == second.label_names == sorted(f"l{i}" for i in range(13))
    assert labels_of(first) == labels_of(second)[::-1]


def test_labels_of_a_model(tmp_path):
    text = '{"text": "1", "labels": ["c", "new", "a"]}\n{"text": "2", "labels": ["new", "newer", "new"]}\n'
    dataset = read(tmp_path / "a.jsonl", text, labels=build_names(["c", "b", "a"]))
    assert labels_of(dataset) == [[0, 2], []]
    assert dataset.unknown_labels.tolist() == [1, 2] and dataset.unknown_names == ["new", "newer"]
    assert dataset.label_names is None and dataset.labels.n_labels == 3


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("[]", "expected a JSON object, found an array of 0"),
        ("null", "expected a JSON object, found null"),
        ('"text"', 'expected a JSON object, found "text"'),
        ("{", "expected a JSON object, found "),
        ("{} {}", "expected a JSON object, found "),
        ("{}", "expected keys `labels` and one of `text` and `features`, found none"),
        ('{"text": "a"}', "found 'text'"),
        ('{"labels": []}', "found 'labels'"),
        ('{"text": "a", "lables": []}', "found 'text', 'lables'"),
        ('{"text": "a", "features": {}, "labels": []}', "found 'text', 'features', 'labels'"),
        ('{"text": 1, "labels": []}', "expected a string as `text`, found 1"),
        ('{"text": null, "labels": []}', "expected a string as `text`, found null"),
        ('{"text": ["a"], "labels": []}', "expected a string as `text`, found an array"),
        ('{"text": "a", "labels": "b"}', 'expected an array as `labels`, found "b"'),
        ('{"text": "a", "labels": {"b": 1}}', "expected an array as `labels`, found an object"),
        ('{"text": "a", "labels": null}', "expected an array as `labels`, found null"),
        ('{"text": "a", "labels": ["b", 1]}', "expected strings in `labels`, found 1"),
        ('{"text": "a", "labels": [true]}', "expected strings in `labels`, found true"),
        ('{"text": "a", "labels": [["b"]]}', "expected strings in `labels`, found an array"),
        ('{"text": "a", "labels": [""]}', "label: expected a name of at least one byte"),
        ('{"text": "a", "labels": ["b\\nc"]}', "label: expected no control characters"),
        ('{"text": "a", "labels": ["' + "x" * 4097 + '"]}', "label: expected at most 4096 bytes"),
        ('{"text": "a", "labels": ["\\ud800"]}', "expected a JSON object, found "),
        ('{"text": "a\x01", "labels": []}', "expected a JSON object, found "),
        ('{"text": "\ud800", "labels": []}', "expected a JSON object, found "),
        ('{"features": {"x": 1}, "labels": []}', "expected `text` as in the lines before, found `features`"),
        ("[" * 100_000, "expected a JSON object, found "),
    ],
)
def test_bad_lines_after_a_text(tmp_path, line, fault):
    for before in (1, 3000):
        said = refusal(tmp_path / "a.jsonl", '{"text": "fine", "labels": ["b"]}\n' * before + line + "\n")
        assert said.replace("label: ", "").startswith(f":{before + 1}: expected ")
        assert fault in said and ", found " in said and len(said) < 300


@pytest.mark.parametrize(
    ("features", "fault"),
    [
        ("[]", "expected an object as `features`, found an array"),
        ("null", "expected an object as `features`, found null"),
        ('"x"', 'expected an object as `features`, found "x"'),
        ('{"x": true}', "expected a number for feature 'x', found true"),
        ('{"x": "1"}', "expected a number for feature 'x', found \"1\""),
        ('{"x": null}', "expected a number for feature 'x', found null"),
        ('{"x": [1]}', "expected a number for feature 'x', found an array"),
        ('{"x": 1e39}', "expected a value that is finite in 32 bits for feature 'x', found 1e+39"),
        ('{"x": -3.5e38}', "expected a value that is finite in 32 bits"),
        ('{"x": NaN}', "expected a JSON object, found "),
        ('{"x": 1e400}', "expected a JSON object, found "),
        ('{"x": Infinity}', "expected a JSON object, found "),
    ],
)
def test_bad_features(tmp_path, features, fault):
    good = '{"features": {"x": 1}, "labels": ["b"]}\n'
    said = refusal(tmp_path / "a.jsonl", good + f'{{"labels": [], "features": {features}}}')
    assert said.startswith(f":2: {fault}")


@pytest.mark.parametrize("block_bytes", [1, 4, 1 << 20])
@pytest.mark.parametrize(
    ("name", "content", "label"),
    [
        ("a.jsonl", '{"text": "\ufeffa", "labels": ["b"]}\n', 0),
        ("a.txt", "1 2 2\n1 1:3\n", 1),
        ("a.svm", "1 1:3", 1),
    ],
)
def test_a_byte_order_mark_is_no_part_of_the_first_line(
    tmp_path, monkeypatch, block_bytes, name, content, label
):
    monkeypatch.setattr(stream, "BLOCK_BYTES", block_bytes)
    dataset = read(tmp_path / name, content.encode("utf-8-sig"))
    assert labels_of(dataset) == [[label]]
    assert dataset.texts is None or dataset.texts == ["\ufeffa"]
    assert "found" in refusal(tmp_path / name, codecs.BOM_UTF8)


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\r\n"])
def test_empty_files(tmp_path, data):
    assert refusal(tmp_path / "a.jsonl", data).startswith(":1: expected at least one row, found none")


def test_lines_across_blocks(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    text = "".join(json.dumps({"text": "ä" * i, "labels": [f"l{i}"]}) + "\n" for i in range(50))
    whole = read(path, text)
    monkeypatch.setattr(stream, "BLOCK_BYTES", 11)
    split = read(path, text)
    assert (split.texts, split.sha256) == (whole.texts, whole.sha256)
    assert labels_of(split) == labels_of(whole)
    assert refusal(path, text + "x").startswith(":51: expected")


FASTTEXT = [
    "__label__tea __label__caf\u00e9  a cup\tof tea",
    "",
    "a word __label__tea between __label__tea",
    "no label at all",
    "__label__alone",
    "\ufeffmarked __label__b",
]


def as_json(line: str) -> str:
    """A line of JSON that says what a line of fastText says."""
    words = re.findall(r"(?<!\S)(?!__label__)\S+", line)
    return json.dumps({"text": " ".join(words), "labels": re.findall(r"__label__(\S+)", line)})


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("first", range(len(FASTTEXT) - 1))
def test_lines_of_fasttext_are_read_as_lines_of_json(tmp_path, name, first):
    lines = [FASTTEXT[0], *FASTTEXT[first:], *FASTTEXT[:first]]
    expected = read(tmp_path / "a.jsonl", "\n".join(as_json(line) for line in lines if line))
    found = read(tmp_path / name, "\r\n".join(lines).encode("utf-8-sig"))
    assert found.texts == expected.texts
    assert found.label_names == expected.label_names == ["alone", "b", "caf\u00e9", "tea"]
    assert labels_of(found) == labels_of(expected)
    streamed = DataStream(tmp_path / name)
    assert [text for part in streamed.parts() for text in part.texts] == expected.texts
    assert streamed.sha256 == found.sha256


def test_a_label_in_the_middle_of_the_first_line_says_so_too(tmp_path):
    found = read(tmp_path / "a.txt", "some __label__x words")
    assert (found.texts, found.label_names) == (["some words"], ["x"])


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("\ufeff", ":1: expected a header"),  # of numbers
        ("\ufeffnot__label__x", ":1: expected a header"),
        ("\ufeff1 2 3 4", ":1: expected a header"),
        ("\ufeff__label__x y\r\n__label__ a", ":2: expected the name of a label after __label__, found none"),
        ("\ufeff__label__x y\r\n__label__" + "x" * 70_000, ":2: label: "),
        (b"__label__x y\n\xff\n", ":2: expected UTF-8"),
    ],
)
def test_what_is_wrong_with_fasttext_is_said(tmp_path, content, fault):
    assert refusal(tmp_path / "a.txt", content).startswith(fault)


def test_a_job_divides_fasttext_by_lines(tmp_path):
    lines = [f"__label__{i % 3} text {i}" for i in range(60)]
    (tmp_path / "a.txt").write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    parts = split_lines(tmp_path / "a.txt", tmp_path / "work", 0.3, 1, no_progress, DEFAULT_COLUMNS)
    texts = [text for part in parts for text in read_dataset(part).texts]
    assert sorted(texts) == sorted(f"text {i}" for i in range(60))
