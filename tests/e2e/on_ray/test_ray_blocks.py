"""Trainings on rows in blocks, on a cluster of two nodes whose object stores have less room than the rows."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store.store import Store
from service.executors.ray import RayCrew, connect
from service.trainers import blocks as blocks_module
from service.trainers import fit, parse_parameters
from service.trainers.blocks import Blocks
from service.trainers.shape import Shape
from tests.clusters import NODE, add_node
from tests.conftest import Run
from tests.e2e.on_ray.test_ray_training import arrays_of, problem
from tests.measured import evaluate
from tests.steps import Parts

pytest.importorskip("ray")


def test_blocks_make_the_bits_of_threads_here_though_a_node_is_killed(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, killed = blocks_module._planned, []

    def smaller(blocks: Blocks, shape: Shape) -> tuple[list[int], list[list[int]]]:
        return planned(blocks._replace(memory_bytes=50_000), shape)

    monkeypatch.setattr(blocks_module, "_planned", smaller)
    parameters = parse_parameters("label-tree", ["leaf_size=10", "arity=4", "memory_mib=2"])
    source = Parts(problem(1500, 300).data, 15)
    expected = arrays_of(fit("label-tree", parameters, source, 1))

    def on_progress(stage: str, done: int, total: int) -> None:
        if not killed and stage == "classifiers" and done >= 2:
            (node,) = cluster.worker_nodes
            killed.append(node)
            cluster.remove_node(node, allow_graceful=False)

    try:
        with connect(cluster.address) as ray:
            found = fit("label-tree", parameters, source, 1, 1, on_progress, crew=RayCrew(1, ray))
    finally:
        if killed:
            add_node(cluster)
    assert killed and arrays_of(found) == expected


def write_rows(path: Path, n_rows: int, n_words: int) -> int:
    """Write texts whose first words tell the label; return the bytes that their rows take."""
    rng, n_values = np.random.default_rng(2), 0
    with path.open("w") as file:
        for label in rng.integers(0, 200, n_rows).tolist():
            words = [*rng.integers(label * 20, label * 20 + 20, 8), *rng.integers(4000, 8000, n_words)]
            n_values += len(set(words))
            row = {"text": " ".join(f"w{word}" for word in words), "labels": [f"l{label}"]}
            file.write(json.dumps(row) + "\n")
    return 8 * n_values


@contextmanager
def watched() -> Iterator[list[int]]:
    """Yield where the largest memory of its own of any process that runs steps stands at the end."""
    found, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    if (process / "cmdline").read_bytes().startswith(b"ray::"):
                        line = (process / "status").read_text().split("RssAnon:")[1]
                        found[0] = max(found[0], int(line.split()[0]) << 10)
                except (OSError, IndexError):
                    continue

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def test_rows_that_exceed_nodes_and_workers_are_trained_on(
    cluster: Any, tmp_path: Path, run_here: Run
) -> None:
    n_bytes = write_rows(tmp_path / "many.jsonl", 40_000, 400)
    write_rows(tmp_path / "few.jsonl", 200, 400)
    write_rows(tmp_path / "test.jsonl", 1000, 100)
    assert n_bytes > 1.4 * NODE["object_store_memory"]
    parameters = ["features.kind=hashing", "features.n_features=65536", "leaf_size=13"]
    options = ["--json", *(word for each in parameters for word in ("-p", each))]
    blocks = ["--stream", "-p", "memory_mib=16", "--ray", cluster.address]
    store, command, workers = tmp_path / "store", {}, {}
    for name, more in (("few", blocks), ("many", blocks), ("whole", [])):
        data = tmp_path / f"{name.replace('whole', 'many')}.jsonl"
        with watched() as largest:
            line = ["train", "label-tree", "--data", data, "--model", name, *options, *more]
            answer = run_here(*line, store=store)
        assert answer.returncode == 0, answer.stderr
        workers[name] = largest[0]
        command[name] = json.loads(answer.stdout.splitlines()[-1])["peak_memory_bytes"]
    found, whole = (
        evaluate(Store(store).open(name, 1), tmp_path / "test.jsonl") for name in ("many", "whole")
    )
    print("rows", n_bytes, command, workers, found["P@1"], whole["P@1"])
    taken = {name: command[name] - command["few"] for name in ("many", "whole")}  # with pages of the store
    assert 3 * taken["many"] < taken["whole"], command
    assert 0 < workers["many"] - workers["few"] < n_bytes, workers
    assert found["P@1"] > whole["P@1"] - 2
