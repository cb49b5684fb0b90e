"""Thresholds of models whose scores are shares of one, several labels a row: tuned, and by feedback alone."""

import json
from pathlib import Path

import numpy as np
import pytest

from model_store.names import find_name
from model_store.store import Store
from model_store.version import Model
from service.db.engine import Database, default_url
from service.inference.predictors import make_predictor
from service.serving.opening import open_version
from service.thresholds.live.threshold_counters import instances_of
from service.thresholds.methods.ofo import Start, start_for
from service.workflows.labelled import no_progress, read_labelled
from service.workflows.train import TrainRequest, train_and_publish
from service.workflows.tune import TuneRequest, keep, learn, tune

N_LABELS, N_WORDS, A_ROW = 30, 6, 3
ALWAYS = "always"


def write(path: Path, n_rows: int, seed: int, *, always: float = 0.0) -> Path:
    """Rows of some labels, three words of each; `always` is true in that share of the rows, for no reason."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n_rows):
        labels = rng.choice(N_LABELS, A_ROW, replace=False)
        words = [f"w{label}x{rng.integers(N_WORDS)}" for label in labels for _ in range(3)]
        names = [f"l{label}" for label in labels] + [ALWAYS] * (rng.random() < always)
        lines.append(json.dumps({"text": " ".join(words), "labels": names}))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    at = tmp_path_factory.mktemp("shares")
    sizes = {"train": 3000, "valid": 1000, "test": 1000}
    return {part: write(at / f"{part}.jsonl", n, seed) for seed, (part, n) in enumerate(sizes.items())}


def trained(trainer: str, data: Path, at: Path) -> Model:
    store = Store(at / trainer)
    train_and_publish(store, "shares", TrainRequest(trainer, data, None, [], seed=1))
    return store.open("shares")


@pytest.mark.parametrize("trainer", ["huffman-tree", "learned-tree"])
def test_ofo_finds_thresholds_among_shares_as_the_fixed_grid_does(trainer, files, tmp_path):
    model = trained(trainer, files["train"], tmp_path)
    request = TuneRequest(["ofo", "fta"], files["valid"], files["test"])
    ofo, fta = tune(model, request, no_progress)
    assert ofo.tuned.start.scale == pytest.approx(A_ROW)
    assert ofo.test is not None and fta.test is not None
    assert ofo.test.macro_f >= max(fta.test.macro_f - 1, 95)
    assert ofo.test.micro_f >= fta.test.micro_f - 1
    # what OFO itself ends with, whether it was kept or not
    labelled = read_labelled(model, files["valid"], no_progress)
    start = start_for("softmax", model.arrays, model.manifest.data.rows)
    counts, n_rows = model.arrays["labels/counts"], model.manifest.data.rows
    counters, thresholds = learn(
        make_predictor(model), labelled.rows, labelled.labels, start, counts, n_rows, no_progress
    )
    f = 2 * counters.hits / counters.marks
    assert f.mean() > 0.85
    assert (thresholds < 1 / A_ROW).all()


def test_a_label_of_nearly_every_row_is_predicted_by_feedback_alone(tmp_path):
    model = trained("huffman-tree", write(tmp_path / "train.jsonl", 3000, 3, always=0.95), tmp_path)
    labelled = read_labelled(model, write(tmp_path / "new.jsonl", 200, 4, always=0.95), no_progress)
    live = open_version(model).thresholds
    label = find_name(model.labels, ALWAYS)
    moving = live._moving(live.start_state())
    moving.count(instances_of(labelled.rows, labelled.labels), np.arange(200))
    n_true = int((labelled.labels.indices == label).sum())
    counters = moving.snapshot().counters
    assert n_true > 180
    assert counters.hits[label] > 0.9 * n_true
    assert counters.marks[label] <= n_true + 200


def test_a_model_of_one_label_a_row_and_one_that_nobody_counted_are_read_as_they_are():
    counts = {"labels/counts": np.array([4, 6])}
    assert start_for("softmax", counts, 10) == Start()
    assert start_for("softmax", counts, 20) == Start()
    assert start_for("softmax", counts, 5) == Start(scale=2.0)
    assert start_for("softmax", {}, 5) == Start()
    assert start_for("logistic", counts, 5) == Start()


def test_scores_and_probabilities_are_each_others_image():
    read = Start(power=0.5, scale=3.0)
    scores = np.array([0.01, 0.2, 1 / 3], np.float32)
    np.testing.assert_allclose(read.score_of(read.probability_of(scores)), scores, rtol=1e-5)
    assert read.probability_of(np.array([0.9], np.float32)).tolist() == [1.0]


def test_a_method_below_one_threshold_for_all_labels_gives_way_and_says_so(files, tmp_path):
    model = trained("huffman-tree", files["train"], tmp_path)
    stuck = Start(2e6, 1e8)  # its thresholds stay at 0.02, whatever it sees
    outcomes = tune(model, TuneRequest(["ofo", "fta-one"], files["valid"], start=stuck), no_progress)
    database = Database(default_url(tmp_path))
    request = TuneRequest(["ofo"], files["valid"], start=stuck)
    report = keep(model, database, tune(model, request, no_progress))
    database.close()
    kept, one = outcomes
    assert one.rejected is None
    assert kept.rejected is not None
    assert kept.rejected[0] == "ofo"
    assert kept.rejected[1] < one.validation.macro_f == kept.validation.macro_f
    assert kept.tuned.thresholds.tobytes() == one.tuned.thresholds.tobytes()
    assert (report["method"], report["instead_of"]) == ("fta-one", "ofo")
    assert report["instead_of_macro_f"] < report["validation_macro_f"]
    assert report["note"].startswith("ofo has less macro-F on the validation rows than one threshold")
