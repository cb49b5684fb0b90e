"""Make examples/debtags: a small real data set from the full one.

    python examples/make_debtags.py TRAIN.jsonl.gz TEST.jsonl.gz [OUT_DIR]

Input lines are {"text": ..., "labels": [...]}, one Debian package each. A description is cut at a
word's end to at most TEXT_CHARS_MAX characters; a label stays when at least LABEL_ROWS_MIN training
rows carry it; a row stays while it has a label. Of the test rows, those stay whose text has a
sha256 in the first TEST_SHARE of its range. The same input gives the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TEXT_CHARS_MAX = 420
LABEL_ROWS_MIN = 10
TEST_SHARE = 0.75
BYTES_MAX = 3_000_000

Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX + 1].rsplit(" ", 1)[0]


def kept_test(row: Row) -> bool:
    digest = hashlib.sha256(row["text"].encode()).digest()
    return int.from_bytes(digest[:4], "big") < TEST_SHARE * 2**32


def shortened(rows: list[Row], labels: set[str]) -> Iterator[Row]:
    for row in rows:
        kept = sorted(labels.intersection(row["labels"]))
        if kept:
            yield {"text": cut(row["text"]), "labels": kept}


def write(path: Path, rows: list[Row]) -> int:
    lines = "".join(
        json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows
    )
    packed = gzip.compress(lines.encode(), compresslevel=9, mtime=0)
    path.write_bytes(packed)
    print(f"{path}: {len(rows)} rows, {len(packed)} bytes")
    return len(packed)


def main(train_file: Path, test_file: Path, out: Path) -> None:
    train, test = read(train_file), read(test_file)
    counts = Counter(label for row in train for label in row["labels"])
    labels = {label for label, n_rows in counts.items() if n_rows >= LABEL_ROWS_MIN}
    out.mkdir(parents=True, exist_ok=True)
    n_bytes = write(out / "train.jsonl.gz", list(shortened(train, labels)))
    n_bytes += write(
        out / "test.jsonl.gz", list(shortened([row for row in test if kept_test(row)], labels))
    )
    print(f"{len(labels)} labels, {n_bytes} bytes together")
    if n_bytes > BYTES_MAX:
        raise SystemExit(f"expected at most {BYTES_MAX} bytes, found {n_bytes}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    files = [Path(argument) for argument in sys.argv[1:]]
    main(files[0], files[1], files[2] if len(files) == 3 else Path(__file__).parent / "debtags")
