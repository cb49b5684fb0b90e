"""Trainings with vectors beside words on a cluster: the same bits as on one machine."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Run
from tests.e2e.on_ray.test_ray_training import version_bytes
from tests.helpers.tiny_encoders import write_encoder
from tests.helpers.vectors import vectors_of

pytest.importorskip("ray")

# Options of a training, and whether its vectors come from an encoder in the store.
TRAININGS = {
    "label-tree": (["label-tree"], False),
    "a stream": (["label-tree", "--stream", "-p", "memory_mib=1"], False),
    "ovr": (["ovr"], False),
    "plt": (["plt"], False),
    "fastxml": (["fastxml", "-p", "trees=2"], False),
    "ldsm": (["ldsm"], False),
    "an encoder": (["label-tree", "-p", "features.encoder=tiny"], True),
}


def write_rows(folder: Path, n_rows: int = 600) -> list[Any]:
    """Write rows of texts and their vectors; return the options that name them."""
    words = ("red", "green", "blue", "thing", "a")
    random = np.random.default_rng(3)
    rows = [
        {
            "text": " ".join([*random.choice(words, 4), f"w{i % 40}"]),
            "labels": [f"label{i % 40}", f"group{i % 7}"],
        }
        for i in range(n_rows)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    np.save(folder / "train.npy", vectors_of([str(row["text"]) for row in rows]))
    return ["--data", folder / "train.jsonl"]


@pytest.mark.parametrize("name", TRAININGS)
def test_vectors_give_the_same_bits_on_a_cluster(
    cluster: Any, tmp_path: Path, run_here: Run, name: str
) -> None:
    (trainer, *options), is_encoded = TRAININGS[name]
    rows = write_rows(tmp_path)
    options += ["--model", "m", "-p", "vectors.dims=8" if not is_encoded else "vectors.dims=0"]
    if not is_encoded:
        rows += ["--vectors", tmp_path / "train.npy"]
    else:
        write_encoder(tmp_path / "tiny")
    for store, more in (("here", []), ("there", ["--ray", cluster.address])):
        if is_encoded:
            added = run_here("encoders", "add", "tiny", tmp_path / "tiny", store=tmp_path / store)
            assert added.returncode == 0, added.stderr
        answer = run_here("train", trainer, *rows, *options, *more, store=tmp_path / store)
        assert answer.returncode == 0, answer.stderr
    expected = version_bytes(tmp_path / "here")
    assert version_bytes(tmp_path / "there") == expected
    assert "vectors/mean" in expected
