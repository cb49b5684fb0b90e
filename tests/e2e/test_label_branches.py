"""Names and branches of label info where lists of labels stand, in reports and explanations."""

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from tests.conftest import Run
from tests.helpers.servers import ServerProcess, wait_for

import xylem
from xylem import Client
from xylem_store.label_info import LabelInfo, Subject, build_label_info
from xylem_store.store import Store

ROW = '{"indices": [1], "values": [1.0]}'
SPARSE = {"instances": [json.loads(ROW)], "top_r": 11}


def labels_of(server: ServerProcess, path: str, body: object) -> list[dict[str, Any]]:
    status, answer = server.ask("POST", path, body)
    assert status == 200, answer
    labels: list[dict[str, Any]] = answer["predictions"][0]["labels"]
    return labels


def in_line(line: str | bytes) -> set[str]:
    return {one["label"] for one in json.loads(line)["labels"]}


def branches_of(n_labels: int = 11) -> LabelInfo:
    """Labels 0 to 4 are below one concept, the others below another, which is no label."""
    tops = [Subject(f"top::{i}", None, {"en": f"top {i}"}) for i in range(2)]
    labels = [
        Subject(f"label::{i}", None, {"en": f"dog {i}", "fi": f"koira {i}"}, [f"top::{i // 5}"])
        for i in range(min(n_labels, 10))
    ]
    return build_label_info([*tops, *labels])


def test_names_and_branches_stand_where_labels_do(
    shared_store: Path, run_here: Run, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(shared_store, tmp_path / "store"))
    Store(root).put_label_info("raw", branches_of())
    first, second = ({f"label::{i}" for i in range(5 * k, 5 * k + 5)} for k in range(2))
    branch = {"under": "top 1"}
    predict = "/v1/models/raw/predict"
    with ServerProcess(root, store_poll_seconds=0.05) as server:
        for lists, expected in (
            ({"allow_labels": [branch]}, second),
            (
                {"allow_labels": ["koira 1", "dog 7", "label::9"]},
                {"label::1", "label::7", "label::9"},
            ),
            ({"allow_labels": [branch], "deny_labels": ["dog 7"]}, second - {"label::7"}),
            ({"deny_labels": [branch, {"under": "top::0"}]}, {"label::10"}),
        ):
            for _ in range(2):  # the second time from the cache
                body = {**SPARSE, **lists}
                assert {one["label"] for one in labels_of(server, predict, body)} == expected
        query = f"allow_labels={quote(json.dumps(branch, separators=(',', ':')))}&top_r=11"
        (line,) = server.stream(f"/v1/models/raw/batch?{query}", [ROW.encode()])
        assert in_line(line) == second
        with Client(f"http://127.0.0.1:{server.port}") as client:
            (line,) = client.batch("raw", [json.loads(ROW)], top_r=11, allow_labels=[branch])
            assert {one.label for one in line.labels} == second
            scored = client.score("raw", [json.loads(ROW)], labels=["dog 3", branch, "label::0"])
            names = [one.label for one in scored[0].labels]
            assert names == ["label::3", *sorted(second), "label::0"]
        _, problem = server.ask("POST", predict, {**SPARSE, "allow_labels": ["label::1", "dog 99"]})
        assert problem["code"] == "unknown-label"
        assert problem["errors"][0]["path"] == "allow_labels[1]"
        assert "found 'dog 99'; did you mean 'dog 9'?" in problem["detail"]
        # masks of the names of now: the cache follows the label info
        Store(root).put_label_info(
            "raw", build_label_info([Subject("label::0", None, {"fi": "koira"})])
        )
        body = {**SPARSE, "allow_labels": [branch]}
        wait_for(lambda: server.ask("POST", predict, body)[1].get("code") == "unknown-label")
        Store(root).put_label_info("raw", branches_of())
        rows = tmp_path / "rows.jsonl"
        rows.write_text(ROW + "\n")
        options = ("--data", rows, "--top-r", "11", "--under", "top 1", "--deny", "dog 7")
        for place in ((), ("--url", f"http://127.0.0.1:{server.port}")):
            wait_for(lambda: server.ask("POST", predict, body)[0] == 200)
            predicted = run_here("predict", "raw", *options, *place, store=None if place else root)
            assert in_line(predicted.stdout.splitlines()[-1]) == second - {"label::7"}, (
                predicted.stderr
            )
        by_server = labels_of(server, predict, {**body, "explain": True, "language": "en"})
        path = [{"uri": "top::1", "name": "top 1"}]
        assert [one["explanation"]["broader_path"] for one in by_server] == [path] * 5
        denying = ("models", "deny", "raw", "--under", "top 1", "--label", "koira 0", "--json")
        denied = json.loads(run_here(*denying, store=root).stdout.splitlines()[-1])
        assert set(denied["labels"]) == {*second, "label::0"}
        again = ("models", "deny", "raw", "--under", "top 0", "--allow-again", "--json")
        assert set(json.loads(run_here(*again, store=root).stdout)["labels"]) == second
        wait_for(lambda: len(labels_of(server, predict, SPARSE)) == 6)
    assert first.isdisjoint(second)


def test_figures_and_paths_of_branches_stand_in_reports(
    shared_store: Path, run_here: Run, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(shared_store, tmp_path / "store"))
    Store(root).put_label_info("raw", branches_of())
    rows = tmp_path / "rows.svm"
    rows.write_text("1 1:1 5:0.5\n6 2:1\n")
    figures = ("evaluate", "raw", "--data", rows, "--under", "*", "--under", "dog 3")
    printed = run_here(*figures, store=root).stdout
    assert "sibling" in printed and "top 1" in printed
    report = json.loads(run_here(*figures, "--json", store=root).stdout.splitlines()[-1])
    assert [row["labels"] for row in report["branches"]] == [1, 5, 5]
    near = [report[f"{kind}@5"] for kind in ("broader", "narrower", "sibling")]
    assert near[:2] == [0, 0] and near[2] > 0
    model = xylem.load(root, "raw")
    row = np.eye(1, Store(root).open("raw").manifest.n_features, 1)
    in_python = model.evaluate(row, [["label::1"]], progress=False)
    assert [row["branch"] for row in in_python["branches"]] == ["top 0", "top 1"]
    explained = {one["label"]: one["explanation"] for one in model.explain(row, top_r=11)}
    path = [{"uri": "top::1", "name": "top 1"}]
    assert explained["label::9"]["broader_path"] == path
    assert explained["label::10"]["broader_path"] == []
