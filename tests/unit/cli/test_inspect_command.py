"""`xylem inspect`: what is understood of a file, and the command that trains on it."""

import shlex
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Cli

ROWS = 40
LABELS = ("sport", "music", "law", "war")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table whose delimiter, columns and separator have to be guessed."""
    lines = ["ID\tfrage\tantwort"]
    for i in range(ROWS):
        labels = f"{LABELS[i % 4]}|{LABELS[(i + 1) % 4]}"
        lines.append(f"{i}\ta question of many words, number {i}\t{labels}")
    file = tmp_path / "questions.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_the_command_that_it_prints_reads_the_file_alike(cli: Cli, table: Path) -> None:
    answer = cli.answers("inspect", table)
    data = answer["data"]
    assert (data["rows"], data["labels"], data["labels_a_row"]["most"]) == (ROWS, 4, 2)
    assert answer["first_rows"][0] == {
        "text": "a question of many words, number 0",
        "labels": ["music", "sport"],
    }
    assert len(answer["first_rows"]) == 3
    options = ["--text-column", "frage", "--label-column", "antwort"]
    options += ["--label-separator", "|", "--delimiter", "tab"]
    assert data["options"] == options
    words = shlex.split(answer["train"])
    assert words[0] == "xylem" and words[-1] == "NAME"
    trained = cli.answers(*words[1:-1], "made")
    predicted = cli("predict", "made", "--data", table)
    assert "read with --text-column frage --delimiter tab" in predicted.stderr
    assert len(predicted.stdout.splitlines()) == ROWS
    assert trained["data"] == data and set(answer) == {"first_rows", "train", "data", "findings"}


def test_what_it_refuses_and_what_it_warns_of(cli: Cli, table: Path, tmp_path: Path) -> None:
    refused = tmp_path / "lists.csv"
    refused.write_text("text,labels\n" + "some words,\"['a', 'b']\"\n" * ROWS)
    done = cli("inspect", refused)
    assert (done.returncode, "(labels-as-text)" in done.stderr) == (2, True), done.stderr
    warned = tmp_path / "nulls.csv"
    warned.write_text(
        "text,labels\n" + "".join(f"row {i},{('None', 'a')[i % 2]}\n" for i in range(ROWS))
    )
    done = cli("inspect", warned)
    assert (done.returncode, "(null-labels)" in done.stderr) == (0, True), done.stderr
    assert cli("inspect", warned, "--strict").returncode == 2
