"""`xylem predict` as its users run it: lines from files, pipes and terminals."""

import gzip
import json
import subprocess
from pathlib import Path

from tests.conftest import Run
from tests.helpers.commands import XYLEM, assert_refused, lines_of, xylem


def test_predict_reads_lines_and_writes_a_line_for_each(run_here: Run, store: Path) -> None:
    lines = [{"text": "about music"}, {"id": "b", "text": "about mail", "labels": ["ignored"]}]
    text = "".join(json.dumps(line) + "\n" for line in [*lines, {"indices": [0], "values": [1]}])
    done = xylem("predict", "topics", "--data", "-", "--store", store, "--top-r", 2, input=text)
    assert (done.returncode, done.stderr) == (0, "")
    found = lines_of(done)
    assert [len(line["labels"]) for line in found] == [2, 2, 2]
    assert found[0]["labels"][0]["label"] == "topic::music"
    assert (found[1]["id"], found[1]["labels"][0]["label"]) == ("b", "topic::mail")
    done = run_here("predict", "topics", "--threshold", "1", "--exact", store=store, input=text)
    assert {label["score"] for line in lines_of(done) for label in line["labels"]} <= {1}


def test_predict_explains_a_label_by_the_words_that_counted(run_here: Run, store: Path) -> None:
    text = '{"text": "about music"}\nnot json\n{"text": "about mail"}\n'
    done = run_here("predict", "topics", "--top-r", 1, "--explain", store=store, input=text)
    music, bad, mail = lines_of(done)
    assert "error" in bad
    for found, word in ((music, "music"), (mail, "mail")):
        (label,) = found["labels"]
        for tree in label["explanation"]["trees"]:
            assert tree["path"][-1]["features"][0]["feature"] == word


def test_predict_answers_a_bad_line_in_its_place(store: Path, tmp_path: Path) -> None:
    lines = [
        '{"text": "about web"}',
        '{"text": 7}',
        "not json",
        '{"features": {"a": 1}}',
        '{"text": "x"}',
    ]
    file = tmp_path / "lines.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    done = xylem("predict", "topics", "--data", file, "--store", store)
    assert_refused(done, "expected an instance on each of 5 lines", "found 3 without")
    found = [("labels" in line, line.get("error", {}).get("line")) for line in lines_of(done)]
    assert found == [(True, None), (False, 2), (False, 3), (False, 4), (True, None)]


def test_predict_answers_as_lines_come(store: Path) -> None:
    command = [XYLEM, "predict", "topics", "--store", str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for topic in ("music", "games"):
            process.stdin.write(json.dumps({"text": f"about {topic}"}).encode() + b"\n")
            process.stdin.flush()
            found = json.loads(process.stdout.readline())
            assert found["labels"][0]["label"] == f"topic::{topic}"
        process.stdin.close()
        assert process.wait(240) == 0


def test_predict_of_a_file_equals_predict_of_its_lines(
    run_here: Run, data: Path, store: Path
) -> None:
    whole = run_here(
        "predict", "topics", "--data", data / "test.jsonl", "--threads", 2, store=store
    )
    lines = xylem("predict", "topics", "--store", store, input=(data / "test.jsonl").read_text())
    found, expected = lines_of(whole), lines_of(lines)
    for line in (*found, *expected):
        del line["prediction_id"]
    assert found == expected and len(found) == 60


def test_a_text_without_a_known_word_has_labels_and_a_warning(run_here: Run, store: Path) -> None:
    for text, warning in (
        ("about music", ""),
        ("zzqq", "xylem: warning: the model knows no word of the text\n"),
    ):
        done = run_here("predict", "topics", text, store=store)
        assert (done.returncode, done.stderr, "topic::" in done.stdout) == (0, warning, True)


def test_a_file_without_lines_has_no_answers(run_here: Run, store: Path, tmp_path: Path) -> None:
    lines, table = tmp_path / "empty.jsonl", tmp_path / "empty.csv"
    lines.touch()
    table.touch()
    done = run_here("predict", "topics", "--data", lines, store=store)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert_refused(
        run_here("predict", "topics", "--data", table, store=store), "empty.csv", "an empty file"
    )
