"""`xylem keys`, the history of `xylem models`, and what lists or looks without making
a database.
"""

import getpass
import json
import re

import pytest
from tests.unit.cli.conftest import Cli

from xylem.base.access.audit import AuditLog
from xylem.base.access.key_text import AccessScope
from xylem.base.access.ring import KeyRing
from xylem.base.db.engine import Database, default_url
from xylem.base.db.names import FILE_NAME
from xylem.base.settings import Settings

pytestmark = pytest.mark.usefixtures("versions_of_m")


def test_keys_from_the_command_open_a_ring(cli: Cli) -> None:
    made = cli.answers("keys", "create", "web app", "--scope", "predict", "--expires", "90d")
    assert made["key"].startswith(f"xk_{made['id']}_")
    assert (made["scopes"], made["state"]) == (["predict"], "active")
    out = cli.says("keys", "create", "ops", "--scope", "admin")
    (shown,) = re.findall(r"^xk_[a-z2-7]{12}_[A-Za-z0-9_-]{43}$", out, re.MULTILINE)
    database = Database(default_url(cli.store))
    ring = KeyRing(
        database, Settings(host="0.0.0.0"), pytest.fail
    )  # an admin key is there: none is made
    ring.refresh()
    assert ring.check(f"Bearer {made['key']}".encode(), AccessScope.PREDICT, "m").name == "web app"
    assert ring.check(f"Bearer {shown}".encode(), AccessScope.ADMIN, "m").name == "ops"
    listed = cli.answers("keys", "list")["keys"]
    assert [key["name"] for key in listed] == ["ops", "web app"]
    for text in (made["key"], shown):
        assert text.split("_", 2)[2] not in json.dumps(listed)
    assert cli.answers("keys", "rotate", made["id"], "--overlap", "1h")["name"] == "web app"
    assert cli.answers("keys", "revoke", made["id"])["state"] == "revoked"
    audit = [(entry.who, entry.action) for entry in AuditLog(database).page()]
    actions = ["keys.revoke", "keys.rotate", "keys.create", "keys.create"]
    assert audit == [(getpass.getuser(), action) for action in actions]
    database.close()


def test_a_list_of_keys_shows_their_limits(cli: Cli) -> None:
    limits = ("--requests-per-second", "0.5", "--in-flight", "3")
    cli.says("keys", "create", "shop", "--scope", "predict", *limits)
    listed = cli.says("keys", "list")
    for shown in ("limits", "0.5 requests/s", "flight"):
        assert shown in listed
    assert "rows/s" not in listed


def test_a_pattern_without_a_model_is_a_warning(cli: Cli) -> None:
    create = ("keys", "create", "shop", "--scope", "predict", "--model", "m*", "--model", "tags")
    new_key = cli.answers(*create)
    assert new_key["models"] == ["m*", "tags"]
    assert new_key["warnings"] == ["models: tags matches no model of the store now"]
    assert "Warning: models: tags matches no model" in cli.says(*create)
    rotated = cli.answers("keys", "rotate", new_key["id"])
    assert (rotated["models"], len(rotated["warnings"])) == (["m*", "tags"], 1)


def test_a_second_key_of_a_name_is_a_warning(cli: Cli) -> None:
    create = ("keys", "create", "shop", "--scope", "predict")
    first = cli.answers(*create)
    assert first["warnings"] == []
    expected = f"name: shop is also the name of {first['id']}: ids tell them apart"
    assert cli.answers(*create)["warnings"] == [expected]
    for key in (first["id"], cli.answers(*create)["id"]):
        cli.answers("keys", "revoke", key)
    assert len(cli.answers(*create)["warnings"]) == 1  # of the second one


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["create", "x"], "scopes: expected some of predict"),
        (["create", "x", "--scope", "root"], "found 'root'"),
        (
            ["create", "x", "--scope", "predict", "--expires", "soon"],
            "--expires: expected a time such as 90d",
        ),
        (
            ["create", "x", "--scope", "predict", "--expires", "0d"],
            "lifetime: expected seconds above 0",
        ),
        (["create", "", "--scope", "predict"], "name: expected 1 to 64"),
        (
            ["create", "x", "--scope", "predict", "--model", "Shop"],
            "models: expected patterns of at most 128 characters",
        ),
        (
            ["create", "x", "--scope", "predict", "--scope", "metrics", "--model", "a"],
            "models: expected scopes of single models, found metrics",
        ),
        (
            ["create", "x", "--scope", "admin", "--data-prefix", "a/"],
            "data_prefix: expected a key with the scope admin and with models",
        ),
        (["revoke", "nobody"], "expected the id of a key, found 'nobody'"),
        (["rotate", "nobody"], "expected the id of a key, found 'nobody'"),
        (["rotate", "nobody", "--overlap", "-1h"], "--overlap: expected a time"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(cli: Cli, arguments: list[str], fault: str) -> None:
    cli.refuses(fault, "keys", *arguments)


def test_a_store_without_keys_says_how_to_make_one(cli: Cli) -> None:
    assert "xylem keys create" in cli.says("keys", "list")
    assert cli.answers("keys", "list") == {"keys": []}


def test_who_moved_what_is_shown(cli: Cli) -> None:
    cli.says("models", "promote", "m@2", "--alias", "stable", "--reason", "it is good")
    cli.says("models", "promote", "m@3", "--alias", "stable")
    back = cli.answers("models", "rollback", "m", "--alias", "stable", "--to", "2")
    assert back == {"model": "m", "alias": "stable", "version": 2, "previous_version": 3}
    cli.refuses("stable", "models", "delete", "m@2")
    cli.says("models", "delete", "m@2", "--with-aliases", "--reason", "done with")
    history = cli.answers("models", "history", "m", "--alias", "stable")["history"]
    told = [(row["action"], row["from_version"], row["to_version"], row["why"]) for row in history]
    assert told == [
        ("removed", 2, None, "done with"),
        ("rolled-back", 3, 2, ""),
        ("promoted", 2, 3, ""),
        ("promoted", None, 2, "it is good"),
    ]
    assert {row["who"] for row in history} == {getpass.getuser()}
    assert "done with" in cli.says("models", "history", "m")
    cli.refuses("'other'", "models", "history", "other")


@pytest.mark.parametrize("command", ["promote m@1", "rollback m", "history m", "delete m@1"])
def test_where_there_is_no_store_none_is_made(cli: Cli, command: str) -> None:
    cli.store = cli.store.with_name("nowhere")
    cli.refuses("expected a model, found none named 'm'", "models", *command.split())
    assert not cli.store.exists()


@pytest.mark.parametrize("name", ["jobs", "schedules"])
def test_a_listing_makes_no_database(cli: Cli, name: str) -> None:
    assert cli.answers(name, "list") == {name: []}
    assert not (cli.store / FILE_NAME).exists()


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("jobs", "show", "0123456789ab"), "expected the id of a job, found '0123456789ab'"),
        (
            ("schedules", "delete", "0123456789ab"),
            "expected the id of a schedule, found '0123456789ab'",
        ),
        (
            ("schedules", "create", "--job", "no.json", "--rows", "5"),
            "no.json: expected a readable file",
        ),
        (("feedback", "delete", "none", "--day", "2026-11-23"), "none"),
    ],
)
def test_what_is_not_there_makes_no_database(
    cli: Cli, arguments: tuple[str, ...], fault: str
) -> None:
    cli.refuses(fault, *arguments)
    assert not (cli.store / FILE_NAME).exists()
