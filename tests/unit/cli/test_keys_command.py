"""`xylem keys` and the history of `xylem models`, in this process, over a real store and database."""

from __future__ import annotations

import getpass
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model_store.store import Store
from service import cli
from service.access.audit import AuditLog
from service.access.ring import KeyRing
from service.access.scopes import AccessScope
from service.db.engine import Database, default_url
from service.settings import Settings
from tests.small_models import small_draft

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    for _ in range(3):
        made.publish("m", small_draft(n_labels=3, n_features=40, n_trees=1))
    return made


@pytest.fixture
def command(store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["xylem", *map(str, arguments), "--store", str(store.root)])
        status = cli.run()
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def answer(done: tuple[int, str, str]) -> Any:
    status, out, err = done
    assert (status, err) == (0, "")
    return json.loads(out.splitlines()[-1])


def test_keys_from_the_command_open_a_ring(command: Command, store: Store) -> None:
    made = answer(command("keys", "create", "web app", "--scope", "predict", "--expires", "90d", "--json"))
    assert made["key"].startswith(f"xk_{made['id']}_")
    assert (made["scopes"], made["state"]) == (["predict"], "active")
    status, out, _ = command("keys", "create", "ops", "--scope", "admin")
    (shown,) = re.findall(r"^xk_[a-z2-7]{12}_[A-Za-z0-9_-]{43}$", out, re.MULTILINE)
    assert status == 0
    database = Database(default_url(store.root))
    ring = KeyRing(database, Settings(host="0.0.0.0"), pytest.fail)  # an admin key is there: none is made
    ring.refresh()
    assert ring.check(f"Bearer {made['key']}".encode(), AccessScope.PREDICT).name == "web app"
    assert ring.check(f"Bearer {shown}".encode(), AccessScope.ADMIN).name == "ops"
    listed = answer(command("keys", "list", "--json"))["keys"]
    assert [key["name"] for key in listed] == ["ops", "web app"]
    for text in (made["key"], shown):
        assert text.split("_", 2)[2] not in json.dumps(listed)
    next_one = answer(command("keys", "rotate", made["id"], "--overlap", "1h", "--json"))
    assert next_one["name"] == "web app"
    assert answer(command("keys", "revoke", made["id"], "--json"))["state"] == "revoked"
    audit = [(entry.who, entry.action) for entry in AuditLog(database).page()]
    actions = ["keys.revoke", "keys.rotate", "keys.create", "keys.create"]
    assert audit == [(getpass.getuser(), action) for action in actions]
    database.close()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["create", "x"], "scopes: expected some of predict"),
        (["create", "x", "--scope", "root"], "found 'root'"),
        (["create", "x", "--scope", "predict", "--expires", "soon"], "--expires: expected a time as 90d"),
        (["create", "x", "--scope", "predict", "--expires", "0d"], "lifetime: expected seconds above 0"),
        (["create", "", "--scope", "predict"], "name: expected 1 to 64"),
        (["revoke", "nobody"], "expected the id of a key, found 'nobody'"),
        (["rotate", "nobody"], "expected the id of a key, found 'nobody'"),
        (["rotate", "nobody", "--overlap", "-1h"], "--overlap: expected a time"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(command: Command, arguments: list[str], says: str) -> None:
    status, out, err = command("keys", *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_store_without_keys_says_how_to_make_one(command: Command) -> None:
    assert "xylem keys create" in command("keys", "list")[1]
    assert answer(command("keys", "list", "--json")) == {"keys": []}


def test_who_moved_what_is_shown(command: Command) -> None:
    assert command("models", "promote", "m@2", "--alias", "stable", "--reason", "it is good")[0] == 0
    assert command("models", "promote", "m@3", "--alias", "stable")[0] == 0
    back = answer(command("models", "rollback", "m", "--alias", "stable", "--to", "2", "--json"))
    assert back == {"model": "m", "alias": "stable", "version": 2, "previous_version": 3}
    assert command("models", "delete", "m@2")[0] == 2
    assert command("models", "delete", "m@2", "--with-aliases", "--reason", "done with")[0] == 0
    history = answer(command("models", "history", "m", "--alias", "stable", "--json"))["history"]
    told = [(row["action"], row["from_version"], row["to_version"], row["why"]) for row in history]
    assert told == [
        ("removed", 2, None, "done with"),
        ("rolled-back", 3, 2, ""),
        ("promoted", 2, 3, ""),
        ("promoted", None, 2, "it is good"),
    ]
    assert {row["who"] for row in history} == {getpass.getuser()}
    assert "done with" in command("models", "history", "m")[1]
    assert command("models", "history", "other")[0] == 2


def test_a_database_that_is_gone_stops_no_rollback(command: Command, store: Store) -> None:
    (store.root / "xylem.db").mkdir()
    assert answer(command("models", "rollback", "m", "--json"))["version"] == 2
    status, _, err = command("models", "delete", "m@1")
    assert (status, store.versions("m")) == (1, (2, 3))
    assert "m@1 is deleted, its thresholds are not" in err


def test_where_there_is_no_store_none_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "nowhere"
    for arguments in (["promote", "m@1"], ["rollback", "m"], ["history", "m"], ["delete", "m@1"]):
        monkeypatch.setattr(sys, "argv", ["xylem", "models", *arguments, "--store", str(place)])
        assert cli.run() == 2
        assert "expected a model, found none named 'm'" in capsys.readouterr().err
    assert not place.exists()
