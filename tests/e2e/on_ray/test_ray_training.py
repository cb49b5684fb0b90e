"""Trainings on a cluster of two nodes of one processor each: the same bits, whatever dies."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Run
from tests.contract.test_every_trainer import items_of
from tests.e2e.on_ray.conftest import add_node
from tests.helpers.datasets_helpers import texts_alone
from tests.helpers.jobs_helpers import TRAINING, Desk, settings_for, working, write_data
from tests.helpers.servers import wait_for
from tests.helpers.steps import Dying, Parts, Scaled, Sleeping
from tests.oracles.problems import to_labels, to_rows

from xylem.base.errors import BadData, BadInput, BadParameter
from xylem.base.executors.local import AHEAD, Crew
from xylem.base.executors.steps import digest_of
from xylem.engine.features.parameters import parameters_of
from xylem.engine.features.registry import fit_featurizer
from xylem.extras.ray.cluster import connect
from xylem.extras.ray.crew import RayCrew
from xylem.trainers import Trained, blocks, fit, parse_parameters
from xylem.trainers.registry import TRAINERS
from xylem.trainers.source import MemorySource, Tools, TrainingSet
from xylem_store.store import Store

pytest.importorskip("ray")

SPREADING = [name for name, spec in TRAINERS.items() if spec.alone(spec.parameters()) is None]
MATRIX = np.random.default_rng(0).random((40, 5)).astype(np.float32)


@pytest.fixture
def crew(cluster: Any) -> Iterator[RayCrew]:
    with connect(cluster.address) as module:
        yield RayCrew(1, module, AHEAD)


def problem(n_rows: int = 600, n_labels: int = 150) -> MemorySource:
    """Rows whose features tell their labels, more or less."""
    rng = np.random.default_rng(1)
    y = rng.random((n_rows, n_labels)) < 2 / n_labels
    x = (rng.random((n_rows, 120)) < 0.05) + y @ (rng.random((n_labels, 120)) < 0.05)
    return MemorySource(TrainingSet(to_rows(x.astype(np.float64)), to_labels(y)))


def arrays_of(trained: Trained) -> dict[str, bytes]:
    found = {**trained.ensemble._asdict(), **trained.extra}
    return {name: np.asarray(array).tobytes() for name, array in found.items()}


def version_bytes(store: Path) -> dict[str, bytes]:
    arrays = Store(store).open("m", 1).arrays
    return {
        name: array.tobytes() for name, array in arrays.items() if not name.startswith("origin/")
    }


@pytest.mark.parametrize("name", SPREADING)
def test_every_trainer_of_steps_makes_the_same_bits_as_threads(crew: RayCrew, name: str) -> None:
    parameters = parse_parameters(name, items_of(name, leaf_size=10, arity=4))
    here, there = (
        fit(name, parameters, problem(), Tools(1)),
        fit(name, parameters, problem(), Tools(1, crew)),
    )
    assert (arrays_of(there), there.report) == (arrays_of(here), here.report)


@pytest.mark.parametrize("name", SPREADING)
def test_every_trainer_of_steps_weighs_rows(crew: RayCrew, name: str) -> None:
    parameters = parse_parameters(name, items_of(name, leaf_size=10, arity=4))
    data = problem().data
    of_labels = np.random.default_rng(3).uniform(0.2, 1, len(data.labels.indices))
    weights = np.random.default_rng(2).uniform(0.5, 3, data.n_rows).astype(np.float32)
    weighed = data._replace(labels=data.labels.weighed(weights, of_labels.astype(np.float32)))
    plain, here, there = (
        arrays_of(fit(name, parameters, MemorySource(rows), tools))
        for rows, tools in ((data, Tools(1)), (weighed, Tools(1)), (weighed, Tools(1, crew)))
    )
    assert there == here != plain


@pytest.mark.parametrize("in_parts", [False, True])
def test_weights_reach_the_nodes(
    crew: RayCrew, in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = blocks._plan_nodes
    monkeypatch.setattr(
        blocks, "_plan_nodes", lambda b, shape: planned(b._replace(memory_bytes=20_000), shape)
    )
    data = problem().data
    random = np.random.default_rng(2)
    of_labels = random.random(len(data.labels.indices)).astype(np.float32) + 0.1
    weights = random.integers(1, 4, data.n_rows).astype(np.float32)
    data = data._replace(labels=data.labels.weighed(weights, of_labels))
    source = Parts(data, 5) if in_parts else MemorySource(data)
    parameters = parse_parameters("label-tree", ["leaf_size=10", "arity=4"])
    here, there = (
        arrays_of(fit("label-tree", parameters, source, tools))
        for tools in (Tools(1), Tools(1, crew))
    )
    assert there == here
    texts = texts_alone(TEXTS)
    texts = replace(texts, labels=texts.labels.weighed(np.full(len(TEXTS), 1.5, np.float32)))
    parameters = parameters_of({"kind": "words+chars"})
    featurizers = (fit_featurizer(texts, parameters, *on)[0] for on in ((), (crew,)))
    digests = {digest_of(featurizer.arrays()) for featurizer in featurizers}
    assert len(digests) == 1


@contextmanager
def killing_a_node(cluster: Any, third: int = 0) -> Iterator[Callable[[str, int, int], None]]:
    """Yield what kills the node beside the head when so many thirds of the
    classifiers are solved.
    """
    killed = []

    def on_progress(stage: str, done: int, total: int) -> None:
        if not killed and stage == "classifiers" and done >= max(1, third * total // 3):
            (node,) = cluster.worker_nodes
            killed.append(node)
            cluster.remove_node(node, allow_graceful=False)

    try:
        yield on_progress
    finally:
        if killed:
            add_node(cluster)
    assert killed


EACH_THIRD = [
    pytest.param(third, seed, marks=pytest.mark.soak) for third in range(3) for seed in range(10)
]


@pytest.mark.parametrize(("third", "seed"), [(1, 1), *EACH_THIRD])
def test_a_node_that_is_killed_costs_no_bit(
    cluster: Any, crew: RayCrew, third: int, seed: int
) -> None:
    parameters = parse_parameters("label-tree", ["leaf_size=10", "arity=4", "eps=0.01"])
    source = problem(1500, 600)
    expected = arrays_of(fit("label-tree", parameters, source, Tools(seed)))
    with killing_a_node(cluster, third) as on_progress:
        found = fit("label-tree", parameters, source, Tools(seed, crew, on_progress))
    assert arrays_of(found) == expected


def test_a_step_whose_process_dies_is_run_again(
    crew: RayCrew, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found: dict[Any, Any] = {}
    crew.steps(Dying(), [str(tmp_path / "told")], found.__setitem__)
    assert list(found.values()) == [1]
    with pytest.raises(BadData, match="row 7: expected another, found this one"):
        crew.steps(Scaled(MATRIX, 2.0, bad=7), range(40), found.__setitem__)
    said = capfd.readouterr().err
    assert "step_failed" in said and "tests/helpers/steps.py" in said and "about to refuse" in said
    crew.steps(Scaled(MATRIX, 2.0), range(40), found.__setitem__)
    expected: dict[Any, Any] = {}
    Crew(1).steps(Scaled(MATRIX, 2.0), range(40), expected.__setitem__)
    for row in range(40):
        assert found[row][:2] == expected[row][:2], row
        assert np.array_equal(found[row].arrays[0], expected[row].arrays[0]), row


TEXTS = [" ".join(f"word{(7 * i + k * k) % 97}s" for k in range(12)) for i in range(9000)]


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "tfidf", "stem": "en", "stop_words": "en"},
        {"kind": "words+chars"},
        {"kind": "hashing"},
    ],
)
def test_features_are_made_by_nodes_to_the_same_bits(crew: RayCrew, given: dict[str, Any]) -> None:
    here, rows = fit_featurizer(texts_alone(TEXTS), parameters_of(given))
    there, same = fit_featurizer(texts_alone(TEXTS), parameters_of(given), crew)
    assert digest_of(there.arrays(), same) == digest_of(here.arrays(), rows) and len(rows.indices)


def test_results_come_in_order_though_a_process_dies(crew: RayCrew, tmp_path: Path) -> None:
    items = [0.3, 0.0, 0.1, 0.0, 0.0, 0.0]
    assert list(crew.mapped(Sleeping(), items)) == items
    assert list(crew.mapped(Dying(), [str(tmp_path / "told")])) == [1]
    with pytest.raises(BadData, match="row 2: expected another"):
        list(crew.mapped(Scaled(MATRIX, 2.0, bad=2), range(40)))


def test_an_interrupt_ends_what_runs_on_the_nodes(crew: RayCrew) -> None:
    def done(item: float, result: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crew.steps(Sleeping(), [0.0, 600.0, 600.0, 600.0], done)
    found: list[float] = []
    crew.steps(Sleeping(), [0.0, 0.0, 0.0], lambda item, result: found.append(result))
    assert found == [0.0] * 3


def test_a_node_of_other_versions_is_refused(
    crew: RayCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np, "__version__", "1.0")
    says = r"expected numpy 1\.0 on node .*, as here, found 2"
    with pytest.raises(BadParameter, match=says), connect("auto"):
        pass


@pytest.mark.parametrize(
    ("trainer", "more"), [("fastxml", []), ("label-tree", ["--stream", "-p", "memory_mib=1"])]
)
def test_a_killed_command_publishes_nothing_and_is_resumed(
    cluster: Any, tmp_path: Path, run_here: Run, trainer: str, more: list[str]
) -> None:
    data = write_data(tmp_path / "train.jsonl", 3000)
    options = ["--data", data, "--model", "m", "-p", "trees=6", "--json", *more]
    assert run_here("train", trainer, *options, store=tmp_path / "here").returncode == 0
    options += ["--ray", cluster.address]
    store = tmp_path / "there"
    line = [
        "-c",
        "from xylem.command import main; main()",
        "train",
        trainer,
        *options,
        "--store",
        store,
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.Popen([sys.executable, *map(str, line)], env=environment)
    wait_for(lambda: any(file.stat().st_size for file in store.glob("steps/m/*")))
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL and not list(store.glob("models/m/versions/*"))
    answer = run_here("train", trainer, *options, "--resume", store=store)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout.splitlines()[-1])["version"] == 1
    assert version_bytes(store) == version_bytes(tmp_path / "here") and version_bytes(store)
    assert not (store / "steps" / "m").exists()


def test_a_job_is_run_by_the_cluster_where_there_is_one(cluster: Any, tmp_path: Path) -> None:
    request = {**TRAINING, "executor": "ray"}
    settings = settings_for(tmp_path, job_memory_bytes_max=2 << 30)
    with pytest.raises(
        BadInput, match="expected local, as XYLEM_RAY_ADDRESS is not set, found ray"
    ):
        Desk(settings).jobs.submit("training", request)
    desk = Desk(settings.model_copy(update={"ray_address": cluster.address}))
    with pytest.raises(BadInput, match="found lomtree, which learns"):
        desk.jobs.submit("training", {**request, "trainer": "lomtree", "parameters": {}})
    job_id = desk.jobs.submit("training", request).id
    with working(desk.settings, desk.database):
        wait_for(lambda: desk.jobs.get(job_id).has_ended)
    job = desk.jobs.get(job_id)
    assert (job.state, job.version) == ("succeeded", 1), (job, desk.jobs.log_text(job_id))
    assert Store(desk.settings.store).manifest("m", 1).data.rows == 200
    desk.database.close()
