"""Tuning a version on a labelled file: each method, what it
reports, what it refuses; and the command.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Command, answer
from tests.contract.test_every_trainer import write_file
from tests.helpers.datasets_helpers import refused, write_lines
from tests.helpers.measured import learnt
from tests.helpers.small_models import small_draft
from tests.oracles.metrics import f_measures, ofo_thresholds
from tests.oracles.problems import dense_labels

from xylem.base import no_progress
from xylem.base.db.of_store import ready_database
from xylem.base.errors import BadData, BadParameter
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.predictor import PredictOptions
from xylem.evaluation import Labelled
from xylem.thresholds.methods.ofo import Start, lower_bounds
from xylem.thresholds.methods.starts import C_GRID
from xylem.thresholds.store.codec import METHODS
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.thresholds.tuning import AUTO, KAPPA, KAPPA_MAX, KAPPA_MIN, TuneRequest, facts_of
from xylem.workflows.labelled import read_labelled
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem.workflows.tuning import tune
from xylem_store.store import Store
from xylem_store.version import Model

N_ROWS, K, D = 120, 11, 70
RAW = {"kind": "raw", "norm": "none"}
SMALL = {"n_trees": 2, "features": RAW}


def scores_of(model: Model, labelled: Labelled) -> np.ndarray:
    """The score of every label for every row, float32[n, K]."""
    options = PredictOptions(top_r=K, threshold=0.0)
    found = make_predictor(model).predict(labelled.rows, options)
    scores = np.zeros((labelled.rows.n_rows, K), np.float32)
    scores[np.repeat(np.arange(len(scores)), np.diff(found.ptr)), found.labels] = found.scores
    return scores


@pytest.fixture(scope="module", params=[("label-tree", "hinge2"), ("decision-tree", "argmax")])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    found = Store(tmp_path_factory.mktemp("store"))
    kind, link = request.param
    found.publish("small", small_draft(3, kind=kind, link=link, **SMALL))
    return found


@pytest.fixture(scope="module")
def model(store: Store) -> Model:
    return store.open("small", "latest")


@pytest.fixture(scope="module")
def file(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows whose labels are drawn with the probabilities that the model gives them."""
    rng = np.random.default_rng(0)
    x = np.zeros((N_ROWS, D))
    for row in x:
        features = rng.choice(D, 12, replace=False)
        row[features] = rng.standard_normal(12)
    path = write_file(tmp_path_factory.mktemp("rows") / "valid.txt", x, np.zeros((N_ROWS, K)))
    scores = scores_of(model, read_labelled(model, path, no_progress))
    drawn = rng.random(scores.shape) < scores
    drawn[:, 5] = False
    return write_file(path, x, drawn)


@pytest.fixture(scope="module")
def labelled(model: Model, file: Path) -> Labelled:
    return read_labelled(model, file, no_progress)


@pytest.mark.parametrize("empty", ["one", "zero"])
def test_every_method_reports_the_f_measures_of_its_decisions(
    model: Any, file: Path, labelled: Any, empty: Any
) -> None:
    outcomes = tune(model, TuneRequest(METHODS, file, file, empty), no_progress)
    assert [outcome.tuned.method for outcome in outcomes] == list(METHODS)
    scores, truth = scores_of(model, labelled), dense_labels(labelled.labels)
    true = [np.flatnonzero(row).tolist() for row in truth]
    for outcome in outcomes:
        thresholds = outcome.tuned.thresholds
        assert thresholds.shape == (K,)
        assert np.all((thresholds > 0) & (thresholds <= 1))
        predicted = [np.flatnonzero(row >= thresholds).tolist() for row in scores]
        expected = f_measures(predicted, true, [0] * len(true), K, 1.0 if empty == "one" else 0.0)
        np.testing.assert_allclose(outcome.validation[:3], expected)
        assert outcome.validation == outcome.test
        assert outcome.validation.empty_label_convention == outcome.tuned.convention == empty
        hits = (scores >= thresholds) & truth
        assert (
            outcome.tuned.method == "ofo"
            or outcome.tuned.counters.hits.tolist() == hits.sum(0).tolist()
        )
    by_method = {outcome.tuned.method: outcome.validation.macro_f for outcome in outcomes}
    assert by_method["sto"] >= max(by_method.values()) > 0
    assert len(set(outcomes[1].tuned.thresholds.tolist())) > 1


def test_ofo_over_a_file_is_the_papers_loop(model: Any, labelled: Any) -> None:
    label_counts, start = model.arrays["labels/counts"], Start(1.0, 3.0, 0.7)
    bounds = lower_bounds(label_counts, 100, K)
    predictor, rows, labels = make_predictor(model), labelled.rows, labelled.labels
    counters, thresholds = learnt(predictor, rows, labels, start, label_counts, 100)
    scores = scores_of(model, labelled)
    expected, hits, marks = ofo_thresholds(scores, dense_labels(labels), *start, bounds)
    np.testing.assert_allclose(thresholds, expected, rtol=2e-7)
    assert (counters.hits.tolist(), counters.marks.tolist()) == (hits.tolist(), marks.tolist())


def test_ofo_goes_on_from_what_rows_before_have_added_up_to(model: Any, labelled: Any) -> None:
    predictor, labels, start = make_predictor(model), labelled.labels, Start(1.0, 3.0, 0.7)
    counted = model.arrays["labels/counts"], model.manifest.data.rows
    whole = learnt(predictor, labelled.rows, labels, start, *counted)
    counters = None
    for first, last in ((0, 1), (1, 37), (37, N_ROWS)):
        rows, some = labelled.rows.cut(first, last), labels.cut(first, last)
        counters, thresholds = learnt(predictor, rows, some, start, *counted, counters)
    np.testing.assert_array_equal(counters, whole[0])
    assert thresholds.tobytes() == whole[1].tobytes()


@pytest.mark.parametrize("objective", ["micro", "instance"])
def test_a_common_threshold_reports_f_of_its_decisions(
    model: Any, file: Path, labelled: Any, objective: Any
) -> None:
    request = TuneRequest(("ofo",), file, file, objective=objective)
    (outcome,) = tune(model, request, no_progress)
    threshold, limit = outcome.tuned.thresholds[0], outcome.tuned.aim.limit
    true = [np.flatnonzero(row).tolist() for row in dense_labels(labelled.labels)]
    predicted = [
        [label for label in np.argsort(-row, kind="stable")[:limit] if row[label] >= threshold]
        for row in scores_of(model, labelled)
    ]
    expected = f_measures(predicted, true, [0] * len(true), K, 0.0)
    np.testing.assert_allclose(outcome.validation[:3], expected)
    assert outcome.validation == outcome.test
    facts = facts_of(outcome)
    assert [facts[key] for key in ("objective", "limit", "threshold")] == [
        objective,
        limit,
        threshold,
    ]
    if objective == "instance":  # of the grid it is the best on these rows
        assert outcome.tuned.aim.instance_f() == pytest.approx(expected[2] / 100)


def test_threads_and_start_values_that_are_given(model: Any, file: Path) -> None:
    requests = (
        TuneRequest(METHODS, file, start=Start(2, 9), threads=threads) for threads in (1, 3)
    )
    one, two = (tune(model, request, no_progress) for request in requests)
    for a, b in zip(one, two, strict=True):
        assert a.tuned.thresholds.tobytes() == b.tuned.thresholds.tobytes()
    assert one[0].tuned.start[:2] == (2, 9)
    assert one[0].tuned.start.power == one[1].tuned.start.power


def test_few_estimates_raise_thresholds_and_tuning_goes_on(model: Any, file: Path) -> None:
    requests = (TuneRequest(("fta", "sto"), file, estimates_max=most) for most in (1 << 20, 200))
    roomy, tight = (tune(model, request, no_progress) for request in requests)
    for some, few in zip(roomy, tight, strict=True):
        assert few.tuned.thresholds.min() > some.tuned.thresholds.min()
        assert few.tuned.counters.marks.sum() < some.tuned.counters.marks.sum()


def test_a_higher_kappa_leaves_no_lower_threshold(model: Any, file: Path) -> None:
    for outcome in tune(
        model, TuneRequest(("fta", "fta-one", "sto"), file, kappa=0.4), no_progress
    ):
        assert np.all(outcome.tuned.thresholds**outcome.tuned.start.power >= 0.4 * (1 - 1e-5))


@pytest.mark.parametrize("method", METHODS)
def test_a_chosen_kappa_is_told_and_then_as_if_it_had_been_given(
    model: Any, file: Path, method: str, tmp_path: Path
) -> None:
    chosen = tune(model, TuneRequest((method,), file, kappa=AUTO), no_progress)[0]
    assert chosen.kappa in [1 / c for c in C_GRID]
    given = tune(model, TuneRequest((method,), file, kappa=chosen.kappa), no_progress)[0]
    assert given.kappa is None
    assert (given.tuned.start, given.validation) == (chosen.tuned.start, chosen.validation)
    np.testing.assert_array_equal(given.tuned.thresholds, chosen.tuned.thresholds)
    np.testing.assert_array_equal(given.tuned.counters, chosen.tuned.counters)
    one_row = tmp_path / "one.txt"
    one_row.write_text(f"1 {D} {K}\n2 1:1\n")
    assert (
        tune(model, TuneRequest((method,), one_row, kappa=AUTO), no_progress)[0].kappa is not None
    )


def test_a_version_without_counts_is_tuned_from_the_least_bound(store: Any, file: Path) -> None:
    like = store.manifest("small", 1)
    store.publish("foreign", small_draft(3, kind=like.kind, link=like.link, extra={}, **SMALL))
    foreign = store.open("foreign", "latest")
    assert "labels/counts" not in foreign.arrays
    assert len(tune(foreign, TuneRequest(METHODS, file), no_progress)) == len(METHODS)


def test_values_out_of_range_are_refused_and_limits_are_not() -> None:
    for change, message in (
        ({"methods": ("best",)}, "method: expected ofo, fta, fta-one, sto or all, found 'best'"),
        ({"methods": ()}, "method: expected some of ofo, fta, fta-one, sto, found none"),
        ({"empty": "two"}, "expected zero or one, found 'two'"),
        ({"kappa": KAPPA_MIN / 2}, "kappa: expected a number from 0.0001 to 0.5, found 5e-05"),
        ({"kappa": KAPPA_MAX * 1.01}, "kappa: expected a number from"),
        ({"kappa": float("nan")}, "kappa: expected a number from .* found nan"),
        ({"start": Start(3, 4)}, "start values of OFO: expected 0 < a and 2 a <= b"),
    ):
        with refused(BadParameter, message):
            TuneRequest(**{"methods": ("ofo",), "valid": Path("none.txt"), **change})
    for kappa in (KAPPA_MIN, KAPPA, KAPPA_MAX):
        assert TuneRequest(("ofo",), Path("none.txt"), kappa=kappa).kappa == kappa


def test_files_without_rows_or_labels_are_refused(model: Any, tmp_path: Path) -> None:
    for name, content, fault in (
        ("rows.txt", "", r"rows\.txt"),
        (
            "rows.txt",
            f"1 {D} {K}\n 1:1\n",
            r"rows\.txt: expected rows with labels of the model, found none",
        ),
        (
            "a.jsonl",
            '{"text": "a", "labels": []}\n',
            r"a\.jsonl: expected ids and values, which this",
        ),
    ):
        (tmp_path / name).write_text(content)
        with refused(BadData, fault):
            tune(model, TuneRequest(("ofo",), tmp_path / name), no_progress)


def test_labels_that_the_model_lacks_count_as_missed(tmp_path: Path) -> None:
    colours = ("red", "green", "blue", "white")
    rows = [
        {"text": f"{colours[i % 4]} thing{i % 7}", "labels": [colours[i % 4]]} for i in range(80)
    ]
    known_file = write_lines(tmp_path / "known.jsonl", rows)
    more = [{**row, "labels": [*row["labels"], "unheard-of"]} for row in rows]
    unknown_file = write_lines(tmp_path / "unknown.jsonl", more)
    store = Store(tmp_path)
    train_and_publish(store, "colours", TrainRequest(trainer="label-tree", data=known_file))
    model = store.open("colours")
    ((known,), (unknown,)) = (
        tune(model, TuneRequest(("ofo",), file), no_progress) for file in (known_file, unknown_file)
    )
    assert unknown.validation.macro_f == pytest.approx(known.validation.macro_f * 4 / 5)
    assert unknown.validation.micro_f < known.validation.micro_f
    assert unknown.validation.instance_f < known.validation.instance_f
    assert known.tuned.thresholds.tobytes() == unknown.tuned.thresholds.tobytes()


@pytest.fixture
def tuned_by(store: Store, file: Path, command: Command) -> Callable[..., Any]:
    """What the command `thresholds` tells that tunes `small` on the file."""
    return lambda *options: answer(
        command("thresholds", "small", "--data", file, *options, "--json", store=store.root)
    )


def test_the_command_keeps_the_first_method_and_evaluate_uses_it(
    store: Any, file: Path, command: Any, tuned_by: Any
) -> Any:
    def evaluated(*options: str) -> Any:
        status, out, err = command(
            "evaluate", "small", "--data", file, *options, "--json", store=store.root
        )
        # one of the stores has a label that no training row had
        assert status == 0 and err.count("\n") == err.count("(labels-never-answered)\n"), err
        return json.loads(out.splitlines()[-1])

    assert evaluated()["threshold"] == 0.5
    kept = tuned_by("--method", "fta", "--method", "ofo")
    assert (kept["method"], kept["labels"], kept["epoch"] > 0) == ("fta", K, True)
    assert [method["method"] for method in kept["methods"]] == ["fta", "ofo"]
    assert {"validation_macro_f", "validation_micro_f", "validation_instance_f"} <= kept.keys()
    assert "test_macro_f" not in kept
    after = evaluated()
    assert (after["threshold"], after["macro_f"]) == ("tuned", kept["validation_macro_f"])
    assert after["empty_label_convention"] == "zero"
    assert evaluated("--empty-labels", "one")["empty_label_convention"] == "one"


def test_the_command_keeps_a_candidate_and_switches_it_on(
    file: Path, tmp_path: Path, command: Any
) -> None:
    store = Store(tmp_path / "store")
    store.publish("small", small_draft(3, **SMALL))
    thresholds = partial(command, "thresholds", "small", store=store.root)
    tune_by = ("--data", file, "--method")
    assert thresholds(*tune_by, "fta", "--shadow")[0] == 2
    assert thresholds(*tune_by, "ofo", "--json")[0] == 0
    found = answer(thresholds(*tune_by, "fta", "--shadow", "--json"))
    assert (found["epoch"], found["shadow"], found["method"]) == (2, True, "fta")
    assert answer(thresholds("--switch", "--json")) == {"model": "small", "version": 1, "epoch": 3}
    with ready_database(store.root) as database:
        assert ThresholdDatabase(database).load("small", 1).method == "fta"
    assert thresholds("--switch")[0] == 2
    status, out, _ = thresholds(*tune_by, "sto", "--shadow")
    assert (status, "candidate" in out) == (0, True)
    assert f"databasesqlite:///{store.root}/xylem.db" in re.sub(
        r"[\s│]", "", out
    )  # a long one is folded
    status, out, _ = thresholds("--drop")
    assert (status, "dropped" in out) == (0, True)
    beside = (
        ("--data", file),
        ("--test", file),
        ("--kappa", "0.1"),
        ("--start", "1,4"),
        ("--shadow",),
    )
    for arguments in (("--switch", "--drop"), *(("--switch", *more) for more in beside), ()):
        status, _, err = thresholds(*arguments)
        assert (status, "--switch, --drop or --reset" in err) == (2, True)
    for given in ((), ("--method", "ofo")):
        status, _, said = thresholds(*given)
        assert (status, "expected --data FILE to tune on" in said) == (2, True)


def test_the_command_tunes_by_ofo_where_no_method_is_named(tuned_by: Any) -> None:
    found = tuned_by()
    assert (found["method"], [one["method"] for one in found["methods"]]) == ("ofo", ["ofo"])
    assert tuned_by("--method", "ofo") == {**found, "epoch": found["epoch"] + 1}


def test_the_command_says_the_kappa_that_it_chose(
    store: Any, file: Path, command: Any, tuned_by: Any
) -> None:
    chosen = tuned_by("--method", "fta", "--kappa", "auto")
    given = ("--data", file, "--method", "fta", "--kappa", "auto")
    status, out, _ = command("thresholds", "small", *given, store=store.root)
    assert (status, "kappa" in out) == (0, True)
    fixed = tuned_by("--method", "fta", "--kappa", chosen["kappa"])
    assert "kappa" not in fixed and fixed["validation_macro_f"] == chosen["validation_macro_f"]


def test_the_command_shows_all_methods_with_a_test_file(
    store: Any, file: Path, command: Any
) -> None:
    given = ("--data", file, "--test", file, "--method", "all")
    status, out, _ = command("thresholds", "small", *given, store=store.root)
    assert status == 0 and all(word in out for word in (*METHODS, "validation", "test"))


def test_the_command_refuses_in_one_line(store: Any, file: Path, command: Any) -> None:
    for arguments, message in (
        (("--method", "best"), "method: expected ofo"),
        (("--kappa", "best"), "--kappa: expected a number or auto, found 'best'"),
        (("--method", "ofo", "--start", "1"), "--start: expected two numbers A,B, found '1'"),
        (("--method", "ofo", "--start", "2,3"), "expected 0 < a and 2 a <= b"),
    ):
        status, _, said = command(
            "thresholds", "small", "--data", file, *arguments, store=store.root
        )
        assert (status, len(said.splitlines()), message in said) == (2, 1, True), said


def test_predict_at_tuned_thresholds(tmp_path: Path, file: Path, command: Any) -> None:
    Store(tmp_path / "store").publish("small", small_draft(3, **SMALL))
    lines = write_lines(
        tmp_path / "rows.jsonl", [{"indices": [1, 5, 9], "values": [1.0, 0.5, -1.0]}]
    )
    predict = partial(
        command, "predict", "small", "--data", lines, "--threshold", "tuned", "--top-r", K
    )
    status, _, err = predict()
    assert (status, "expected tuned thresholds, found none" in err) == (2, True)
    assert command("thresholds", "small", "--data", file, "--method", "fta", "--json")[0] == 0
    assert predict()[0] == 0


def test_a_label_of_every_row_is_predicted_after_reranking_too(
    tmp_path: Path, command: Any
) -> None:
    """Its score is far below the least threshold that a probability could have."""
    rows = tmp_path / "rows.svm"
    rows.write_text("".join(f"{i % 5},5 {i % 5}:2 {i % 7 + 5}:1\n" for i in range(120)))
    answer(
        command("train", "pfastrexml", "--model", "m", "-p", "trees=3", "--data", rows, "--json")
    )
    tuned = answer(command("thresholds", "m", "--method", "all", "--data", rows, "--json"))
    for found in tuned["methods"]:
        assert found["validation_macro_f"] > 95, found
