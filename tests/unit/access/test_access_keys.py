"""Keys in the database: what is kept of them, how long they are in force, and the first of them."""

import hashlib
import os
import re
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select

from service.access import audit as audit_module
from service.access import keys as keys_module
from service.access.audit import AuditLog
from service.access.key_text import AccessScope, id_of, make_secret, without_secrets
from service.access.keys import AccessKeys, ensure_admin_key
from service.access.ring import ENVIRONMENT, Principal
from service.base.errors import BadParameter, KeyNotFound, LimitExceeded
from service.db.engine import Database
from service.db.tables import ACCESS_KEYS
from tests.conftest import together

PREDICT, ADMIN = frozenset({AccessScope.PREDICT}), frozenset({AccessScope.ADMIN})


def test_keys_differ_and_show_nothing_of_their_secret() -> None:
    made = [make_secret() for _ in range(300)]
    assert len({id_of(text) for text in made}) == len(set(made)) == 300
    for text in made:
        assert re.fullmatch(r"xk_[a-z2-7]{12}_[A-Za-z0-9_-]{43}", text)
        assert id_of(text) == text[3:15]
        assert without_secrets(f"a {text} b {text}") == f"a xk_{id_of(text)} b xk_{id_of(text)}"
    for other in ("", "xk_", "xk_aaaaaaaaaaaa", made[0] + "a", made[0][:-1], "x" + made[0]):
        assert id_of(other) is None


def test_the_database_has_the_hash_alone(database: Database) -> None:
    made = AccessKeys(database).create("web", PREDICT | {AccessScope.FEEDBACK}, 60)
    assert made.text not in repr(made)
    with database.read() as connection:
        (row,) = connection.execute(select(ACCESS_KEYS)).all()
    assert bytes(row.hash) == hashlib.sha256(made.text.encode()).digest()
    secret = made.text.rpartition(made.key.id)[2]
    assert secret not in repr(tuple(row))
    assert row.scopes == "feedback predict"
    (listed,) = AccessKeys(database).list()
    assert listed == made.key
    facts = listed.facts()
    assert (facts["state"], facts["scopes"], facts["last_used"]) == ("active", ["predict", "feedback"], None)
    assert "key" not in facts
    assert made.facts()["key"] == made.text


def test_only_an_id_is_one_and_no_secret_is_told(database: Database) -> None:
    keys = AccessKeys(database)
    made = keys.create("shop", [AccessScope.PREDICT])
    for text in ("", "\0" * 12, made.key.id + "x", made.key.id[:-1], made.text):
        for call in (keys.revoke, keys.rotate):
            with pytest.raises(KeyNotFound) as refused:
                call(text)
            assert made.text[-43:-33] not in str(refused.value)
    assert keys.list()[0].revoked_at is None


def test_revoked_stays_revoked(database: Database) -> None:
    keys = AccessKeys(database)
    made = keys.create("web", PREDICT)
    first = keys.revoke(made.key.id)
    assert first.revoked_at is not None
    assert keys.revoke(made.key.id) == first
    assert first.state(0.0) == "revoked"
    with pytest.raises(KeyNotFound, match="found revoked"):
        keys.rotate(made.key.id)
    for unknown in ("", "aaaaaaaaaaaa", "x" * 1000, "' OR 1=1 --", "\x01"):
        with pytest.raises(KeyNotFound, match="expected the id of a key"):
            keys.revoke(unknown)


def test_rotation_overlaps_and_lengthens_no_life(database: Database) -> None:
    keys = AccessKeys(database)
    old = keys.create("web", PREDICT, 1000).key
    new = keys.rotate(old.id, 100)
    assert (new.key.name, new.key.scopes) == (old.name, old.scopes)
    assert new.key.expires_at is not None
    assert new.key.expires_at - new.key.created_at == pytest.approx(1000)
    after = {key.id: key for key in keys.list()}[old.id]
    assert after.expires_at == pytest.approx(new.key.created_at + 100, abs=5)
    assert after.state(new.key.created_at + 99) == "active"
    assert after.state(new.key.created_at + 106) == "expired"
    keys.rotate(new.key.id, 10_000, 5)
    assert {key.id: key for key in keys.list()}[new.key.id].expires_at == new.key.expires_at
    last = keys.rotate(keys.create("other", PREDICT).key.id)
    assert last.key.expires_at is None
    with pytest.raises(KeyNotFound, match="expired"):
        keys.rotate(next(key.id for key in keys.list() if key.name == "other" and key.id != last.key.id))


@pytest.mark.parametrize(
    ("name", "scopes", "lifetime"),
    [
        ("", PREDICT, None),
        ("a" * 65, PREDICT, None),
        ("line\nbreak", PREDICT, None),
        ("a", frozenset(), None),
        ("a", PREDICT, 0),
        ("a", PREDICT, -1),
        ("a", PREDICT, float("nan")),
        ("a", PREDICT, 1e12),
    ],
)
def test_keys_that_cannot_be(database: Database, name: str, scopes: Any, lifetime: float | None) -> None:
    with pytest.raises(BadParameter):
        AccessKeys(database).create(name, scopes, lifetime)
    assert AccessKeys(database).list() == []


def test_keys_are_bounded_and_the_newest_admin_key_stays(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_module, "KEYS_MAX", 5)
    keys = AccessKeys(database)
    admin = keys.create("admin", ADMIN).key
    dead = [keys.create("web", PREDICT).key for _ in range(3)]
    for key in (admin, *dead):
        keys.revoke(key.id)
    for _ in range(4):
        keys.create("web", PREDICT)
    left = keys.list()
    assert len(left) == 5
    assert admin.id in [key.id for key in left]
    assert not {key.id for key in dead} & {key.id for key in left}
    with pytest.raises(LimitExceeded, match="at most 5"):
        keys.create("web", PREDICT)


def test_of_several_first_starts_one_makes_the_admin_key(database_url: str) -> None:
    databases = [Database(database_url) for _ in range(8)]
    made = together(*(partial(ensure_admin_key, one) for one in databases))
    (text,) = [one for one in made if one is not None]
    (key,) = AccessKeys(databases[0]).list()
    assert (key.id, key.scopes) == (id_of(text), ADMIN)
    AccessKeys(databases[0]).revoke(key.id)
    assert ensure_admin_key(databases[1]) is None  # who revoked it meant it
    for database in databases:
        database.close()


def test_of_several_processes_one_shows_the_admin_key(tmp_path: Any) -> None:
    code = (
        "import sys; from service.db.engine import Database; from service.access.keys import *;"
        "text = ensure_admin_key(Database(sys.argv[1])); text and show_admin_key(text)"
    )
    command = [sys.executable, "-c", code, f"sqlite:///{tmp_path}/xylem.db"]
    running = [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ}) for _ in range(4)
    ]
    said = "".join(process.communicate()[1] for process in running)
    assert [process.returncode for process in running] == [0] * 4
    assert len(re.findall(r"xk_[a-z2-7]{12}_[A-Za-z0-9_-]{43}", said)) == 1
    assert said.count("\n") == 1


def test_entries_come_back_in_pages_the_newest_first(database: Database) -> None:
    audit = AuditLog(database)
    alice = Principal("abcdefgh2345", "alice")
    for number in range(25):
        audit.append(alice, "promote", f"m@{number} stable", "done", f"request-{number}")
    audit.append(ENVIRONMENT, "delete", "m", "version-in-use")
    first = audit.page(limit=10)
    assert (first[0].key_id, first[0].who, first[0].outcome) == (
        "environment",
        "XYLEM_ADMIN_KEY",
        "version-in-use",
    )
    assert first[0].facts()["at"].endswith("Z")
    second = audit.page(before=first[-1].id, limit=10)
    third = audit.page(before=second[-1].id, limit=10)
    targets = [entry.target for entry in (*first[1:], *second, *third)]
    assert targets == [f"m@{number} stable" for number in reversed(range(25))]
    assert audit.page(before=third[-1].id) == []
    assert len(audit.page(limit=10**9)) == 26


def test_no_secret_and_no_control_character_comes_in(database: Database) -> None:
    audit = AuditLog(database)
    secret = make_secret()
    told = f"{secret}\n\x00{'x' * 1000}"
    audit.append(Principal("k", told), told, told, told, told)
    (entry,) = audit.page()
    for text in entry[3:]:
        assert secret not in str(text)
        assert str(text).startswith(f"xk_{id_of(secret)}  x")
        assert len(str(text)) <= 256


def test_the_oldest_go(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "ROWS_MAX", 7)
    audit = AuditLog(database)
    for number in range(20):
        audit.append(ENVIRONMENT, "promote", str(number))
    assert [entry.target for entry in audit.page()] == [str(number) for number in range(19, 12, -1)]
