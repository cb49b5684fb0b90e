"""`xylem evaluate` and what it writes: a line a label, bands, and a
page that hostile names cannot break.
"""

import csv
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.unit.cli.conftest import Cli

from xylem.workflows.label_table import plain_cell, write_label_table
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

HOSTILE = '<script>alert("x")</script>'
LABELS = (HOSTILE, "a,b", '=1+"2"', "<b>&amp;")
FILE_NAME = "<img src=x onerror=alert(1)>.jsonl"


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attributes

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file to train and to measure on, of a hostile name."""
    rows = [{"text": f"word{i % 4} w{i}", "labels": [LABELS[i % 4]]} for i in range(48)]
    rows += [{"text": f"word{i % 4}", "labels": [LABELS[(i + 1) % 4]]} for i in range(2)]
    return write_lines(tmp_path_factory.mktemp("measured") / FILE_NAME, rows)


@pytest.fixture(scope="module")
def store(data: Path) -> Path:
    """A store with a model of hostile labels."""
    place = data.parent / "store"
    train_and_publish(Store(place), "m", TrainRequest(trainer="ovr", data=data))
    return place


def read_lines(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    with file.open(newline="") as opened:
        found = list(csv.DictReader(opened, delimiter="," if file.suffix == ".csv" else "\t"))
    for line in found:
        line.update(
            {key: json.loads(value or "null") for key, value in line.items() if key != "label"}
        )
    return found


def test_a_line_a_label_says_the_same_in_every_format(cli: Cli, data: Path, tmp_path: Path) -> None:
    for suffix in ("csv", "tsv", "jsonl"):
        file = tmp_path / f"labels.{suffix}"
        report = cli.answers("evaluate", "m", "--data", data, "--per-label", file)
        assert report["per_label"] == str(file)
    of_csv, of_tsv, lines = (
        read_lines(tmp_path / f"labels.{suffix}") for suffix in ("csv", "tsv", "jsonl")
    )
    for line in of_csv:  # a spreadsheet takes no label for a formula
        assert line["label"][0] not in "=+-@"
        line["label"] = line["label"].removeprefix("'")
    assert of_csv == lines
    assert [{**line, "label": line["label"].removeprefix("'")} for line in of_tsv] == lines
    assert {line["label"] for line in lines} == set(LABELS)
    assert list(lines[0]) == ["label", "support", "hits", "precision", "recall", "F", "threshold"]
    assert sum(line["support"] for line in lines) == 50
    assert sum(line["F"] for line in lines) / 4 == pytest.approx(report["macro_f"], abs=1e-3)
    for line in lines:
        assert line["recall"] == pytest.approx(100 * line["hits"] / line["support"], abs=1e-3)
        assert line["threshold"] == 0.5
    assert not list(tmp_path.glob("*.unfinished"))


@pytest.mark.parametrize("first", ["=", "+", "-", "@"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_no_cell_of_a_table_is_a_formula(first: str, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"labels{suffix}"
    write_label_table(
        file, [(f"{first}1+2", 1, 1, 50.0, None, 50.0, 0.5), ("a=b", 1, 0, 0.0, 0.0, 0.0, 0.5)]
    )
    with file.open(newline="") as opened:
        rows = list(csv.reader(opened, delimiter="," if suffix == ".csv" else "\t"))
    assert [row[0] for row in rows] == ["label", f"'{first}1+2", "a=b"]
    assert [plain_cell(text) for text in ("\t=1", "\r=1", "", "a")] == ["'\t=1", "'\r=1", "", "a"]


def test_a_label_without_rows_has_no_f_and_an_unknown_one_a_name(cli: Cli, tmp_path: Path) -> None:
    rows = [{"text": "word0 w0", "labels": [LABELS[0], "<b>new</b>"]}]
    command = ("evaluate", "m", "--data", write_lines(tmp_path / "rows.jsonl", rows))
    table, page = tmp_path / "labels.csv", tmp_path / "page"
    said = cli.says(*command, "--per-label", table, "--report", page)
    assert "labels that the model does not know, F 0" in said and "1: <b>new</b>" in said
    found = Elements((page / "report.html").read_text())
    assert "does not know count as zero: 1: <b>new</b>" in found.text and "b" not in found.names
    f_of = {line["label"]: line["F"] for line in read_lines(table)}
    assert f_of == {LABELS[0]: 100.0, **dict.fromkeys(plain_cell(label) for label in LABELS[1:])}
    report = cli.answers(*command)
    assert report["macro_f"] == pytest.approx(100 / 5)
    assert report["unknown_label_names"] == ["<b>new</b>"]


def test_bands_are_in_the_table_and_in_json(cli: Cli, data: Path) -> None:
    report = cli.answers("evaluate", "m", "--data", data)
    assert [(band["band"], band["labels"], band["support"]) for band in report["bands"]] == [
        ("10-99", 4, 50)
    ]
    assert report["bands"][0]["P@1"] == pytest.approx(report["P@1"])
    assert 0 <= report["calibration_error"] <= 1
    assert "10-99" in cli.says("evaluate", "m", "--data", data)


def test_the_page_stands_alone_and_names_are_text(cli: Cli, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "report"
    for _ in range(2):  # a second time over the first
        report = cli.answers("evaluate", "m", "--data", data, "--report", out)
        assert report["report"] == str(out / "report.html")
    page = (out / "report.html").read_text()
    found = Elements(page)
    assert not found.names & {"script", "img", "b", "iframe", "link", "object", "a"}
    assert not [
        name for name, _ in found.attributes if name.startswith("on") or name in ("src", "action")
    ]
    links = [value for name, value in found.attributes if name in ("href", "xlink:href")]
    assert all((value or "").startswith("#") for value in links)
    assert not re.search(r"url\((?!#)|@import", page)
    assert page.count("<svg") == 3 and HOSTILE in found.text and FILE_NAME in found.text
    assert sorted(file.name for file in out.iterdir()) == ["report.html"]


@pytest.mark.parametrize(
    ("option", "place", "fault"),
    [
        ("--per-label", "labels.txt", "expected a file .csv or .tsv or .jsonl, found 'labels.txt'"),
        ("--per-label", "none/labels.csv", "no such directory"),
        ("--per-label", "here.csv", "a directory"),
        ("--report", "file", "expected a directory"),
    ],
)
def test_unwritable_places_are_refused_before_measuring(
    cli: Cli, tmp_path: Path, option: str, place: str, fault: str
) -> None:
    (tmp_path / "here.csv").mkdir()
    (tmp_path / "file").write_text("")
    cli.refuses(fault, "evaluate", "m", "--data", tmp_path / "none.jsonl", option, tmp_path / place)


def test_a_page_without_matplotlib_says_what_to_install(
    cli: Cli, data: Path, tmp_path: Path, hide_module: Callable[[str], None]
) -> None:
    hide_module("matplotlib")
    out = tmp_path / "out"
    cli.refuses("xylem-serve[report]", "evaluate", "m", "--data", data, "--report", out)
    assert not out.exists()


def report_of(cli: Cli, data: Path, model: str, *more: str) -> dict[str, Any]:
    """What `--json` says, but for the time that it took."""
    report: dict[str, Any] = cli.answers("evaluate", model, "--data", data, *more)
    del report["us_per_row"]
    return report


@pytest.mark.parametrize("trainer", ["fastxml", "label-tree"])
def test_the_first_trees_are_measured_as_a_version_of_them(
    cli: Cli, data: Path, tmp_path: Path, trainer: str
) -> None:
    for trees in (2, 3):
        request = TrainRequest(trainer=trainer, data=data, parameters=(f"trees={trees}",))
        train_and_publish(Store(tmp_path), f"of{trees}", request)
    cli.store = tmp_path
    alone, whole = (report_of(cli, data, f"of{trees}") for trees in (2, 3))
    assert report_of(cli, data, "of3", "--trees", "2") == {**alone, "trees": 2}
    assert report_of(cli, data, "of3", "--trees", "3") == {**whole, "trees": 3}
    page = tmp_path / "page"
    said = cli.says("evaluate", "of3", "--data", data, "--trees", "2", "--report", page)
    for text in (" ".join(said.split()), (page / "report.html").read_text()):
        assert "of3@1, the first 2 of 3 trees" in text


@pytest.mark.parametrize("trees", ["0", "-1", "2"])
def test_a_model_of_one_tree_has_one_and_no_other(cli: Cli, data: Path, trees: str) -> None:
    assert report_of(cli, data, "m", "--trees", "1") == {**report_of(cli, data, "m"), "trees": 1}
    fault = f"--trees: expected 1 to 1, the trees of the model, found {trees}"
    cli.refuses(fault, "evaluate", "m", "--data", data, "--trees", trees)
