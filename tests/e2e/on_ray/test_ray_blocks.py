"""Trainings on rows in blocks, on a cluster of two nodes whose object
stores have less room than the rows.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Run
from tests.e2e.on_ray.conftest import NODE
from tests.e2e.on_ray.test_ray_training import arrays_of, killing_a_node, problem
from tests.helpers.measured import evaluate
from tests.helpers.steps import Parts

from xylem.base.executors.local import AHEAD
from xylem.extras.ray.cluster import connect
from xylem.extras.ray.crew import RayCrew
from xylem.trainers import blocks as blocks_module, fit, parse_parameters
from xylem.trainers.blocks import Blocks
from xylem.trainers.shape import Shape
from xylem.trainers.source import Tools
from xylem_store.store import Store

pytest.importorskip("ray")


def test_blocks_make_the_same_bits_though_a_node_dies(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = blocks_module._plan_nodes

    def smaller(blocks: Blocks, shape: Shape) -> tuple[list[int], list[int], list[list[int]]]:
        return planned(blocks._replace(memory_bytes=50_000), shape)

    monkeypatch.setattr(blocks_module, "_plan_nodes", smaller)
    parameters = parse_parameters("label-tree", ["leaf_size=10", "arity=4", "memory_mib=2"])
    source = Parts(problem(1500, 300).data, 5)
    expected = arrays_of(fit("label-tree", parameters, source, Tools(1)))

    with killing_a_node(cluster) as on_progress, connect(cluster.address) as ray:
        found = fit("label-tree", parameters, source, Tools(1, RayCrew(1, ray, AHEAD), on_progress))
    assert arrays_of(found) == expected


def write_rows(path: Path, n_rows: int, n_others: int) -> int:
    """Write rows of which eight features tell the label; return the bytes that they take."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 200, n_rows)
    tell = labels[:, None] * 20 + np.sort(rng.integers(0, 20, (n_rows, 8)))
    others = np.sort(rng.integers(4001, 8000, (n_rows, n_others)))
    n_values = 0
    with path.open("w") as file:
        for label, row in zip(labels.tolist(), np.hstack([tell + 1, others]), strict=True):
            features = np.unique(row).tolist()
            n_values += len(features)
            file.write(f"{label} {' '.join([f'{feature}:1' for feature in features])}\n")
    return 8 * n_values


def own_bytes(process: Path) -> int:
    """Return the memory of a process that is its own: pages of the object store are everybody's."""
    return int((process / "status").read_text().split("RssAnon:")[1].split()[0]) << 10


@contextmanager
def watched() -> Iterator[dict[str, int]]:
    """Yield where the largest memory of its own stands at the
    end: this process's, and any worker's.
    """
    found, over = {"command": 0, "worker": 0}, threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    name = "command" if int(process.name) == os.getpid() else "worker"
                    if name == "command" or (process / "cmdline").read_bytes().startswith(b"ray::"):
                        found[name] = max(found[name], own_bytes(process))
                except (OSError, IndexError):
                    continue

    before = own_bytes(Path("/proc/self"))
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        found["command"] -= before


def test_rows_beyond_the_memory_of_nodes_are_trained_on(
    cluster: Any, tmp_path: Path, run_here: Run
) -> None:
    n_bytes = write_rows(tmp_path / "many.svm", 40_000, 400)
    write_rows(tmp_path / "few.svm", 200, 400)
    write_rows(tmp_path / "test.svm", 1000, 100)
    assert n_bytes > 1.4 * NODE["object_store_memory"]
    blocks = ["--stream", "-p", "memory_mib=16", "--ray", cluster.address]
    store, taken = tmp_path / "store", {}
    for name, data, more in (
        ("few", "few", blocks),
        ("many", "many", blocks),
        ("whole", "many", []),
    ):
        options = ["--data", tmp_path / f"{data}.svm", "--model", name, "-p", "leaf_size=13", *more]
        with watched() as taken[name]:
            answer = run_here("train", "label-tree", *options, store=store)
        assert answer.returncode == 0, answer.stderr
    found, whole = (
        evaluate(Store(store).open(name, 1), tmp_path / "test.svm") for name in ("many", "whole")
    )
    print("rows", n_bytes, taken, found["P@1"], whole["P@1"])
    assert 3 * taken["many"]["command"] < taken["whole"]["command"], taken
    assert 0 < taken["many"]["worker"] - taken["few"]["worker"] < n_bytes, taken
    assert found["P@1"] > whole["P@1"] - 2
