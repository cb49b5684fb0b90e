"""Lines of JSON and of fastText, and corpora of Annif: what they
mean, and what is wrong with others.
"""

import codecs
import hashlib
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.datasets_helpers import check_dataset, labels_of, read, refusal

from xylem.admin.jobs.sources import split_lines
from xylem.base import no_progress
from xylem.base.columns import DEFAULT_COLUMNS
from xylem.base.errors import BadData, BadParameter
from xylem.base.rows import Dataset
from xylem.datasets import check_readable, json_lines, read_dataset, stream
from xylem.datasets.data_stream import DataStream
from xylem.datasets.tables import TableLines
from xylem_store.names import build_names


def test_texts_and_named_features(tmp_path: Path) -> None:
    content = (
        '{"text": "one", "labels": ["b", "a", "b"], "id": 7}\n\n{"labels": [], "text": ""}\r\n'
        '{"text": "zwei\\n€", "labels": ["ä", "B"]}'
    )
    dataset = read(tmp_path / "a.jsonl", content)
    assert (dataset.texts, dataset.rows, dataset.named_rows) == (["one", "", "zwei\n€"], None, None)
    assert dataset.label_names == ["B", "a", "b", "ä"]
    assert labels_of(dataset) == [[1, 2], [], [0, 3]]
    content = '{"features": {"x": 1, "y": -0.5}, "labels": ["a"]}\n{"features": {}, "labels": []}\n'
    dataset = read(tmp_path / "a.jsonl", content)
    assert (dataset.texts, dataset.rows, dataset.named_rows) == (
        None,
        None,
        [{"x": 1, "y": -0.5}, {}],
    )


def test_label_ids_do_not_depend_on_the_order_of_lines(tmp_path: Path) -> None:
    lines = [
        json.dumps({"text": f"t{i}", "labels": [f"l{i * 7 % 13}", f"l{i % 5}"]}) for i in range(40)
    ]
    first, second = (read(tmp_path / "a.jsonl", "\n".join(order)) for order in (lines, lines[::-1]))
    assert first.label_names == second.label_names == sorted(f"l{i}" for i in range(13))
    assert labels_of(first) == labels_of(second)[::-1]


def test_labels_of_a_model(tmp_path: Path) -> None:
    text = (
        '{"text": "1", "labels": ["c", "new", "a"]}\n{"text": "2", "labels": ["new", '
        '"newer", "new"]}\n'
    )
    dataset = read(tmp_path / "a.jsonl", text, labels=build_names(["c", "b", "a"]))
    assert labels_of(dataset) == [[0, 2], []]
    assert dataset.unknown_labels.tolist() == [1, 2] and dataset.unknown_names == ["new", "newer"]
    assert dataset.label_names is None and dataset.labels.n_labels == 3


def test_bad_lines_after_a_text(tmp_path: Path) -> None:
    for line, fault in (
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
        (
            '{"text": "a", "labels": ["b", 1.5]}',
            "expected strings or whole numbers in `labels`, found 1.5",
        ),
        (
            '{"text": "a", "labels": [true]}',
            "expected strings or whole numbers in `labels`, found true",
        ),
        (
            '{"text": "a", "labels": [["b"]]}',
            "expected strings or whole numbers in `labels`, found an array",
        ),
        ('{"text": "a", "labels": ["b\\nc"]}', "label: expected no control characters"),
        ('{"text": "a", "labels": ["' + "x" * 4097 + '"]}', "label: expected at most 4096 bytes"),
        ('{"text": "a", "labels": ["\\ud800"]}', "expected a JSON object, found "),
        ('{"text": "a\x01", "labels": []}', "expected a JSON object, found "),
        (
            '{"text": "\ud800", "labels": []}',
            "expected UTF-8, found byte 0xed, byte 11 of the line",
        ),
        (
            '{"features": {"x": 1}, "labels": []}',
            "expected `text` as in the lines before, found `features`",
        ),
        ("[" * 100_000, "expected a JSON object, found "),
    ):
        for before in (1, 3000):
            content = '{"text": "fine", "labels": ["b"]}\n' * before + line + "\n"
            said = refusal(tmp_path / "a.jsonl", content)
            assert said.replace("label: ", "").startswith(f":{before + 1}: expected ")
            assert fault in said and ", found " in said and len(said) < 300


def test_bad_features(tmp_path: Path) -> None:
    good = '{"features": {"x": 1}, "labels": ["b"]}\n'
    for features, fault in (
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
    ):
        said = refusal(tmp_path / "a.jsonl", good + f'{{"labels": [], "features": {features}}}')
        assert said.startswith(f":2: {fault}")


@pytest.mark.parametrize("block_bytes", [1, 4, 1 << 20])
def test_a_byte_order_mark_is_no_part_of_the_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(stream, "BLOCK_BYTES", block_bytes)
    for name, content, label in (
        ("a.jsonl", '{"text": "\ufeffa", "labels": ["b"]}\n', 0),
        ("a.txt", "1 2 2\n1 1:3\n", 1),
        ("a.svm", "1 1:3", 1),
    ):
        dataset = read(tmp_path / name, content.encode("utf-8-sig"))
        assert labels_of(dataset) == [[label]]
        assert dataset.texts in (None, ["\ufeffa"])
        assert "found" in refusal(tmp_path / name, codecs.BOM_UTF8)


def test_empty_files(tmp_path: Path) -> None:
    for content in ("", "\n\n", "\r\n"):
        said = refusal(tmp_path / "a.jsonl", content)
        assert said.startswith(":1: expected at least one row, found none")


def test_lines_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_lines_of_fasttext_are_read_as_lines_of_json(tmp_path: Path, name: str, first: int) -> None:
    lines = [FASTTEXT[0], *FASTTEXT[first:], *FASTTEXT[:first]]
    expected = read(tmp_path / "a.jsonl", "\n".join(as_json(line) for line in lines if line))
    found = read(tmp_path / name, "\r\n".join(lines).encode("utf-8-sig"))
    assert found.texts == expected.texts
    assert found.label_names == expected.label_names == ["alone", "b", "caf\u00e9", "tea"]
    assert labels_of(found) == labels_of(expected)
    streamed = DataStream(tmp_path / name)
    assert [text for part in streamed.parts() for text in part.texts] == expected.texts
    assert streamed.sha256 == found.sha256


def test_faults_of_fasttext_and_labels_in_the_middle_are_named(
    tmp_path: Path,
) -> None:
    for content, fault in (
        ("\ufeff", ":1: expected a header"),  # of numbers
        ("\ufeffnot__label__x", ":1: expected a header"),
        ("\ufeff1 2 3 4", ":1: expected a header"),
        (
            "\ufeff__label__x y\r\n__label__ a",
            ":2: expected the name of a label after __label__, found none",
        ),
        ("\ufeff__label__x y\r\n__label__" + "x" * 70_000, ":2: label: "),
        (b"__label__x y\n\xff\n", ":2: expected UTF-8"),
    ):
        assert refusal(tmp_path / "a.txt", content).startswith(fault)
    found = read(tmp_path / "a.txt", "some __label__x words")
    assert (found.texts, found.label_names) == (["some words"], ["x"])


def test_a_job_divides_fasttext_by_lines(tmp_path: Path) -> None:
    lines = [f"__label__{i % 3} text {i}" for i in range(60)]
    (tmp_path / "a.txt").write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    parts = split_lines(tmp_path / "a.txt", tmp_path / "work", 0.3, 1, no_progress, DEFAULT_COLUMNS)
    texts = [text for part in parts for text in read_dataset(part).texts]
    assert sorted(texts) == sorted(f"text {i}" for i in range(60))


A, B, C = (f"http://example.org/subject/{letter}" for letter in "abc")
TEXTS = ["a cat, and\nanother", 'a "dog', "ein Vögelchen", ""]
SUBJECTS = [[A, B], [B], [], [C]]


def directory(folder: Path) -> Path:
    """A corpus with all that is allowed: byte order marks, CR LF, empty lines, other files."""
    folder.mkdir()
    for name, text in zip("abcd", TEXTS, strict=True):
        (folder / f"{name}.txt").write_bytes(text.replace("\n", "\r\n").encode())
    (folder / "a.tsv").write_bytes(f"\ufeff<{A}>\tcats\r\n\r\n<{B}>\tdogs\r\n<{B}>\tdogs".encode())
    (folder / "b.tsv").write_text(f"<{B}>\n   \n")
    (folder / "d.tsv").write_text(f"<{C}>\tnothing\tmore\n")
    (folder / "d.key").write_text("passed over: there are URIs\n")
    (folder / "readme.md").write_bytes(b"\xff")
    (folder / ".hidden.txt").write_bytes(b"\xff")
    (folder / "below.txt").mkdir()
    return folder


def names_of(dataset: Dataset) -> list[list[str]]:
    return [[dataset.label_names[i] for i in row] for row in labels_of(dataset)]


def test_a_directory(tmp_path: Path) -> None:
    path = directory(tmp_path / "corpus")
    check_readable(path)
    done = []
    dataset = read_dataset(path, on_progress=lambda *at: done.append(at))
    check_dataset(dataset)
    assert (dataset.texts, names_of(dataset)) == (TEXTS, SUBJECTS)
    assert dataset.source == "corpus" and done[-1] == (4, 4)
    assert dataset.warning == "1 of 4 documents have no subjects: rows without labels"
    order = ("a.txt", "a.tsv", "b.txt", "b.tsv", "c.txt", "d.txt", "d.tsv")
    content = b"".join((path / name).read_bytes() for name in order)
    assert dataset.sha256 == hashlib.sha256(content).hexdigest()
    known = read_dataset(path, labels=build_names([B]))
    assert (labels_of(known), known.unknown_labels.tolist()) == ([[0], [0], [], []], [1, 0, 0, 1])
    with pytest.raises(BadParameter, match="names file with numeric formats only"):
        read_dataset(path, label_names_file=tmp_path / "names")


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_a_directory_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", block)
    path = directory(tmp_path / "corpus")
    streamed = DataStream(path)
    assert len(list(streamed.parts())) == (4 if block == 1 else 1)
    streamed.settle()
    parts = list(streamed.parts())
    whole = read_dataset(path)
    assert [text for part in parts for text in part.texts] == whole.texts
    assert [row for part in parts for row in labels_of(part)] == labels_of(whole)
    assert (streamed.label_names, streamed.sha256) == (whole.label_names, whole.sha256)
    assert streamed.warning == whole.warning
    (path / "e.txt").write_text("more")
    with pytest.raises(BadData, match="it has changed"):
        list(streamed.parts())


def test_documents_of_json(tmp_path: Path) -> None:
    subjects = [{"uri": "http://x/1", "label": "tea"}, {"label": "no URI"}]
    document = {"document_id": "7", "text": "green tea", "metadata": {}, "subjects": subjects}
    (tmp_path / "b.json").write_text(json.dumps(document, indent=2))
    (tmp_path / "c.json").write_text('{"text": "black tea"}')
    for n_before in (0, 1):
        dataset = read_dataset(tmp_path)
        assert dataset.texts == ["a cup"] * n_before + ["green tea", "black tea"]
        assert names_of(dataset) == [[]] * n_before + [["http://x/1", "no URI"], []]
        n_without = n_before + 1
        assert dataset.warning is not None and dataset.warning.startswith(f"{n_without} of")
        assert dataset.report is not None and dataset.report.findings == []
        (tmp_path / "a.txt").write_text("a cup")
    for wrong, fault in (
        ('{"text": 3}', "d.json: expected a string as `text`, found 3"),
        ("[]", "d.json: expected a JSON object, found"),
        ('{"text": "x", "subjects": [1]}', "d.json: expected objects with `uri` or `label`"),
        ("{", "d.json: expected a JSON object, found"),
    ):
        (tmp_path / "d.json").write_text(wrong)
        with pytest.raises(BadData, match=fault):
            read_dataset(tmp_path)


def test_short_texts_with_bare_uris(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('green tea\thttp://x/1 http://x/2\ncup\t<http://x/1> https://y/3\n"no\t\n')
    dataset = read_dataset(path)
    assert dataset.texts == ["green tea", "cup", '"no']
    assert names_of(dataset) == [["http://x/1", "http://x/2"], ["http://x/1", "https://y/3"], []]
    path.write_text("green tea\thttp://x/1\ncup\ttea\n")
    with pytest.raises(BadData, match=r"a\.tsv:2: expected a text, a tab, and URIs"):
        read_dataset(path)


def test_keys_are_labels(tmp_path: Path) -> None:
    for name in "xyz":
        (tmp_path / f"{name}.txt").write_text("text")
    (tmp_path / "x.key").write_text("cats and dogs\n\n birds \n")
    (tmp_path / "y.tsv").write_text("\tno URI\n")
    (tmp_path / "z.key").write_text("\n")
    found = read_dataset(tmp_path)
    assert names_of(found) == [["birds", "cats and dogs"], ["no URI"], []] and found.warning is None


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        (
            {},
            "expected data files, or documents named [*].txt, [*].json in the directory",
        ),
        ({"a.txt": b"\xff"}, "a.txt:1: expected UTF-8, found byte 0xff, byte 1 of the line"),
        (
            {"a.txt": b"ok\nna\xefve\n"},
            "a.txt:2: expected UTF-8, found byte 0xef, byte 3 of the line",
        ),
        (
            {"a.txt": b"x", "a.tsv": b"<u>\tl\n<v>\tcaf\xe9\n"},
            "a.tsv:2: .* byte 0xe9, byte 8 of the line",
        ),
        ({"a.txt": b"x", "a.key": "köt".encode("utf-16")}, "a.key:1: .* byte order mark of UTF-16"),
        ({"a.txt": b"x\0"}, "a.txt:1: expected text, found NUL, byte 2"),
        (
            {"a.txt": b"x", "a.tsv": b"<u\tl\n"},
            "a.tsv:1: expected <URI>, a tab and a label, found '<u",
        ),
        ({"a.txt": b"x", "a.tsv": b"<u>\t<v>\n"}, "a.tsv:1: expected <URI>, a tab and a label"),
        ({"b.txt": b"x", "a.txt": b"x", "b.key": b"\x01"}, "b.txt: label: "),
        (
            {"a.txt": b"x" * 40 + b"\n" + b"x" * 40},
            "a.txt:2: expected at most 60 characters in a file",
        ),
        ({"a.txt": b"\x1f\x8b"}, "a.txt: expected no compression"),
    ],
)
def test_faults_name_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], fault: str
) -> None:
    monkeypatch.setattr("xylem.datasets.annif.LINE_BYTES_MAX", 60)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadData, match=fault):
        read_dataset(tmp_path)


def test_lines_of_text_and_uris(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    found = read(path, f'a "dog\t<{A}>  <{B}>\n\nnone\t\nmany, "quoted"\t<{C}>')
    assert found.texts == ['a "dog', "none", 'many, "quoted"']
    assert names_of(found) == [[A, B], [], [C]]
    with TableLines(path, DEFAULT_COLUMNS, with_labels=True) as lines:  # what jobs split
        assert [json.loads(line)["labels"] for line in lines.read1(1 << 20).splitlines()] == [
            [A, B],
            [],
            [C],
        ]
    first = read(path, f"none\t\nsome\t<{A}>\n")
    assert (first.texts, names_of(first)) == (["none", "some"], [[], [A]])
    for line, shown in (
        ("no tab", "'no tab'"),
        ("text\tlabel", "'label'"),
        (f"a\t<{A}>\tb", "<http.*"),
    ):
        with pytest.raises(
            BadData, match=f"a.tsv:2: expected a text, a tab, and URIs .* found .*{shown}"
        ):
            read(path, f"text\t<{A}>\n{line}\n")


def test_tables_and_parquet_with_subjects(tmp_path: Path) -> None:
    for name, content, names in (
        ("a.csv", f"text,subject_uris\na,{A} <{B}>\nb,\n", [[A, B], []]),
        ("a.csv", "text,subjects\na,cats; dogs\n", [["cats", "dogs"]]),
        ("a.csv", f"subjects,subject_uris,text\ncats;dogs,{A} {B},a\n", [[A, B]]),
        ("a.tsv", f"labels\ttext\tsubject_uris\nx\ta\t{A}\n", [["x"]]),
    ):
        assert names_of(read(tmp_path / name, content)) == names
    pq.write_table(
        pa.table({"text": ["a", "b"], "subject_uris": [[A, B], []]}), tmp_path / "a.parquet"
    )
    assert names_of(read_dataset(tmp_path / "a.parquet")) == [[A, B], []]


def test_lines_of_json_with_subjects(tmp_path: Path) -> None:
    lines = [
        {"text": "a", "subjects": [{"uri": A, "label": "cats"}, {"label": "dogs"}]},
        {"text": "b", "subjects": [], "document_id": 7},
        {"text": "c", "subjects": "passed over", "labels": ["x"]},
    ]
    found = read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)))
    assert names_of(found) == [["dogs", A], [], ["x"]]
    for subjects, fault in (
        ("x", 'expected an array as `subjects`, found "x"'),
        (["x"], 'expected objects with `uri` or `label` in `subjects`, found "x"'),
        ([{}], "expected objects with `uri` or `label` in `subjects`, found an object"),
        ([{"uri": 3.5}], "expected strings or whole numbers in `labels`, found 3.5"),
    ):
        said = refusal(tmp_path / "a.jsonl", json.dumps({"text": "a", "subjects": subjects}))
        assert said.startswith(f":1: {fault}")
