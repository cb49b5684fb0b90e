"""Processor time in which a file is read, by this checkout and by another one, in turns.

    python -m benchmarks.reading --checkout DIR --rows 40000 --repeats 9

The same generated rows stand in a file of each format. A process of each checkout reads each file
once before it counts: kernels are compiled then, and the file is in memory. The packages of older
checkouts have other names, which are tried too.
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.runs import spread

ROOT = Path(__file__).parents[1]
N_LABELS, N_WORDS, WORDS_A_ROW = 2000, 20_000, 60

# Reads the files whose paths come on standard input; prints the processor time of each.
_READER = """
import sys, time
from pathlib import Path
try:
    from xylem.datasets.reader import read_dataset
except ImportError:
    from service.datasets.reader import read_dataset
for line in sys.stdin:
    start = time.process_time()
    n_rows = read_dataset(Path(line.rstrip())).n_rows
    print(time.process_time() - start, n_rows, flush=True)
"""


def write_files(folder: Path, n_rows: int) -> list[Path]:
    """Write the same rows in each format; return the files."""
    rng = random.Random(1)
    labels = [rng.choices(range(N_LABELS), k=rng.randint(1, 5)) for _ in range(n_rows)]
    words = [sorted(rng.choices(range(N_WORDS), k=WORDS_A_ROW)) for _ in range(n_rows)]
    texts = [" ".join(f"word{word}" for word in row) for row in words]
    names = [[f"label {label}" for label in row] for row in labels]
    files = [folder / f"rows{suffix}" for suffix in (".jsonl", ".csv", ".parquet", ".svm")]
    with files[0].open("w") as file:
        for text, row in zip(texts, names, strict=True):
            file.write(json.dumps({"text": text, "labels": row}) + "\n")
    with files[1].open("w", newline="") as file:
        cells = zip(texts, (";".join(row) for row in names), strict=True)
        csv.writer(file).writerows([("text", "labels"), *cells])
    pq.write_table(pa.table({"text": texts, "labels": names}), files[2])
    with files[3].open("w") as file:
        for label_ids, row in zip(labels, words, strict=True):
            ids = ",".join(map(str, sorted(set(label_ids))))
            values = " ".join(f"{word}:{word % 7 / 8 + 0.125}" for word in sorted(set(row)))
            file.write(f"{ids} {values}\n")
    return files


class Reader:
    """A process that reads files with a checkout."""

    def __init__(self, checkout: Path) -> None:
        roots = [checkout / "service", checkout / "model_store"]
        if not (checkout / "service" / "xylem").is_dir():
            roots = [checkout]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _READER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))},
        )

    def seconds(self, file: Path) -> float:
        """Return the processor time in which a file is read."""
        to_process: IO[Any] | None = self._process.stdin
        from_process: IO[Any] | None = self._process.stdout
        assert to_process is not None and from_process is not None
        to_process.write(f"{file}\n")
        to_process.flush()
        return float(from_process.readline().split()[0])

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    readers = [Reader(ROOT), Reader(options.checkout.absolute())]
    with TemporaryDirectory() as folder:
        for file in write_files(Path(folder), options.rows):
            for reader in readers:
                reader.seconds(file)
            turns = [
                [reader.seconds(file) for reader in readers[:: (-1) ** turn]][:: (-1) ** turn]
                for turn in range(options.repeats)
            ]
            rates = [options.rows / median(seconds) for seconds in zip(*turns, strict=True)]
            figures = {
                "file": file.suffix,
                "rows_a_second": [round(rate) for rate in rates],
                "ratio": spread([other / ours for ours, other in turns], 3),
            }
            print(json.dumps(figures), flush=True)
    for reader in readers:
        reader.close()


if __name__ == "__main__":
    main()
