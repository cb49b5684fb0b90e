"""`xylem predict` of lines in another encoding than UTF-8: by file, standard input and --out."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.served_models import TEXTS, publish_model
from tests.unit.cli.conftest import Cli

from xylem_store.store import Store

LINES = [json.dumps({"text": f"café {text}"}, ensure_ascii=False) for text in TEXTS] * 40


def labels_in(answers: str) -> list[Any]:
    return [json.loads(line)["labels"] for line in answers.splitlines()]


@pytest.mark.parametrize("encoding", ["windows-1252", "utf-16", "utf-16-le"])
def test_answers_are_those_of_utf8(cli: Cli, store: Path, tmp_path: Path, encoding: str) -> None:
    publish_model(Store(store), "m", "tfidf")
    text = "\n".join(LINES) + "\n"
    usual = tmp_path / "usual.jsonl"
    usual.write_text(text, encoding="utf-8")
    other = tmp_path / "other.jsonl"
    other.write_text(text, encoding=encoding)
    expected = labels_in(cli.says("predict", "m", "--data", usual))
    assert len(expected) == len(LINES) and len({str(labels) for labels in expected}) > 1
    named = ("predict", "m", "--data", other, "--encoding", encoding)
    assert labels_in(cli.says(*named)) == expected
    cli.says(*named, "--out", tmp_path / "out")
    assert labels_in((tmp_path / "out" / "part-000000.jsonl").read_text()) == expected


def test_bytes_that_the_encoding_does_not_have(cli: Cli, store: Path, tmp_path: Path) -> None:
    publish_model(Store(store), "m", "tfidf")
    (tmp_path / "rows.jsonl").write_bytes(b'{"text": "caf\xe9"}\n')
    done = cli("predict", "m", "--data", tmp_path / "rows.jsonl", "--encoding", "ascii")
    assert done.returncode == 2 and "rows.jsonl: expected ascii, found" in done.stderr
