"""The German set is made of apt's lists: which packages, labels and parts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from benchmarks import german_set
from benchmarks.german_set import described_packages, write_set

TRANSLATIONS = """Package: chess
Description-md5: aa
Description-de: Schach für das Terminal
 Ein Spiel.
 .
 Mit  Farben.

Package: old
Description-md5: bb
Description-de: Alt

Package: plain
Description-md5: cc
Description-de: Ohne Schlagwort

"""
PACKAGES = """Package: chess
Source: chess-src (1.0)
Tag: game::board, role::program,
 special::not-yet-tagged
Description-md5: aa

Package: old
Tag: role::program
Description-md5: newer

Package: plain
Tag: special::not-yet-tagged
Description-md5: cc

"""


@pytest.fixture
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    helper = tmp_path / "helper"
    helper.write_text('#!/bin/sh\nexec cat "$2"\n')
    helper.chmod(0o755)
    monkeypatch.setattr(german_set, "APT_HELPER", helper)
    (tmp_path / "x_i18n_Translation-de").write_text(TRANSLATIONS)
    (tmp_path / "x_binary-amd64_Packages").write_text(PACKAGES)
    return tmp_path


def test_packages_with_a_german_text_of_now_and_a_tag_are_taken(lists: Path) -> None:
    [chess] = described_packages(lists)
    assert chess.text == "Schach für das Terminal Ein Spiel. Mit Farben."
    assert chess.labels == ["game::board", "role::program"]
    assert chess.is_test == (int(hashlib.sha256(b"chess-src").hexdigest(), 16) % 5 == 0)
    write_set([chess, chess._replace(name="other", is_test=not chess.is_test)], lists / "out")
    for part in ("train", "test"):
        [row] = (lists / "out" / f"{part}.jsonl").read_text().splitlines()
        assert json.loads(row)["labels"] == chess.labels
        uris = "<https://debtags.example/game::board> <https://debtags.example/role::program>"
        assert (lists / "out" / f"{part}.tsv").read_text() == f"{chess.text}\t{uris}\n"
    assert (
        "<https://debtags.example/game::board>\tgame::board\n"
        in (lists / "out" / "vocabulary.tsv").read_text()
    )
