import codecs
import itertools
import json
from pathlib import Path

import pytest

from model_store.names import build_names
from service.base.errors import BadData
from service.base.rows import Dataset
from service.datasets import read_dataset, stream
from tests.datasets_helpers import check_dataset


def read(folder: Path, text: str | bytes, **options: object) -> Dataset:
    path = folder / "a.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    dataset = read_dataset(path, **options)  # type: ignore[arg-type]
    check_dataset(dataset)
    return dataset


def labels_of(dataset: Dataset) -> list[list[int]]:
    ptr, ids = dataset.labels.indptr.tolist(), dataset.labels.indices.tolist()
    return [ids[a:b] for a, b in itertools.pairwise(ptr)]


def test_texts(tmp_path: Path) -> None:
    dataset = read(
        tmp_path,
        '{"text": "one", "labels": ["b", "a", "b"], "id": 7}\n\n{"labels": [], "text": ""}\r\n'
        '{"text": "zwei\\n€", "labels": ["ä", "B"]}',
    )
    assert dataset.texts == ["one", "", "zwei\n€"]
    assert dataset.rows is None and dataset.named is None
    assert dataset.label_names == ["B", "a", "b", "ä"]
    assert labels_of(dataset) == [[1, 2], [], [0, 3]]


def test_named_features(tmp_path: Path) -> None:
    dataset = read(
        tmp_path, '{"features": {"x": 1, "y": -0.5}, "labels": ["a"]}\n{"features": {}, "labels": []}\n'
    )
    assert dataset.named == [{"x": 1, "y": -0.5}, {}]
    assert dataset.texts is None and dataset.rows is None


def test_label_ids_do_not_depend_on_the_order_of_lines(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"t{i}", "labels": [f"l{i * 7 % 13}", f"l{i % 5}"]}) for i in range(40)]
    first, second = (read(tmp_path, "\n".join(order)) for order in (lines, lines[::-1]))
    assert first.label_names == second.label_names == sorted(f"l{i}" for i in range(13))
    assert labels_of(first) == labels_of(second)[::-1]


def test_labels_of_a_model(tmp_path: Path) -> None:
    text = '{"text": "1", "labels": ["c", "new", "a"]}\n{"text": "2", "labels": ["new", "newer", "new"]}\n'
    dataset = read(tmp_path, text, labels=build_names(["c", "b", "a"]))
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
def test_bad_lines_after_a_text(tmp_path: Path, line: str, fault: str) -> None:
    for before in (1, 3000):
        with pytest.raises(BadData) as caught:
            read(tmp_path, '{"text": "fine", "labels": ["b"]}\n' * before + line + "\n")
        assert f"a.jsonl:{before + 1}: expected " in str(caught.value).replace("label: ", "")
        assert fault in str(caught.value) and ", found " in str(caught.value)
        assert len(str(caught.value)) < 300 + len(str(tmp_path))


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
def test_bad_features(tmp_path: Path, features: str, fault: str) -> None:
    good = '{"features": {"x": 1}, "labels": ["b"]}\n'
    with pytest.raises(BadData) as caught:
        read(tmp_path, good + f'{{"labels": [], "features": {features}}}')
    assert "a.jsonl:2: expected " in str(caught.value) and fault in str(caught.value)


@pytest.mark.parametrize("suffix", [".jsonl", ".txt", ".svm"])
@pytest.mark.parametrize("block_bytes", [1, 4, 1 << 20])
def test_a_byte_order_mark_is_no_part_of_the_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, block_bytes: int
) -> None:
    monkeypatch.setattr("service.datasets.stream.BLOCK_BYTES", block_bytes)
    first = {".jsonl": '{"text": "\ufeffa", "labels": ["b"]}\n', ".txt": "1 2 2\n1 1:3\n", ".svm": "1 1:3"}
    path = tmp_path / f"marked{suffix}"
    path.write_text(first[suffix], encoding="utf-8-sig")
    dataset = read_dataset(path)
    assert (dataset.n_rows, dataset.labels.indices.tolist()) == (1, [0 if suffix == ".jsonl" else 1])
    assert dataset.texts is None or dataset.texts == ["\ufeffa"]
    path.write_bytes(codecs.BOM_UTF8)
    with pytest.raises(BadData, match="found"):
        read_dataset(path)


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\r\n"])
def test_empty_files(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BadData, match=r"a\.jsonl:1: expected at least one row, found none"):
        read(tmp_path, data)


def test_lines_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(json.dumps({"text": "ä" * i, "labels": [f"l{i}"]}) + "\n" for i in range(50))
    whole = read(tmp_path, text)
    monkeypatch.setattr(stream, "BLOCK_BYTES", 11)
    split = read(tmp_path, text)
    assert (
        split.texts == whole.texts and labels_of(split) == labels_of(whole) and split.sha256 == whole.sha256
    )
    with pytest.raises(BadData, match=r"a\.jsonl:51: expected"):
        read(tmp_path, text + "x")
