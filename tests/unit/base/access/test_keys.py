"""Keys in the database: what is kept of them, how long they are in force, and the first of them."""

import contextlib
import hashlib
import re
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import select
from tests.conftest import together

from xylem.base.access import audit as audit_module, keys as keys_module
from xylem.base.access.audit import AuditLog
from xylem.base.access.key_text import AccessScope, id_of, make_secret, without_secrets
from xylem.base.access.keys import AccessKey, AccessKeys, ensure_admin_key
from xylem.base.access.patterns import PATTERNS_MAX
from xylem.base.access.ring import ENVIRONMENT, Principal
from xylem.base.db.engine import Database
from xylem.base.db.tables import ACCESS_KEYS
from xylem.base.errors import BadParameter, KeyNotFound, LimitExceeded

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
    assert (facts["state"], facts["scopes"], facts["last_used"]) == (
        "active",
        ["predict", "feedback"],
        None,
    )
    assert "key" not in facts
    assert made.facts(())["key"] == made.text


def test_only_an_id_is_shown_and_revoked_keys_stay_revoked(database: Database) -> None:
    keys = AccessKeys(database)
    made = keys.create("shop", PREDICT)
    near = ("\0" * 12, made.key.id + "x", made.key.id[:-1], made.text)
    for text in ("", *near, "aaaaaaaaaaaa", "x" * 1000, "' OR 1=1 --", "\x01"):
        for call in (keys.revoke, keys.rotate):
            with pytest.raises(KeyNotFound, match="expected the id of a key") as refused:
                call(text)
            assert made.text[-43:-33] not in str(refused.value)
    assert keys.list()[0].revoked_at is None
    first = keys.revoke(made.key.id)
    assert first.revoked_at is not None
    assert keys.revoke(made.key.id) == first
    assert first.state(0.0) == "revoked"
    with pytest.raises(KeyNotFound, match="found revoked"):
        keys.rotate(made.key.id)


def test_rotation_overlaps_and_lengthens_no_life(database: Database) -> None:
    keys = AccessKeys(database)

    def kept(key: AccessKey) -> AccessKey:
        return next(one for one in keys.list() if one.id == key.id)

    old = keys.create("web", PREDICT, 1000).key
    new = keys.rotate(old.id, 100).key
    assert (new.name, new.scopes) == (old.name, old.scopes)
    assert new.expires_at - new.created_at == pytest.approx(1000)
    assert kept(old).expires_at == pytest.approx(new.created_at + 100, abs=5)
    assert kept(old).state(new.created_at + 99) == "active"
    assert kept(old).state(new.created_at + 106) == "expired"
    keys.rotate(new.id, 10_000, 5)
    assert kept(new).expires_at == new.expires_at
    other = keys.create("other", PREDICT).key
    assert keys.rotate(other.id).key.expires_at is None
    with pytest.raises(KeyNotFound, match="expired"):
        keys.rotate(other.id)


NAMES = [{"name": name} for name in ("", "a" * 65, "line\nbreak")]
LIFETIMES = [{"lifetime_seconds": seconds} for seconds in (0, -1, float("nan"), 1e12)]


MODELS: list[dict[str, Any]] = [
    {"models": models}
    for models in ((), ("",), ("a b",), ("A",), ("a/b",), ("a[",), ("[]",), ("a" * 129,))
]
TOO_MANY = {"models": ("a",) * (PATTERNS_MAX + 1)}
PREFIXES = [
    {"scopes": ADMIN, "models": ("a",), "data_prefix": prefix}
    for prefix in ("", "/", "../x", "a/../b", "a b", ".a", "a" * 257)
]
APART = [
    {"models": ("a",), "data_prefix": "a/"},
    {"scopes": ADMIN, "data_prefix": "a/"},
    {"scopes": frozenset({AccessScope.METRICS}), "models": ("a",)},
]


@pytest.mark.parametrize(
    "wrong",
    [
        *NAMES,
        {"scopes": frozenset()},
        *LIFETIMES,
        *MODELS,
        TOO_MANY,
        *PREFIXES,
        *APART,
    ],
)
def test_keys_that_cannot_be(database: Database, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        AccessKeys(database).create(**{"name": "a", "scopes": PREDICT, **wrong})
    assert AccessKeys(database).list() == []


def test_terms_of_a_key_go_on_with_the_next_one(database: Database) -> None:
    keys = AccessKeys(database)
    terms = {"no_rows": ("m",), "models": ("a*",) * PATTERNS_MAX, "data_prefix": "a/b-"}
    old = keys.create("shop", ADMIN, **terms).key
    keys.rotate(old.id)
    assert [{name: getattr(key, name) for name in terms} for key in keys.list()] == [terms] * 2


def test_a_key_of_some_models_opens_nothing_for_an_older_release(database: Database) -> None:
    """An older release does not read the patterns: it must not know the scopes."""
    AccessKeys(database).create("shop", PREDICT | ADMIN, models=("a",))
    with database.read() as connection:
        (row,) = connection.execute(select(ACCESS_KEYS)).all()
    assert not set(row.scopes.split()) & set(AccessScope)
    # and it is no admin's key, with which nobody would be locked out
    assert ensure_admin_key(database) is not None


def test_keys_are_bounded_and_the_newest_admin_key_stays(
    database: Database, monkeypatch: Any
) -> None:
    monkeypatch.setattr(keys_module, "KEYS_MAX", 5)
    keys = AccessKeys(database)
    admin = keys.create("admin", ADMIN).key
    dead = [keys.create("web", PREDICT).key for _ in range(3)]
    for key in (admin, *dead):
        keys.revoke(key.id)
    for _ in range(4):
        keys.create("web", PREDICT)
    left = {key.id for key in keys.list()}
    assert len(left) == 5
    assert admin.id in left
    assert left.isdisjoint(key.id for key in dead)
    with pytest.raises(LimitExceeded, match="at most 5"):
        keys.create("web", PREDICT)


def test_of_several_first_starts_one_makes_the_admin_key(
    database: Database, database_url: str
) -> None:
    def begin() -> str | None:
        with contextlib.closing(Database(database_url)) as own:
            return ensure_admin_key(own)

    (text,) = filter(None, together(*[begin] * 8))
    (key,) = AccessKeys(database).list()
    assert (key.id, key.scopes) == (id_of(text), ADMIN)
    AccessKeys(database).revoke(key.id)
    assert ensure_admin_key(database) is None  # who revoked it meant it


def test_of_several_processes_one_shows_the_admin_key(tmp_path: Any) -> None:
    code = (
        "import sys; from xylem.base.db.engine import Database; from xylem.base.access.keys "
        "import *;"
        "text = ensure_admin_key(Database(sys.argv[1])); text and show_admin_key(text)"
    )
    command = [sys.executable, "-c", code, f"sqlite:///{tmp_path}/xylem.db"]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
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
    newest = first[0]
    said = newest.key_id, newest.who, newest.outcome
    assert said == ("environment", "XYLEM_ADMIN_KEY", "version-in-use")
    assert newest.at.endswith("Z")
    second = audit.page(below_id=first[-1].id, limit=10)
    third = audit.page(below_id=second[-1].id, limit=10)
    targets = [entry.target for entry in (*first[1:], *second, *third)]
    assert targets == [f"m@{number} stable" for number in reversed(range(25))]
    assert audit.page(below_id=third[-1].id) == []
    assert len(audit.page(limit=10**9)) == 26


def test_no_secret_and_no_control_character_comes_in(database: Database) -> None:
    audit = AuditLog(database)
    secret = make_secret()
    told = f"{secret}\n\x00{'x' * 1000}"
    audit.append(Principal("k", told), told, told, told, told)
    (entry,) = audit.page()
    for text in (entry.who, entry.action, entry.target, entry.outcome, entry.request_id):
        assert secret not in str(text)
        assert str(text).startswith(f"xk_{id_of(secret)}  x")
        assert len(str(text)) <= 256


def test_the_oldest_go(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "ROWS_MAX", 7)
    audit = AuditLog(database)
    for number in range(20):
        audit.append(ENVIRONMENT, "promote", str(number))
    assert [entry.target for entry in audit.page()] == [str(number) for number in range(19, 12, -1)]
