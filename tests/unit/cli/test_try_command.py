"""`xylem try`, the columns that it guesses, and what `xylem predict` takes beside lines of JSON."""

import contextlib
import csv
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.servers import exchange, wait_for
from tests.unit.cli.conftest import Cli

from xylem.base.columns import (
    DEFAULT_COLUMNS,
    TableColumns,
    columns_of,
    refuse_without_table,
)
from xylem.base.errors import BadData, BadParameter
from xylem.base.fields import TextColumn
from xylem.datasets import read_dataset
from xylem.datasets.column_guess import understood
from xylem.datasets.files import open_data
from xylem_store.origin import read_origin
from xylem_store.store import Store

COLOURS = ("red", "green", "blue", "white")


def rows_of(n: int, seed: int = 0) -> list[tuple[str, list[str]]]:
    """Texts of some words, and the colours among them."""
    rng = random.Random(seed)
    rows = []
    for i in range(n):
        labels = rng.sample(COLOURS, rng.choice((1, 1, 2)))
        rows.append((f"the {', '.join(labels)} thing number {i % 7} of all", labels))
    return rows


def write_table(
    path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]], mark: str = ","
) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=mark).writerows([head, *rows])
    return path


def guessed(path: Path, **said: Any) -> TableColumns:
    names = ("text_column", "label_column", "label_separator", "delimiter")
    columns = columns_of(*(said.get(name) for name in names))
    refuse_without_table(columns, path)
    return understood(next(open_data(path).files()), columns)


@pytest.mark.parametrize(
    ("name", "mark", "text", "label", "between"),
    [
        ("a.csv", ",", "text", "labels", ";"),
        ("a.csv", ";", "Text", "Schlagworte", "|"),
        ("a.csv", "\t", "Title", "TAGS", ","),
        ("a.tsv", "|", "satz", "farbe", ";"),
    ],
)
def test_delimiter_columns_and_separator_are_guessed(
    tmp_path: Path, name: str, mark: str, text: str, label: str, between: str
) -> None:
    rows = [
        (i, words, between.join(labels), "same") for i, (words, labels) in enumerate(rows_of(60))
    ]
    path = write_table(tmp_path / name, ("id", text, label, "source"), rows, mark)
    found = guessed(path)
    assert found[:4] == ((TextColumn(text),), label, between, mark)
    dataset = read_dataset(path, columns=found)
    assert dataset.label_names == sorted(COLOURS) and dataset.texts == [
        words for words, _ in rows_of(60)
    ]
    said = guessed(
        path, text_column=["id=2"], label_column="source", label_separator="x", delimiter=mark
    )
    assert said[:4] == ((TextColumn("id", 2),), "source", "x", mark), "what is said is not guessed"


def test_parquet_is_guessed_and_lists_as_text_are_told(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    columns = {
        "Abstract": ["red thing", "blue"],
        "title": ["a", "b"],
        "topics": [["x"], ["y", "z"]],
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = guessed(tmp_path / "a.parquet")
    assert found[:4] == ((TextColumn("Abstract"), TextColumn("title")), "topics", ";", "")
    path = write_table(tmp_path / "b.csv", ("text", "labels"), [("red", "['red', 'blue']")])
    with pytest.raises(BadData, match=r"found the text of a list in 1 of 1 rows, as .\['red'"):
        read_dataset(path)
    (tmp_path / "c.tsv").write_text("a text\t<http://x/1>\n")
    assert guessed(tmp_path / "c.tsv") == DEFAULT_COLUMNS
    with pytest.raises(BadData, match=r"missing.csv: expected a readable file"):
        read_dataset(tmp_path / "missing.csv")
    for wrong in ("", '"', ";;"):
        with pytest.raises(BadParameter, match="delimiter: expected a character"):
            guessed(path, delimiter=wrong)


def test_tables_that_are_packed_or_many_are_guessed(tmp_path: Path, cli: Cli) -> None:
    import pyarrow as pa

    (tmp_path / "many").mkdir()
    rows = [(text, "|".join(labels)) for text, labels in rows_of(60)]
    plain = write_table(tmp_path / "a.csv", ("Text", "Farben"), rows, ";").read_bytes()
    for number in range(2):
        with pa.CompressedOutputStream(
            str(tmp_path / "many" / f"{number}.csv.zst"), "zstd"
        ) as packed:
            packed.write(plain)
    for name in ("many/0.csv.zst", "many/*.zst", "many"):
        assert guessed(tmp_path / name) == guessed(tmp_path / "a.csv")
    said = cli.says("try", tmp_path / "many" / "*.csv*", "--no-serve")
    assert "--label-column Farben" in " ".join(said.split())
    assert Store(cli.store).versions("many") == (1,)
    (tmp_path / "rows.jsonl").write_text("{}")
    with pytest.raises(BadParameter, match="columns: expected a file that ends in"):
        guessed(tmp_path / "rows.jsonl", label_column="x")


def test_a_first_model_is_published_with_thresholds(tmp_path: Path, cli: Cli) -> None:
    for name, n in (("Ein Versuch.csv", 30), ("ein-versuch.csv", 400)):
        rows = [(text, "|".join(labels)) for text, labels in rows_of(n)]
        file = write_table(tmp_path / name, ("Text", "Farben"), rows, ";")
        told = cli("try", file, "--no-serve")
        assert told.returncode == 0, told.stderr
        said = "read with --text-column Text --label-column Farben --label-separator '|'"
        assert said in " ".join(told.stdout.split())
        assert ("only 3 rows were held out" in told.stderr) is (n == 30)
    assert "the label that it shows first is right 10.0 times in 10" in told.stdout
    assert "Beside words alone these features are worth +0.0 points of P@1/3/5." in told.stdout
    store = Store(cli.store)
    assert store.versions("ein-versuch") == (1, 2)
    assert read_origin(store.open("ein-versuch", 2).arrays)["parent"]["version"] == 1
    facts = json.loads(
        cli.says("try", file, "--no-serve", "--model", "other", "--json").splitlines()[-1]
    )
    assert facts["rows"] == {"training": 320, "thresholds": 40, "test": 40} and facts["labels"] == 4
    assert (facts["features"], facts["features_gained"]) == ("words", 0)
    assert facts["P@1"] == 100 and facts["threshold"] == "tuned" and facts["precision"] > 90
    assert (
        facts["P@5"]
        == pytest.approx(facts["labels_a_row"] * 20)
        == pytest.approx(facts["possible"])
    )
    found = cli.says("predict", "other", "a blue thing", "--threshold", "tuned")
    assert "blue" in found and "red" not in found


NO_TWO = [(f"text {i}", [f"id{i}"]) for i in range(40)]  # have a label together


def as_lines(rows: list[tuple[str, list[str]]]) -> bytes:
    return "\n".join(json.dumps({"text": text, "labels": labels}) for text, labels in rows).encode()


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("empty.csv", b"", "expected a header with the names of columns, found an empty file"),
        ("empty.jsonl", b"", "expected at least one row, found none"),
        ("header.csv", b"text,labels\n", "expected at least one row, found none"),
        (
            "nothing.jsonl",
            as_lines([("a book", [])] * 30),
            "two labels or more to tell apart, found rows",
        ),
        ("few.jsonl", as_lines(rows_of(9)), "expected 10 rows or more to learn from, found 9"),
        (
            "ids.jsonl",
            as_lines(NO_TWO),
            "expected labels that rows share, found 40 of 40 labels in one row alone",
        ),
        (
            "column.csv",
            b"text\n" + b"a book\n" * 30,
            "expected one column 'labels', found columns 'text'",
        ),
        ("binary.csv", bytes(range(256)) * 20, "expected text, found NUL"),
        ("binary.jsonl", bytes(range(256)) * 20, "expected text, found NUL"),
        ("binary.bin", bytes(range(256)) * 20, "expected a name that ends in .txt"),
        ("one.csv", b"text,labels\n" + b"a book,red\n" * 30, "to tell apart, found only 'red'"),
    ],
)
def test_a_file_that_nothing_can_be_learnt_from_is_refused(
    tmp_path: Path, cli: Cli, name: str, content: bytes, fault: str
) -> None:
    (tmp_path / name).write_bytes(content)
    done = cli("try", tmp_path / name, "--no-serve")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"{name}:" in done.stderr and re.search(fault, done.stderr)
    assert not (cli.store / "models").exists()


def test_what_cannot_be_read_is_refused(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "empty").mkdir()
    secret = tmp_path / "secret.csv"
    secret.write_text("text,labels\n")
    secret.chmod(0)
    wrong = [(tmp_path / "empty", "expected data files"), (tmp_path / "none.csv", "No such file")]
    if os.geteuid():  # of root nothing is kept
        wrong.append((secret, "expected a readable file, found: Permission denied"))
    for path, fault in wrong:
        done = cli("try", path, "--no-serve")
        assert done.returncode == 2 and f"{path}: " in done.stderr and fault in done.stderr


def test_a_doubt_stops_it_unless_it_is_told_to_go_on(tmp_path: Path, cli: Cli) -> None:
    path = write_table(tmp_path / "a.csv", ("Text", "Farben"), [("a", "b")] * 20, ";")
    done = cli("try", path, "--delimiter", ",", "--no-serve")
    assert done.returncode == 2
    assert "expected one column 'labels', found columns 'Text;Farben'" in done.stderr
    rows = [
        (text, "nan" if i % 9 == 0 else "|".join(ls)) for i, (text, ls) in enumerate(rows_of(99))
    ]
    path = write_table(tmp_path / "b.csv", ("text", "labels"), rows)
    done = cli("try", path, "--no-serve", "--model", "b")
    assert done.returncode == 2 and "(null-labels); --yes trains nevertheless" in done.stderr
    assert "The first rows as they were read" in done.stdout and rows[4][0] in done.stdout
    assert not (cli.store / "models").exists()
    done = cli("try", path, "--no-serve", "--model", "b", "--yes", "--json")
    assert done.returncode == 0 and "(null-labels)" in done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["model"] == "b" and facts["findings"][0]["code"] == "null-labels"
    assert facts["data"]["labels"] == len(COLOURS) + 1


def test_it_is_served_until_interrupted(tmp_path: Path, store: Path) -> None:
    file = write_table(
        tmp_path / "a.csv", ("text", "labels"), [(t, ls[0]) for t, ls in rows_of(60)]
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "xylem.cli.entry",
        "try",
        file,
        "--port",
        str(port),
        "--store",
        store,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def answers() -> bool:
        assert process.poll() is None, process.communicate()
        with contextlib.suppress(OSError):
            return exchange(port, "GET", "/readyz")[0] == 200
        return False

    try:
        wait_for(answers)
    finally:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    assert f"The console is at http://127.0.0.1:{port}/ until Ctrl-C." in out
    assert process.returncode == 0  # as `xylem serve` ends


def test_plain_lines_and_documents_are_predicted(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(as_lines(rows_of(300)))
    cli.says("try", tmp_path / "rows.jsonl", "--no-serve", "--model", "m")
    command = [sys.executable, "-m", "xylem.cli.entry", "predict", "m", "--store", cli.store]
    texts = 'a "red" thing\r\nthe\tblue \\ thing\nbad \udcff\n'.encode(errors="surrogateescape")
    plain = [*command, "--plain", "--top-r", "1"]
    done = subprocess.run(plain, input=texts, capture_output=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["labels"][0]["label"] for line in answers[:2]] == ["red", "blue"]
    assert answers[2]["error"]["line"] == 3 and done.returncode == 2
    folder = tmp_path / "documents"
    folder.mkdir()
    for name, text in (("a", "a red thing"), ("b", "blue")):
        (folder / f"{name}.txt").write_text(text)
    (folder / "a.tsv").write_text("<no subject\n")  # labels of documents are not read
    asked = ("predict", "m", "--data", folder, "--top-r", "2")
    cli.says(*asked)
    label, score = (folder / "a.labels").read_text().splitlines()[0].split("\t")
    assert label == "red" and 0.5 < float(score) <= 1
    cli.refuses("a.labels: --force replaces them", *asked)
    assert cli.answers(*asked, "--force") == {"documents": 2}
    names = [file.name for file in folder.iterdir()]
    assert sorted(names) == ["a.labels", "a.tsv", "a.txt", "b.labels", "b.txt"]
    cli.refuses("expected one of a text, --data and --plain", "predict", "m", "a text", "--plain")
