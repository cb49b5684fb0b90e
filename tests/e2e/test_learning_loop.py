"""The whole loop: a label is added, predictions are corrected, a schedule trains on rows and
corrections, the gate decides.
"""

import json
import random
import threading
from pathlib import Path
from typing import Any

from tests.conftest import Command
from tests.helpers.jobs_helpers import N_LABELS, write_data
from tests.helpers.servers import ServerProcess, wait_for

import xylem
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

KEY = "the-admin-key-of-the-loop"
GATE = {"alias": "latest", "if": [{"metric": "P@1", "least_change": 0.0}]}
JOB: dict[str, Any] = {
    "model": "m",
    "trainer": "label-tree",
    "data": ["train.jsonl", "monday.jsonl", {"feedback": {"model": "m", "days": 90}}],
    "valid": {"feedback": 0.2},
    "parameters": {"trees": 1},
    "promotion": GATE,
}
WORSE = {**JOB, "trainer": "huffman-tree", "parameters": {"epochs": 1, "dim": 1}}


def documents(n: int, seed: int) -> list[tuple[str, str]]:
    """Texts of this week and what is true of them: words that the first version has not seen."""
    rng = random.Random(seed)
    found = []
    for _ in range(n):
        label, words = rng.randrange(N_LABELS), [f"word{rng.randrange(30)}" for _ in range(4)]
        found.append((" ".join([f"week{label}", *words]), f"label{label}"))
    return found


def monday(n: int, seed: int) -> list[str]:
    """Texts that have a new label, told by two words which each stood in other texts before."""
    rng = random.Random(seed)
    return [f"word3 word17 word{rng.randrange(30)}" for _ in range(n)]


class Visitor:
    """A client that asks all the time: which version answered, and whether rightly."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.answers: list[tuple[int, bool]] = []
        self.faults: list[Exception] = []
        self._thread.start()

    def _ask(self) -> None:
        with xylem.Client(self._url, retries=0) as client:
            while not self._stop.wait(0.005):
                text, label = documents(1, len(self.answers))[0]
                try:
                    found = client.predict("m", [text], top_r=1)
                except Exception as error:
                    self.faults.append(error)
                    return
                self.answers.append((found.version, found[0].labels[0].label == label))

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for(self, version: int) -> None:
        wait_for(lambda: bool(self.faults) or any(of == version for of, _ in self.answers[-1:]))

    def share(self, version: int) -> float:
        right = [is_right for of, is_right in self.answers if of == version]
        return sum(right) / len(right)


def correct(client: xylem.Client, n: int, seed: int) -> None:
    """Predict ten documents at a time, and send what is true of each, as an editor does."""
    todo = documents(n, seed)
    for first in range(0, n, 10):
        some = todo[first : first + 10]
        found = client.predict("m", [text for text, _ in some], top_r=3)
        events = []
        for i, (text, label) in enumerate(some):
            seen = {"event_id": f"{seed}-{first + i}", "prediction_id": found[i].prediction_id}
            events.append({**seen, "instance": {"text": text}, "labels": [label]})
        assert [one.result for one in client.feedback("m", events).results] == ["applied"] * len(
            some
        )


def ended(client: xylem.Client, n: int) -> Any:
    """The newest job, once there are n and it has ended."""
    wait_for(lambda: len(jobs := client.jobs()) == n and jobs[0].is_ended)
    return client.jobs()[0]


def test_corrections_make_a_better_version_and_no_worse_one(
    tmp_path: Path, command: Command
) -> None:
    store, data = Store(tmp_path / "store"), tmp_path / "data"
    data.mkdir()
    train = write_data(data / "train.jsonl", 300, seed=1)
    train_and_publish(
        store, "m", TrainRequest(trainer="label-tree", data=train, parameters=("trees=1",))
    )
    settings = {"data_dir": data, "jobs": 1, "job_nice": 0, "feedback_rows": 1, "admin_key": KEY}
    with (
        ServerProcess(store.root, **settings) as server,
        xylem.Client(f"http://127.0.0.1:{server.port}", KEY) as client,
    ):
        visitor = Visitor(server.port)
        visitor.wait_for(1)
        rows = [json.dumps({"text": text, "labels": ["new"]}) for text in monday(10, seed=2)]
        (data / "monday.jsonl").write_text("\n".join(rows))
        status, _, said = command("extend", "m", "--data", data / "monday.jsonl", "--rows", train)
        assert status == 0, said
        visitor.wait_for(2)
        assert [row.labels[0].label for row in client.predict("m", monday(5, seed=3))] == [
            "new"
        ] * 5

        schedule = client.create_schedule("training", JOB, rows=500)
        correct(client, 500, seed=7)
        job = ended(client, 1)
        assert job.state == "succeeded", job.error
        assert job.promotion.promoted and job.promotion.baseline == 2, job.promotion
        (listed,) = client.schedules()
        assert (listed["id"], listed["runs"], listed["last_job"]) == (schedule["id"], 1, job.id)
        visitor.wait_for(3)
        assert client.predict("m", monday(1, seed=4))[0].labels[0].label == "new"
        n = len(visitor.answers)
        wait_for(lambda: len(visitor.answers) > n + 100 or bool(visitor.faults))

        client.delete_schedule(schedule["id"])
        client.create_schedule("training", WORSE, rows=60)
        correct(client, 60, seed=8)
        job = ended(client, 2)
        assert (job.state, job.version) == ("succeeded", 4), job.error
        assert not job.promotion.promoted and job.promotion.baseline == 3, job.promotion
        assert job.promotion.reasons[0].startswith("P@1: expected a change of at least +0, found -")
        visitor.end()
    assert visitor.faults == []
    versions = [version for version, _ in visitor.answers]
    assert set(versions) == {1, 2, 3} and versions == sorted(versions)
    assert max(visitor.share(1), visitor.share(2)) < 0.5 < 0.9 < visitor.share(3)
    assert store.resolve("m") == 3
