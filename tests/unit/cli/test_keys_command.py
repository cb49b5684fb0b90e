"""`xylem keys`, the history of `xylem models`, and what lists or looks without making a database."""

import getpass
import json
import re
from pathlib import Path

import pytest

from model_store.store import Store
from service.access.audit import AuditLog
from service.access.key_text import AccessScope
from service.access.ring import KeyRing
from service.base.settings import Settings
from service.db import FILE_NAME
from service.db.engine import Database, default_url
from tests.conftest import Command, answer

pytestmark = pytest.mark.usefixtures("versions_of_m")


def test_keys_from_the_command_open_a_ring(command: Command, versions_of_m: Store) -> None:
    made = answer(command("keys", "create", "web app", "--scope", "predict", "--expires", "90d", "--json"))
    assert made["key"].startswith(f"xk_{made['id']}_")
    assert (made["scopes"], made["state"]) == (["predict"], "active")
    status, out, _ = command("keys", "create", "ops", "--scope", "admin")
    (shown,) = re.findall(r"^xk_[a-z2-7]{12}_[A-Za-z0-9_-]{43}$", out, re.MULTILINE)
    assert status == 0
    database = Database(default_url(versions_of_m.root))
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


def test_where_there_is_no_store_none_is_made(command: Command, tmp_path: Path) -> None:
    place = tmp_path / "nowhere"
    for arguments in (["promote", "m@1"], ["rollback", "m"], ["history", "m"], ["delete", "m@1"]):
        status, _, err = command("models", *arguments, store=place)
        assert (status, "expected a model, found none named 'm'" in err) == (2, True)
    assert not place.exists()


@pytest.mark.parametrize(("name", "found"), [("jobs", {"jobs": []}), ("schedules", {"schedules": []})])
def test_a_listing_makes_no_database(
    command: Command, versions_of_m: Store, name: str, found: dict[str, object]
) -> None:
    assert answer(command(name, "list", "--json")) == found
    assert not (versions_of_m.root / FILE_NAME).exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("jobs", "show", "0123456789ab"), "expected the id of a job, found '0123456789ab'"),
        (("schedules", "delete", "0123456789ab"), "expected the id of a schedule, found '0123456789ab'"),
        (("schedules", "create", "--job", "no.json", "--rows", "5"), "no.json: expected a readable file"),
        (("feedback", "delete", "none", "--day", "2026-11-23"), "none"),
    ],
)
def test_what_is_not_there_makes_no_database(
    command: Command, versions_of_m: Store, arguments: tuple[str, ...], expected: str
) -> None:
    status, _, err = command(*arguments)
    assert (status, expected in err) == (2, True), err
    assert not (versions_of_m.root / FILE_NAME).exists()
