"""The audit log: it tells who did what, never a secret, and is bounded."""

from __future__ import annotations

import pytest

from service.access import audit as audit_module
from service.access.audit import AuditLog
from service.access.key_text import make_secret
from service.access.ring import ENVIRONMENT, Principal
from service.db.engine import Database
from tests.databases import database_url, postgresql  # noqa: F401


def test_entries_come_back_in_pages_the_newest_first(database_url: str) -> None:  # noqa: F811
    database = Database(database_url)
    audit = AuditLog(database)
    alice = Principal("abcdefgh2345", "alice", frozenset())
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
    assert len(audit.page(limit=0)) == 1
    assert len(audit.page(limit=10**9)) == 26
    database.close()


def test_no_secret_and_no_control_character_comes_in(database_url: str) -> None:  # noqa: F811
    database = Database(database_url)
    audit = AuditLog(database)
    secret = make_secret()
    told = f"{secret.text}\n\x00{'x' * 1000}"
    audit.append(Principal("k", told, frozenset()), told, told, told, told)
    (entry,) = audit.page()
    for text in entry[3:]:
        assert secret.text not in str(text)
        assert str(text).startswith(f"xk_{secret.id}  x")
        assert len(str(text)) <= 256
    database.close()


def test_the_oldest_go(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(audit_module, "ROWS_MAX", 7)
    database = Database(database_url)
    audit = AuditLog(database)
    for number in range(20):
        audit.append(ENVIRONMENT, "promote", str(number))
    assert [entry.target for entry in audit.page()] == [str(number) for number in range(19, 12, -1)]
    database.close()
