"""A calibrated version behind a real server: every way of asking
answers the same scores and thresholds.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Run
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.jobs_helpers import write_data
from tests.helpers.oip_requests import infer, predictions_of, tensor
from tests.helpers.servers import ServerProcess, wait_for

import xylem
from xylem.workflows.calibrate import calibrate_and_publish
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

N_TEXTS = 40
TRAINERS = {"tree": "label-tree", "trees": "label-tree", "forest": "pfastrexml"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrated")
    train = write_data(folder / "train.jsonl", 300, seed=1, noise=0.2)
    valid = write_data(folder / "valid.jsonl", 300, seed=2, noise=0.5)
    for name, trainer in TRAINERS.items():
        n_trees = 1 if name == "tree" else 3
        request = TrainRequest(trainer=trainer, data=train, parameters=(f"trees={n_trees}",))
        train_and_publish(Store(folder / "store"), name, request)
        calibrate_and_publish(Store(folder / "store"), name, "1", valid)
    return folder / "store"


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[ServerProcess]:
    with ServerProcess(store) as running:
        yield running


@pytest.fixture(scope="module")
def texts(store: Path) -> list[str]:
    lines = write_data(store.parent / "texts.jsonl", N_TEXTS, seed=9).read_text().splitlines()
    return [json.loads(line)["text"] for line in lines]


def pairs(labels: list[dict[str, Any]]) -> list[tuple[str, float]]:
    return [(found["label"], found["score"]) for found in labels]


def rounded(rows: Any) -> list[list[tuple[str, float]]]:
    """As JSON has them: the shortest decimals of a float32."""
    return [[(label, float(str(np.float32(score)))) for label, score in row] for row in rows]


@pytest.mark.parametrize("threshold", [None, 0.1, 0.35])
@pytest.mark.parametrize("name", TRAINERS)
def test_every_way_says_the_same(
    server: ServerProcess,
    texts: list[str],
    name: str,
    threshold: float | None,
    run_here: Run,
    tmp_path: Path,
) -> None:
    model, path = xylem.load(server.store, name), f"/v1/models/{name}"
    options = {"top_r": 4, "threshold": threshold}
    expected = rounded(model.predict(texts, **options))
    assert threshold is None or all(score >= threshold for row in expected for _, score in row)
    body = {"instances": [{"text": text} for text in texts], **options}
    status, answer = server.ask("POST", f"{path}/predict", body)
    assert status == 200
    assert [pairs(each["labels"]) for each in answer["predictions"]] == expected
    rows = model._featurizer.transform_texts(texts)
    for i in range(3):  # one sparse row a request: by the kernel that reads, searches and writes
        low, high = rows.indptr[i : i + 2]
        one = {"indices": rows.indices[low:high].tolist(), "values": rows.values[low:high].tolist()}
        for _ in range(2):
            _, answer = server.ask("POST", f"{path}/predict", {"instances": [one], **options})
            found = pairs(answer["predictions"][0]["labels"])
            assert [label for label, _ in found] == [label for label, _ in expected[i]]
            assert np.allclose([s for _, s in found], [s for _, s in expected[i]], rtol=1e-4)
    file = write_lines(tmp_path / "texts.jsonl", body["instances"])
    query = f"?top_r=4{'' if threshold is None else f'&threshold={threshold}'}"
    answers = server.stream(f"{path}/batch{query}", file.read_bytes().splitlines(keepends=True))
    assert [pairs(json.loads(line)["labels"]) for line in answers] == expected
    given = [] if threshold is None else ["--threshold", threshold]
    done = run_here("predict", name, "--data", file, "--top-r", 4, *given, store=server.store)
    assert [pairs(json.loads(line)["labels"]) for line in done.stdout.splitlines()] == expected


@pytest.mark.parametrize("name", TRAINERS)
def test_named_labels_and_tensors_have_the_same(
    server: ServerProcess, texts: list[str], name: str
) -> None:
    expected = rounded(xylem.load(server.store, name).predict(texts, top_r=4))
    asked = ((text, [label for label, _ in row]) for text, row in zip(texts, expected, strict=True))
    instances = [{"text": text, "labels": labels} for text, labels in asked]
    status, answer = server.ask("POST", f"/v1/models/{name}/score", {"instances": instances})
    assert status == 200
    found = [pairs(each["labels"]) for each in answer["scores"]]
    for row, wanted in zip(found, expected, strict=True):
        assert np.allclose([s for _, s in row], [s for _, s in wanted], rtol=1e-5)
    request = {"inputs": [tensor("text", texts)], "parameters": {"top_r": 4}}
    answered = predictions_of(infer(server, f"/v2/models/{name}/infer", request, binary=False))
    assert [[(label, float(str(score))) for label, _, score in row] for row in answered] == expected


def test_tuned_thresholds_are_on_the_scale_of_scores(
    server: ServerProcess, texts: list[str], run_here: Run, tmp_path: Path
) -> None:
    valid = write_data(tmp_path / "valid.jsonl", 300, seed=5, noise=0.5)
    done = run_here(
        "thresholds", "tree", "--method", "fta", "--data", valid, "--json", store=server.store
    )
    assert done.returncode == 0, done.stderr
    thresholds = "/v1/models/tree/thresholds?limit=100"
    wait_for(lambda: server.ask("GET", thresholds)[0] == 200)
    least = {
        each["label"]: each["threshold"] for each in server.ask("GET", thresholds)[1]["labels"]
    }
    body = {"instances": [{"text": text} for text in texts], "top_r": 10, "exact": True}
    _, every = server.ask("POST", "/v1/models/tree/predict", body)
    _, tuned = server.ask("POST", "/v1/models/tree/predict", {**body, "threshold": "tuned"})
    n_found = 0
    for all_labels, passed in zip(every["predictions"], tuned["predictions"], strict=True):
        reached = [
            (label, score) for label, score in pairs(all_labels["labels"]) if score >= least[label]
        ]
        assert pairs(passed["labels"]) == reached
        n_found += len(reached)
    assert 0 < n_found < len(texts) * 6
