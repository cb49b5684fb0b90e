"""R4: versions that are wrong but have right checksums are refused, or served without harm.

python -m tests.hostile_versions ROUNDS SEED prints one JSON object; its caller sees when a signal killed it.
"""

import dataclasses
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from model_store.checks import assemble, check_version
from model_store.errors import Corrupt
from model_store.manifest import Manifest
from model_store.origin import REPORT, json_array
from model_store.store import Store
from model_store.version import Model, manifest_of, write_arrays, write_manifest
from service.base.rows import SparseRows
from service.inference.combined_predictor import make_predictor
from service.inference.predictor import PredictOptions
from tests.faulty_fs import QuickFileSystem
from tests.mutations import mutated
from tests.small_models import calibrated_draft, random_rerank, small_draft, softmax_draft

RERANKED = {**random_rerank(7, 12, 70), REPORT: json_array(REPORT, {"splits": [1, 2]})}
DRAFTS = [
    small_draft(n_labels=3, n_features=40, n_trees=1),
    small_draft(1, n_labels=25, arity=20, n_features=33, share=0.1, n_trees=3),
    small_draft(2, weights="bfloat16", n_labels=20, arity=17, n_features=1100, share=0.01),
    small_draft(4, weights="int8", n_labels=20, arity=17, n_features=100, share=0.05),
    small_draft(3, kind="decision-tree", n_labels=6, n_features=64),
    small_draft(6, kind="decision-tree", link="argmax", n_labels=9, n_features=40, arity=2, n_trees=4),
    small_draft(7, kind="decision-tree", weights="bfloat16", n_labels=12, arity=4, n_trees=1, extra=RERANKED),
    calibrated_draft(11, n_labels=20, n_features=40, n_trees=1),
    calibrated_draft(12, kind="decision-tree", n_labels=6, n_features=64, n_knots=2),
    small_draft(4, n_labels=1, n_features=1),
    small_draft(5, n_labels=30, n_features=200, arity=2, link="logistic"),
    softmax_draft(8, dim=33),
    softmax_draft(9, dim=17, weights="int8", n_places=3, n_turned=1),
    softmax_draft(10, dim=5, weights="bfloat16", n_places=2, n_turned=5, is_half=True),
]
N_FEATURES_SERVED_MAX = 1 << 20
"""A workspace grows with the features a model claims: past this, that is a limit's matter and not ours."""


def serve(model: Model, rng: np.random.Generator) -> None:
    """Answer a full and some random rows in every way."""
    predictor = make_predictor(model)
    predictor.warm_up()
    n = predictor.n_features
    tuned = predictor.node_thresholds(rng.random(predictor.n_labels, np.float32))
    for density in (1.0, 0.3, 0.0):
        indices = np.flatnonzero(rng.random(min(n, 5000)) <= density).astype(np.int32)
        values = rng.standard_normal(len(indices)).astype(np.float32)
        rows = SparseRows(np.array([0, len(indices)]), indices, values, n)
        for options in (
            PredictOptions(top_r=3, beam_width=2),
            PredictOptions(top_r=1000, beam_width=1000),
            PredictOptions(top_r=5, exact=True),
            PredictOptions(top_r=1000, threshold=0.0),
            PredictOptions(top_r=5, threshold=0.5),
            PredictOptions(top_r=1000, beam_width=2, threshold=tuned),
            PredictOptions(top_r=5, exact=True, threshold=tuned),
        ):
            labels = predictor.predict(rows, options).labels
            assert len(labels) <= options.top_r
            assert ((labels >= 0) & (labels < model.manifest.n_labels)).all()


def through_files(root: Path, manifest: Manifest, arrays: Mapping[str, Any]) -> Model:
    """Write a version as a hostile writer would, checksums and all, and open it."""
    fs = QuickFileSystem()
    directory = root / "models" / "m" / "versions" / "1"
    directory.mkdir(parents=True)
    infos = write_arrays(fs, directory, arrays)
    write_manifest(fs, directory, dataclasses.replace(manifest, model="m", arrays=infos))
    return Store(root).open("m", 1)


def main(rounds: int, seed: int) -> dict[str, Any]:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    sources = [(manifest_of(draft), draft.arrays()) for draft in DRAFTS]
    for manifest, arrays in sources:  # so that nothing is compiled while the clock runs
        with tempfile.TemporaryDirectory() as root:
            model = through_files(Path(root), manifest, arrays)
        serve(model, numbers)
    counts = {"refused": 0, "served": 0}
    slowest = 0.0
    for number in range(rounds):
        manifest, arrays = mutated(rng, *rng.choice(sources))
        started = time.process_time()  # of the machine, others may have the rest
        try:
            if number % 20 == 0:
                with tempfile.TemporaryDirectory() as root:
                    model = through_files(Path(root), manifest, arrays)
            else:
                check_version(manifest, arrays)
                model = Model(manifest, *assemble(manifest, arrays), arrays)
            if manifest.n_features <= N_FEATURES_SERVED_MAX:
                serve(model, numbers)
            counts["served"] += 1
        except Corrupt:
            counts["refused"] += 1
        slowest = max(slowest, time.process_time() - started)
    return {**counts, "slowest_seconds": round(slowest, 3)}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
