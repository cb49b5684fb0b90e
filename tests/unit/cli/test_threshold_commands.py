"""Thresholds that commands make and delete."""

import json
from pathlib import Path

import pytest
from sqlalchemy import select

from model_store.store import Store
from service.db.engine import Database, default_url
from service.db.tables import CHECKPOINTS, EVENTS, LOG, SHADOWS, VERSIONS
from service.thresholds.store.state import ThresholdDatabase
from tests.conftest import Command, Run, answer
from tests.feedback_helpers import Replica, put_candidate, token_event
from tests.jobs_helpers import write_data


def counts(database: Database) -> list[int]:
    """Rows of each table of thresholds."""
    with database.read() as connection:
        tables = VERSIONS, LOG, CHECKPOINTS, SHADOWS
        return [len(connection.execute(select(table)).all()) for table in tables]


def test_all_of_a_version_goes_and_nothing_of_another(database_url: str) -> None:
    one, other = Replica(database_url), Replica(database_url)
    other.live.version = 2
    for replica in (one, other):
        replica.send(token_event(f"a{replica.live.version}", [1], [1, 2]))
    thresholds = ThresholdDatabase(one.database)
    for version in (1, 2):
        put_candidate(one.database, version, one.live.snapshot())
    assert thresholds.delete("m", 3) is False
    assert thresholds.delete("m", 1) is True
    assert thresholds.delete("m", 1) is False
    assert counts(one.database) == [1, 2, 1, 1]
    with one.database.read() as connection:
        assert len(connection.execute(select(EVENTS)).all()) == 2
    other.catch_up()
    assert other.send(token_event("b2", [1], [])) == ["applied"]
    assert one.send(token_event("b1", [3], [])) == ["applied"]  # who has it open begins anew
    assert one.live.epoch == 2
    other.live.version = 1
    other.catch_up()
    assert other.bits() == one.bits()
    for replica in (one, other):
        replica.close()


@pytest.mark.parametrize(
    ("is_own", "options", "goes"),
    [(True, [], True), (False, [], True), (False, ["--keep-thresholds"], False)],
)
def test_the_command_deletes_thresholds_unless_they_are_to_stay(
    is_own: bool,
    options: list[str],
    goes: bool,
    own_store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
) -> None:
    url = default_url(own_store.root) if is_own else f"sqlite:///{tmp_path}/shared.db"
    if not is_own:
        monkeypatch.setenv("XYLEM_DATABASE_URL", url)
    database = Database(url)
    replica = Replica(url)
    for version in (1, 2):
        ThresholdDatabase(database).save("raw", version, replica.live.start_state())
    own_store.promote("raw", 2, "stable")
    said = answer(command("models", "delete", "raw@1", "--json", *options, store=own_store.root))
    assert said == {"model": "raw", "version": 1, "deleted": True, "thresholds_deleted": goes}
    assert counts(database) == ([1, 0, 1, 0] if goes else [2, 0, 2, 0])
    database.close()
    replica.close()


def test_a_version_without_thresholds_goes_and_makes_no_database(own_store: Store, command: Command) -> None:
    own_store.promote("raw", 2, "stable")
    status, said, _ = command("models", "delete", "raw@1", store=own_store.root)
    assert (status, "thresholds" in said) == (0, False)
    assert not Path(own_store.root / "xylem.db").exists()


def test_a_database_that_does_not_answer_is_told_after_the_version_is_gone(
    own_store: Store, command: Command
) -> None:
    (own_store.root / "xylem.db").mkdir()
    own_store.promote("raw", 2, "stable")
    status, _, said = command("models", "delete", "raw@1", store=own_store.root)
    assert status == 1
    assert "raw@1 is deleted, its thresholds are not: expected a database that answers" in said
    assert own_store.versions("raw") == (2,)


def test_a_streamed_version_is_predicted_at_thresholds_of_its_training(run_here: Run, tmp_path: Path) -> None:
    data, store = write_data(tmp_path / "rows.jsonl", 200, seed=3), tmp_path / "store"
    arguments = ("train", "plt", "--data", data, "--model", "m", "-p", "solver=sgd", "--stream")
    done = run_here(*arguments, "--thresholds", "ofo", "--json", store=store)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    found = report["thresholds"]
    assert found.keys() == {"method", "epoch", "rows", "start", "validation_macro_f"}
    assert (found["method"], found["epoch"], found["rows"]) == ("ofo", 1, 180)
    (text, *_) = (json.loads(line)["text"] for line in data.read_text().splitlines())
    line = json.dumps({"text": text}) + "\n"
    predicted = run_here("predict", "m", "--threshold", "tuned", store=store, input=line)
    assert predicted.returncode == 0, predicted.stderr
    assert json.loads(predicted.stdout)["labels"]


def test_thresholds_that_cannot_be_found_are_refused(run_here: Run, tmp_path: Path) -> None:
    data, store = write_data(tmp_path / "rows.jsonl", 40, seed=3), tmp_path / "store"
    cases = {
        "thresholds: expected ofo, found 'fta'": ("plt", "--stream", "--thresholds", "fta"),
        "thresholds: expected --stream": ("plt", "--thresholds", "ofo"),
        "thresholds: expected a trainer of plt": ("learned-tree", "--stream", "--thresholds", "ofo"),
    }
    for message, arguments in cases.items():
        done = run_here("train", *arguments, "--data", data, "--model", "m", store=store)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
