"""R4: versions that are wrong but have right checksums are refused, or served without harm.

There are versions of each kind: label trees, decision trees, re-ranked, calibrated and embedded
ones, versions for texts, combined ones with names and near rows, versions that store rows, learners
that store their state; and label info.

python -m tests.helpers.hostile_versions ROUNDS SEED prints one JSON object; its caller checks
whether a signal killed it.
"""

import contextlib
import dataclasses
import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.make_golden import DRAFTS as GOLDEN, rows_of
from tests.helpers.combined_models import documents, full_draft
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.mutations import mutated
from tests.helpers.small_models import calibrated_draft, random_rerank, small_draft, softmax_draft
from xylem.base.errors import BadParameter
from xylem.base.executors.local import Crew
from xylem.base.rows import LabelRows, SparseRows
from xylem.engine.predictor import PredictOptions
from xylem.serving.label_info import LiveLabelInfo
from xylem.serving.live.opening import open_version
from xylem.trainers.registry import grow_on
from xylem.trainers.source import TrainingSet
from xylem.vocabulary.featurizers import matcher_of
from xylem.workflows.going_on import kept_rows, read_kept
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.checks import assemble, check_version
from xylem_store.errors import Corrupt
from xylem_store.label_info import (
    HEAD_BYTES,
    Subject,
    build_label_info,
    label_info_pieces,
    map_label_info,
)
from xylem_store.manifest import COMBINED, STATE, Manifest, TrainerInfo
from xylem_store.names import build_names
from xylem_store.origin import REPORT, json_array
from xylem_store.store import Store
from xylem_store.version import (
    Draft,
    Model,
    manifest_of,
    pack,
    unpack,
    write_arrays,
    write_manifest,
)

RERANKED = {**random_rerank(7, 12, 70), REPORT: json_array(REPORT, {"splits": [1, 2]})}


def with_rows(draft: Draft) -> Draft:
    """Return the draft with two training rows stored in it."""
    labels = LabelRows(np.arange(3), np.array([0, 1], np.int32), draft.labels.n_names)
    stored_rows = kept_rows(TrainingSet(rows_of(draft.n_features), labels))
    trainer = TrainerInfo("label-tree", {"leaf_size": 100})
    return dataclasses.replace(draft, trainer=trainer, extra={**draft.extra, **stored_rows})


DRAFTS = [
    small_draft(n_labels=3, n_features=40, n_trees=1),
    small_draft(1, n_labels=25, arity=20, n_features=33, share=0.1, n_trees=3),
    small_draft(2, weights="bfloat16", n_labels=20, arity=17, n_features=1100, share=0.01),
    small_draft(4, weights="int8", n_labels=20, arity=17, n_features=100, share=0.05),
    small_draft(3, kind="decision-tree", n_labels=6, n_features=64),
    small_draft(
        6, kind="decision-tree", link="argmax", n_labels=9, n_features=40, arity=2, n_trees=4
    ),
    small_draft(
        7, kind="decision-tree", weights="bfloat16", n_labels=12, arity=4, n_trees=1, extra=RERANKED
    ),
    calibrated_draft(11, n_labels=20, n_features=40, n_trees=1),
    calibrated_draft(12, kind="decision-tree", n_labels=6, n_features=64, n_knots=2),
    small_draft(4, n_labels=1, n_features=1),
    small_draft(5, n_labels=30, n_features=200, arity=2, link="logistic"),
    softmax_draft(8, dim=33),
    softmax_draft(9, dim=17, weights="int8", n_places=3, n_turned=1),
    softmax_draft(10, dim=5, weights="bfloat16", n_places=2, n_turned=5, is_half=True),
    with_rows(small_draft(13, n_labels=6, n_features=40, n_trees=1)),
    GOLDEN["text-stop-words"],
    GOLDEN["text-clean-chars"],
    *[GOLDEN["combined"], full_draft(), full_draft()],
]
LEARNERS = {
    "plt": ("solver=sgd", "epochs=2", "leaf_size=2"),
    "huffman-tree": ("epochs=2", "dim=5", "optimiser=adagrad"),
    "lomtree": ("passes=2", "leaves=4", "swap_resistance=1", "memory_mb=1"),
}
"""Trainers whose versions store a state, and their parameters."""

LEARNER_ROUNDS, INFO_ROUNDS = 97, 31
"""After how many rounds a training is continued, which takes as long as 30 other rounds; and after
how many label info is opened.
"""

TEXTS = [
    "red wine and ab cd ef gh ij kl red blue",
    "blue red blue red (colour) café",
    "wine red wines",
    "",
]
NAMES = build_names(f"l{i}" for i in range(12))
INFO = build_label_info(
    [
        Subject(f"l{i}", str(i), {"en": f"name {i}"}, broader=(f"l{i // 2}",), deprecated=i == 3)
        for i in range(9)
    ]
)
N_FEATURES_SERVED_MAX = 1 << 20
"""Versions with more features are checked but not served: the size of a workspace grows with the
number of features, and limits of the service, which are not tested here, bound it.
"""


@contextlib.contextmanager
def refused_overflows() -> Iterator[None]:
    """Count it as refused if finite values that are larger than in any real rows overflow."""
    try:
        yield
    except ValueError as error:
        if "finite" not in str(error):
            raise
        raise Corrupt("rows", "values that can be learnt", str(error)) from error


def serve(model: Model, rng: np.random.Generator) -> None:
    """Open a version as servers do; predict for texts, a full row and random rows, in each way."""
    served = open_version(model)
    predictor = served.predictor
    predictor.warm_up()
    n = predictor.n_features
    if served.featurizer.kind not in ("raw", "named"):
        rows = served.featurizer.transform_texts(TEXTS)
        predictions = predictor.predict(rows, PredictOptions(top_r=5))
        for row, label in enumerate(predictions.labels[: len(TEXTS)].tolist()):
            predictor.explain(rows, row, label)
    if model.manifest.kind == COMBINED and (matcher := matcher_of(model)) is not None:
        for concept in range(matcher.n_concepts):
            matcher.explain(TEXTS[0], concept)
    training_rows = read_kept(model)
    if training_rows is not None:
        with refused_overflows():
            grow_on(model, training_rows, "from", Crew(1))
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
    """Write a version with right checksums, as a hostile writer would, and open it."""
    fs = QuickFileSystem()
    directory = root / "models" / "m" / "versions" / "1"
    directory.mkdir(parents=True)
    infos = write_arrays(fs, directory, arrays)
    write_manifest(fs, directory, dataclasses.replace(manifest, model="m", version=1, arrays=infos))
    return Store(root).open("m", 1)


class Learners:
    """Versions of learners after the first of two passes, and the rows for the second pass."""

    def __init__(self, root: Path) -> None:
        self.rows = write_lines(root / "rows.jsonl", documents(30, 1))
        store = Store(root / "store", fs=QuickFileSystem())
        self.versions: list[tuple[Manifest, dict[str, Any]]] = []
        for name, parameters in LEARNERS.items():
            request = TrainRequest(
                trainer=name, data=self.rows, parameters=parameters, keep_state=True, until=1
            )
            train_and_publish(store, name, request)
            model = store.open(name)
            self.versions.append((model.manifest, dict(model.arrays)))

    def go_on(self, manifest: Manifest, arrays: Mapping[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as root:
            through_files(Path(root), manifest, arrays)
            request = TrainRequest(trainer=manifest.trainer.name, data=self.rows, base="m@1")
            train_and_publish(Store(Path(root), fs=QuickFileSystem()), "next", request)

    def try_one(self, rng: random.Random) -> None:
        """Change the state of a learner, and continue its training."""
        manifest, arrays = rng.choice(self.versions)
        state = {name: array for name, array in arrays.items() if name.startswith(f"{STATE}/")}
        _, changed = mutated(rng, manifest, state)
        self.go_on(manifest, {**arrays, **changed})


def try_info(rng: random.Random) -> None:
    """Write label info with changed numbers and the right digest, and serve it."""
    parts = {name: getattr(INFO, name) for name in ("offsets", "utf8", "broader_ptr", "broader")}
    _, changed = mutated(rng, manifest_of(DRAFTS[0]), {**parts, "slots": INFO.keys.slots})
    keys = INFO.keys._replace(slots=changed.pop("slots"))
    other = INFO._replace(keys=keys, **changed)
    body = b"".join(map(bytes, label_info_pieces(other)))[HEAD_BYTES:]
    head = INFO.head._replace(sha256=hashlib.sha256(body).hexdigest())
    with tempfile.TemporaryDirectory() as root:
        file = Path(root) / "label_info"
        file.write_bytes(b"".join(map(bytes, label_info_pieces(other._replace(head=head)))))
        facts = LiveLabelInfo("m", NAMES)
        facts.follow(map_label_info(QuickFileSystem(), file, "label_info"))
    assert facts.current is not None
    for label in range(NAMES.n_names):
        facts.current.names(label)
        facts.current.broader(label)
        facts.label_of_uri(f"l{label}")


def try_version(
    rng: random.Random, numbers: np.random.Generator, sources: list[Any], *, files: bool
) -> None:
    """Change a version, and serve it."""
    manifest, arrays = mutated(rng, *rng.choice(sources))
    if files:
        with tempfile.TemporaryDirectory() as root:
            model = through_files(Path(root), manifest, arrays)
    else:
        check_version(manifest, arrays)
        model = Model(manifest, *assemble(manifest, arrays), arrays)
        if any(name.startswith("rows/") for name in arrays):
            model = unpack(pack(model))  # makes the arrays read-only, as those of a store
    if manifest.n_features <= N_FEATURES_SERVED_MAX:
        serve(model, numbers)


def main(rounds: int, seed: int, home: Path) -> dict[str, Any]:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    learners = Learners(home)
    for version in learners.versions:
        learners.go_on(*version)
    sources = [(manifest_of(draft), draft.arrays()) for draft in DRAFTS]
    for manifest, arrays in sources:  # compile all kernels before times are measured
        with tempfile.TemporaryDirectory() as root:
            model = through_files(Path(root), manifest, arrays)
        serve(model, numbers)
    counts = {"refused": 0, "served": 0}
    slowest = 0.0
    for number in range(rounds):
        started = time.process_time()  # not the wall clock: other processes may use the machine
        try:
            if number % LEARNER_ROUNDS == 0:
                learners.try_one(rng)
            elif number % INFO_ROUNDS == 0:
                try_info(rng)
            else:
                try_version(rng, numbers, sources, files=number % 20 == 0)
            counts["served"] += 1
        except (Corrupt, BadParameter):  # BadParameter: the state names another format or trainer
            counts["refused"] += 1
        slowest = max(slowest, time.process_time() - started)
    return {**counts, "slowest_seconds": round(slowest, 3)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), Path(directory))))
