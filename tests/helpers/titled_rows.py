"""Rows with a title and a body, as lines of JSON, as a table, and as texts that were joined."""

import csv
import json
import random
from pathlib import Path
from typing import Any

from tests.helpers.datasets_helpers import write_lines
from xylem.base.columns import TableColumns, columns_of

SUBJECTS = ("apple", "river", "engine", "honey", "paper", "snow")
WORDS = ("old", "new", "small", "tall", "quiet", "loud", "early", "late")
FIELDS = ["title=3", "body"]
COLUMNS = ("--text-column", "title=3", "--text-column", "body")


def titled_rows(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows whose title has the subject that is their label; every ninth lacks a field."""
    draw = random.Random(seed)
    rows = []
    for number in range(n):
        subject, other = draw.sample(SUBJECTS, 2)
        row = {
            "title": f"{draw.choice(WORDS)} {subject}",
            "body": " ".join([other, *draw.sample(WORDS, 4), subject[:3]]),
            "labels": [subject],
        }
        if number % 9 == 8:
            del row[("title", "body")[number % 2]]
        rows.append(row)
    return rows


def text_of(row: dict[str, Any], weight: int = 3) -> str:
    """Return the text of a row by other means: the title, repeated, and the body."""
    return "\n".join([row.get("title") or ""] * weight + [row.get("body") or ""])


def write_titled(folder: Path, n: int, seed: int = 0, name: str = "rows") -> Path:
    """Write the same rows as NAME.jsonl, NAME.csv and, joined, NAME-text.jsonl."""
    rows = titled_rows(n, seed)
    write_lines(folder / f"{name}.jsonl", rows)
    texts = ({"text": text_of(row), "labels": row["labels"]} for row in rows)
    write_lines(folder / f"{name}-text.jsonl", texts)
    with (folder / f"{name}.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["labels", "body", "title"])
        table.writerows([row["labels"][0], row.get("body"), row.get("title")] for row in rows)
    return folder


def columns(*texts: str) -> TableColumns:
    """Return how a file is read with these columns of text."""
    return columns_of(list(texts), None, None)


def line_of(row: dict[str, Any]) -> bytes:
    """Return a row as a line of JSON."""
    return json.dumps(row).encode() + b"\n"
