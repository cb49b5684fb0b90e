"""Thresholds that commands make and delete."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.helpers.feedback_helpers import Replica, put_candidate, token_event
from tests.helpers.jobs_helpers import write_data
from tests.helpers.measured import LEAST, LIMIT, with_limits
from tests.unit.cli.conftest import Cli

import xylem
from xylem.base.db.engine import Database, default_url
from xylem.base.db.tables import CHECKPOINTS, EVENTS, LOG, SHADOWS, VERSIONS
from xylem.thresholds.store.state import ThresholdDatabase
from xylem_store.store import Store

DELETE = ("models", "delete", "raw@1")


def counts(database: Database) -> list[int]:
    """Rows of each table of thresholds, and of events."""
    with database.read() as connection:
        tables = VERSIONS, LOG, CHECKPOINTS, SHADOWS, EVENTS
        return [len(connection.execute(select(table)).all()) for table in tables]


def test_all_of_a_version_goes_and_nothing_of_another(database_url: str) -> None:
    one, other = Replica(database_url), Replica(database_url)
    other.live.version = 2
    for replica in (one, other):
        replica.send(token_event(f"a{replica.live.version}", [1], [1, 2]))
    thresholds = ThresholdDatabase(one.database)
    for version in (1, 2):
        put_candidate(one.database, version, one.live.snapshot())
    assert [thresholds.delete("m", version) for version in (3, 1, 1)] == [False, True, False]
    assert counts(one.database) == [1, 2, 1, 1, 2]
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
    own_store: Store,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    is_own: bool,
    options: list[str],
    goes: bool,
) -> None:
    url = default_url(own_store.root) if is_own else f"sqlite:///{own_store.root.parent}/shared.db"
    if not is_own:
        monkeypatch.setenv("XYLEM_DATABASE_URL", url)
    replica = Replica(url)
    for version in (1, 2):
        ThresholdDatabase(replica.database).save("raw", version, replica.live.start_state())
    own_store.promote("raw", 2, "stable")
    said = cli.answers(*DELETE, *options)
    assert said == {"model": "raw", "version": 1, "deleted": True, "thresholds_deleted": goes}
    assert counts(replica.database) == ([1, 0, 1, 0, 0] if goes else [2, 0, 2, 0, 0])
    replica.close()


def test_a_version_without_thresholds_goes_and_makes_no_database(
    own_store: Store, cli: Cli
) -> None:
    own_store.promote("raw", 2, "stable")
    assert "thresholds" not in cli.says(*DELETE)
    assert not (own_store.root / "xylem.db").exists()


def test_a_silent_database_is_reported_after_the_deletion(own_store: Store, cli: Cli) -> None:
    (own_store.root / "xylem.db").mkdir()
    own_store.promote("raw", 2, "stable")
    fault = "raw@1 is deleted, its thresholds are not: expected a database that answers"
    cli.refuses(fault, *DELETE, status=1)
    assert own_store.versions("raw") == (2,)


def test_a_streamed_version_is_predicted_at_its_own_thresholds(cli: Cli, tmp_path: Path) -> None:
    data = write_data(tmp_path / "rows.jsonl", 200, seed=3)
    arguments = ("train", "plt", "--data", data, "--model", "m", "-p", "solver=sgd", "--stream")
    found = cli.answers(*arguments, "--thresholds", "ofo")["thresholds"]
    assert found.keys() == {"method", "epoch", "rows", "start", "validation_macro_f"}
    assert (found["method"], found["epoch"], found["rows"]) == ("ofo", 1, 180)
    line = data.read_text().splitlines()[0]
    (predicted,) = cli.lines("predict", "m", "--threshold", "tuned", input=line)
    assert predicted["labels"]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("plt", "--stream", "--thresholds", "fta"), 'thresholds: expected ofo, found "fta"'),
        (("plt", "--thresholds", "ofo"), "thresholds: expected --stream"),
        (
            ("learned-tree", "--stream", "--thresholds", "ofo"),
            "thresholds: expected one of plt",
        ),
    ],
)
def test_thresholds_that_cannot_be_found_are_refused(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], fault: str
) -> None:
    data = write_data(tmp_path / "rows.jsonl", 40, seed=3)
    cli.refuses(fault, "train", *arguments, "--data", data, "--model", "m")


def names_in(prediction: Any) -> list[str]:
    return [label["label"] for label in prediction["labels"]]


def test_the_command_and_python_keep_the_limit(own_store: Store, cli: Cli, tmp_path: Path) -> None:
    with_limits(own_store)
    arguments = ("predict", "text", "--top-r", "11", "--beam-width", "100", "--threshold")
    line = json.dumps({"text": "red green blue"})
    (many,) = cli.lines(*arguments, str(float(LEAST)), input=line)
    (found,) = cli.lines(*arguments, "tuned", input=line)
    assert names_in(found) == names_in(many)[:LIMIT]
    file = tmp_path / "rows.jsonl"
    file.write_text(line + "\n")
    (of_file,) = cli.lines(*arguments, "tuned", "--data", file)
    assert names_in(of_file) == names_in(many)[:LIMIT]
    output = tmp_path / "answers"
    cli.says(*arguments, "tuned", "--data", file, "--out", output)
    (part,) = (path for path in output.iterdir() if path.name.endswith(".jsonl"))
    assert names_in(json.loads(part.read_text())) == names_in(many)[:LIMIT]
    model = xylem.load(own_store.root, "text")
    for chunk_characters in (None, 500):
        rows = model.predict(
            ["red green blue"], top_r=11, threshold="tuned", chunk_characters=chunk_characters
        )
        assert len(rows[0]) == LIMIT


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (
            ("--objective", "median"),
            "objective: expected macro, micro or instance, found 'median'",
        ),
        *(
            (
                ("--objective", "instance", "--method", method),
                "method: expected ofo, as the other methods tune for macro-F only, found "
                f"'{method}' with the objective 'instance'",
            )
            for method in ("sto", "fta", "fta-one")
        ),
        (
            ("--objective", "micro", "--method", "all"),
            "method: expected ofo, as the other methods tune for macro-F only, found "
            "'fta' with the objective 'micro'",
        ),
        (
            ("--objective", "micro", "--kappa", "auto"),
            "kappa: expected it with the objective 'macro' only, found it with 'micro'",
        ),
        (
            ("--objective", "instance", "--start", "1,4"),
            "start: expected it with the objectives 'macro' and 'micro', found it with 'instance'",
        ),
    ],
)
def test_what_an_objective_does_not_have_is_refused(
    own_store: Store, cli: Cli, tmp_path: Path, options: tuple[str, ...], fault: str
) -> None:
    data = write_data(tmp_path / "rows.jsonl", 20, seed=3)
    cli.refuses(fault, "thresholds", "text", "--data", data, *options)
