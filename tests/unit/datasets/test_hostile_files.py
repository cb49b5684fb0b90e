"""Small files that would take the memory, minutes, or for ever are
bounded, or refused with the reason.
"""

import os
import re
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command

from xylem.base.errors import BadData
from xylem.datasets import parquet
from xylem.datasets.reader import read_dataset
from xylem.datasets.sparse_text import read_label_names
from xylem.datasets.stream import DataFile
from xylem.datasets.subjects import read_subjects
from xylem.engine.features.languages import stop_list

ROOT = Path(__file__).parents[3]


def repeated(file: Path, n_rows: int, n_bytes: int, **options: Any) -> Path:
    """A file of a few kB, all rows of which have one text, which stands in it once."""
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0] * n_rows, pa.int32()), pa.array(["x" * n_bytes])
    )
    labels = pa.array([["a", "b"]] * n_rows)
    pq.write_table(pa.table({"text": texts, "labels": labels}), file, compression="zstd", **options)
    assert file.stat().st_size < 1 << 20
    return file


@pytest.mark.parametrize("encoding", ["dictionary", "DELTA_BYTE_ARRAY", "PLAIN"])
def test_rows_that_repeat_a_text_are_read_a_few_at_once(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "rows.parquet"
    if encoding == "dictionary":
        repeated(file, 400, 6 << 20)
    else:
        texts = pa.table({"text": ["x" * (1 << 20)] * 400, "labels": ["a"] * 400})
        encodings = {"text": encoding}
        pq.write_table(
            texts, file, compression="zstd", use_dictionary=False, column_encoding=encodings
        )
    with closing(parquet.ParquetTable(DataFile(file))) as table:
        sizes = [(batch.num_rows, batch.nbytes) for batch in table._batches(["text", "labels"])]
    assert sum(n_rows for n_rows, _ in sizes) == 400
    assert max(n_bytes for _, n_bytes in sizes) <= parquet.BATCH_BYTES + (1 << 20)


def test_short_rows_are_read_as_many_at_once_as_ever(tmp_path: Path) -> None:
    texts = pa.table({"text": [f"text {i}" for i in range(1_000)], "labels": ["a"] * 1_000})
    pq.write_table(texts, tmp_path / "rows.parquet", row_group_size=500)
    with closing(parquet.ParquetTable(DataFile(tmp_path / "rows.parquet"))) as table:
        n_rows = {batch.num_rows for batch in table._batches(["text", "labels"])}
    assert n_rows == {parquet.BATCH_ROWS, 500 % parquet.BATCH_ROWS}


def test_a_row_group_that_unpacks_to_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES_MAX", 1 << 20)
    file = repeated(tmp_path / "rows.parquet", 2, 2 << 20)
    with pytest.raises(
        BadData, match=r"rows.parquet: expected row groups that unpack to at most 1048576 b"
    ):
        read_dataset(file)


SHORT_OF_MEMORY = """
import resource, sys
from pathlib import Path
from xylem.datasets.stream import DataFile
from xylem.datasets.subjects import read_subjects
from xylem.datasets.tables import ParquetTable
file = DataFile(Path(sys.argv[1]))
if file.kind == ".parquet":
    table = ParquetTable(file)
else:
    import rdflib.plugins.parsers.notation3
    import xylem.extras.rdf.skos
words = int(Path("/proc/self/statm").read_text().split()[0])
limit = words * resource.getpagesize() + (128 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    if file.kind == ".parquet":
        for _ in table.rows(["text"]):
            pass
    else:
        read_subjects(file, None)
except MemoryError as error:
    print("memory")
"""


@pytest.mark.parametrize("name", ["rows.parquet", "rows.ttl"])
def test_too_little_memory_is_not_told_as_damage(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    if name == "rows.parquet":
        repeated(file, 400, 6 << 20)
    else:
        file.write_text(
            "\n".join(f'<http://x/{i}> <http://y> "{"x" * 60_000}" .' for i in range(2_000))
        )
    command = [sys.executable, "-c", SHORT_OF_MEMORY, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (0, "memory\n"), done.stderr[-2_000:]


@pytest.fixture(params=["pipe", "socket", "device"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A function that makes something of this name that is no file."""

    def make(name: str) -> Path:
        file = tmp_path / name
        if request.param == "pipe":
            os.mkfifo(file)
        elif request.param == "device":
            file.symlink_to("/dev/zero")
        else:
            with socket.socket(socket.AF_UNIX) as door:
                door.bind(os.path.relpath(file))
        return file

    return make


NO_FILE = (
    "expected .* found: a pipe, a socket or a device: give a file, or - where the command reads"
)
NAMES = [
    *(
        "rows.txt",
        "rows.svm",
        "rows.jsonl",
        "rows.jsonl.gz",
        "rows.csv",
        "rows.tsv.zst",
        "rows.parquet",
    ),
    "rows.X.npz",
]


@pytest.mark.parametrize("name", NAMES)
def test_data_that_are_no_file_are_refused(name: str, special: Any) -> None:
    with pytest.raises(BadData, match=NO_FILE):
        read_dataset(special(name))


def test_other_files_that_are_none_are_refused(special: Any) -> None:
    with pytest.raises(BadData, match=NO_FILE):
        read_label_names(special("names"))
    for name in ("concepts.ttl", "concepts.rdf", "concepts.tsv", "concepts.csv", "concepts.nt.gz"):
        with pytest.raises(BadData, match=NO_FILE):
            read_subjects(DataFile(special(name)), None)
    with pytest.raises(BadData, match="found: a pipe, a socket or a device"):
        stop_list(str(special("stops.txt")))


def test_commands_refuse_what_is_no_file(special: Any, command: Command, tmp_path: Path) -> None:
    pipe, good = special("pipe.jsonl"), tmp_path / "good.jsonl"
    good.write_text('{"text": "some words", "labels": ["a"]}\n' * 8)
    train = ("train", "plt", "--model", "m")
    for options in (
        (*train, "--data", pipe),
        (*train, "--data", good, "--valid", pipe),
        (*train, "--data", good, "--label-info", special("concepts.ttl")),
        ("estimate", "--data", pipe),
        ("schedules", "create", "--job", special("job.json"), "--cron", "0 0 * * *"),
    ):
        status, _, err = command(*options)
        assert status == 2 and "a pipe, a socket or a device" in err, (options, err)


def test_a_process_substitution_is_refused(command: Command) -> None:
    end, other = os.pipe()
    status, _, err = command("train", "plt", "--model", "m", "--data", f"/dev/fd/{end}")
    os.close(end)
    os.close(other)
    assert status == 2
    assert re.search(NO_FILE, err)
